"""How things stand is read now and then, and what could not be read is not there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import CollectorRegistry

from webhooks.errors import LedgerBusy, LedgerFault, LedgerUnavailable
from webhooks.metrics.metering import Meter, Meters
from webhooks.observing.facts import Fact
from webhooks.observing.observers import Observers
from webhooks.observing.surroundings import MetricsUnread

EVERY = timedelta(seconds=5)


class Part:
    """A part with one number, by a clock that stands still but for what reading takes."""

    def __init__(self, *, vital: bool = True) -> None:
        self.now_s = 100.0
        self.takes_s = 0.0
        self.error: Exception | None = None
        self.told: list[Fact] = []
        self.meter = Meter("ledger", self._read, EVERY, Observers([self.told.append]), vital=vital, clock=self._clock)
        self._registry = CollectorRegistry()
        self._registry.register(Meters([self.meter]))

    def _clock(self) -> float:
        return self.now_s

    def _read(self) -> Sequence[Metric]:
        self.now_s += self.takes_s
        if self.error:
            raise self.error
        return [GaugeMetricFamily("webhooks_held", "Some.", 7)]

    @property
    def reachable(self) -> float | None:
        """What is served of whether it answers."""
        return self._registry.get_sample_value("webhooks_reachable", {"part": "ledger"})

    @property
    def number(self) -> float | None:
        """What is served of its number."""
        return self._registry.get_sample_value("webhooks_held")


def test_what_was_read_is_served() -> None:
    """Nothing is known before the first reading."""
    part = Part()
    assert (part.reachable, part.number) == (None, None)
    assert part.meter.look() == EVERY
    assert (part.reachable, part.number) == (1, 7)


@pytest.mark.parametrize(("vital", "reachable"), [(True, 0), (False, None)])
def test_a_part_that_is_away_is_said_to_be_and_its_numbers_are_gone(vital: bool, reachable: float | None) -> None:
    """Its outage is told by others."""
    part = Part(vital=vital)
    part.meter.look()
    part.error = LedgerUnavailable("no route")
    part.meter.look()
    assert (part.reachable, part.number, part.told) == (reachable, None, [])


def test_a_reading_that_never_comes_to_an_end_is_not_believed_for_ever() -> None:
    """Neither its numbers nor that the part answers: then nothing is known."""
    part = Part()
    part.meter.look()
    part.now_s += 9.9
    assert (part.reachable, part.number) == (1, 7)
    part.now_s += 0.2
    assert (part.reachable, part.number) == (None, None)


@pytest.mark.parametrize(
    ("error", "vital", "reachable"),
    [
        (LedgerFault("no right"), True, 1),
        (ZeroDivisionError("a bug"), True, 0),
        (LedgerBusy("too slow"), False, None),
    ],
)
def test_what_cannot_be_read_for_another_reason_is_told_once(
    error: Exception, vital: bool, reachable: float | None
) -> None:
    """And once more after it could be read meanwhile; its numbers are gone."""
    part = Part(vital=vital)
    for each in (error, error, None, error):
        part.error = each
        part.meter.look()
    assert (part.reachable, part.number) == (reachable, None)
    assert part.told == [MetricsUnread("ledger", str(error))] * 2


def test_what_is_dear_is_read_seldom() -> None:
    """It takes no more than a twentieth of the part's time."""
    part = Part()
    part.takes_s = 1.5
    assert part.meter.look() == timedelta(seconds=30)
    part.now_s += 34
    assert part.number == 7


def test_it_goes_on_until_the_process_is_told_to_stop() -> None:
    """Reading in a thread of its own, whatever a reading comes to."""
    stopping, read = threading.Event(), 0

    def answer() -> Sequence[Metric]:
        nonlocal read
        read += 1
        if read == 3:
            stopping.set()
        raise LedgerUnavailable("no route")

    _meter(answer).run(stopping)
    assert read == 3


def _meter(read: Callable[[], Sequence[Metric]]) -> Meter:
    return Meter("ledger", read, timedelta(milliseconds=1), Observers([]))
