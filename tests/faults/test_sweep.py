"""A tick of the sweep is bounded: page after page while there is time, and the rest is the next tick's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partialmethod
from itertools import count
from typing import Any

import pytest

from tests import courier
from tests.faults.conftest import MakeRows
from tests.integration.test_breaker import hold_rows, pause
from tests.system import SECRET, System
from webhooks import deliver, parts, sweep
from webhooks.celery.app import DELIVERIES, SLOW
from webhooks.gate.gate import Gate
from webhooks.gate.values import MayProbe, MayRelease, Offer
from webhooks.ledger.backlog import Backlog, Due
from webhooks.model import Changes, Message
from webhooks.observing import facts
from webhooks.publishing import Publisher
from webhooks.sweep import Sighting, Sweep, _by_wait

_HELD_AGAIN = "UPDATE deliveries SET state = 'held', held_for = 'breaker', sweep_at = NULL, queued_at = NULL"
EVENT = {"type": "kyc.status_changed", "merchant_id": "acme"}


def holding(system: System, *merchant_ids: str, each: int = 1) -> None:
    """Have merchants hold deliveries that may go."""
    for merchant_id in merchant_ids:
        parts.endpoints().set(merchant_id, Changes(url="https://acme.example/", secret=SECRET))
        hold_rows(system, merchant_id, each)


def with_clock(clock: Callable[[], float]) -> Sweep:
    """Return a sweep that goes by a clock, and remembers nothing of earlier ticks."""
    return replace(parts.sweeper(), clock=clock)


def no_time() -> Sweep:
    """Return a sweep for which the time is over with the first page of each step."""
    seconds = count(step=parts.sweeper().interval.total_seconds())
    return with_clock(lambda: next(seconds))


def all_time() -> Sweep:
    """Return a sweep for which no time passes."""
    return with_clock(lambda: 0.0)


def queued(system: System) -> list[str]:
    """Take what is in the queue; returns whose it is, in its order."""
    return [message.merchant_id for message in iter(lambda: courier.take(system.redis()), None)]


@pytest.fixture
def pages_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small pages of endpoints."""
    monkeypatch.setattr(Backlog, "held_endpoints", partialmethod(Backlog.held_endpoints, most=2))


@pytest.mark.usefixtures("pages_of_two")
@pytest.mark.parametrize("number", [3, 4])
def test_a_tick_with_time_gets_to_all(system: System, number: int) -> None:
    """Page after page, also where the last one is full."""
    names = [f"m{each}" for each in range(number)]
    holding(system, *names)
    assert all_time().tick().released == number
    assert queued(system) == names


@pytest.mark.usefixtures("pages_of_two")
def test_a_tick_without_time_leaves_the_rest_to_the_next(system: System) -> None:
    """Whichever process does that one goes on where this has stopped; after the last page comes the first again."""
    holding(system, *(f"m{each}" for each in range(5)), each=50)
    for names in ({"m0", "m1"}, {"m2", "m3"}, {"m4"}, {"m0", "m1"}):
        system.redis().flushdb()
        assert no_time().tick().released
        assert set(queued(system)) == names


@pytest.mark.usefixtures("pages_of_two")
def test_a_tick_goes_on_where_nobody_holds_anything_any_more(system: System) -> None:
    """It begins with the first endpoint at the next one."""
    holding(system, "m0", "m1", "m2")
    assert no_time().tick().released == 2
    system.sql("DELETE FROM deliveries WHERE endpoint_id = 'm2'")
    system.sql(_HELD_AGAIN)
    assert no_time().tick().released == 0
    assert no_time().tick().released


@pytest.mark.usefixtures("pages_of_two")
def test_endpoints_whose_deliveries_stay_are_passed_over(system: System) -> None:
    """A page of merchants without an address or paused by hand is no end."""
    holding(system, "m4", "m5")
    for name in ("m0", "m1", "m2", "m3"):
        hold_rows(system, name, 1)
    assert all_time().tick().released == 2


def asked_of(system: System, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note what ledger and gate are asked, one entry for a round trip."""
    asked: list[str] = []
    run, together = parts.database().rows, Gate._pipeline

    def rows(statement: Any, *args: Any, **options: Any) -> Any:
        asked.append(str(statement).split(maxsplit=1)[0])
        return run(statement, *args, **options)

    def pipeline(self: Gate, operation: str, *args: Any, **options: Any) -> Any:
        asked.append(operation)
        return together(self, operation, *args, **options)

    monkeypatch.setattr(parts.database(), "rows", rows)
    monkeypatch.setattr(Gate, "_pipeline", pipeline)
    return asked


@pytest.mark.parametrize("number", [1, 30])
def test_a_page_is_let_go_in_as_many_round_trips_as_one_endpoint(
    system: System, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """One statement takes all that is released and one all probes; the gate is asked once, and told once."""
    system.set(breaker_pause=0.001)
    holding(system, *(f"release{each}" for each in range(number)))
    holding(system, *(f"probe{each}" for each in range(number)))
    for each in range(number):
        pause(parts.gate(), f"probe{each}")
    all_time().tick()  # the scripts are known to the server now
    system.sql(_HELD_AGAIN)
    parts.gate()._redis.flushdb()
    for each in range(number):
        pause(parts.gate(), f"probe{each}")
    asked = asked_of(system, monkeypatch)
    swept = all_time().tick()
    assert (swept.probes, swept.released) == (number, number)
    assert asked == ["INSERT", "UPDATE", "UPDATE", "WITH", "offer", "UPDATE", "UPDATE", "drained", "UPDATE"]


def test_what_is_due_goes_page_by_page(system: System, make_rows: MakeRows, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as there is time for, and no more than the queue has room for; what is held has its first page."""
    monkeypatch.setattr(sweep, "_PAGE", 10)
    system.set(max_queued=40)
    make_rows(65)
    holding(system, "held")
    first = no_time().tick()
    assert (first.published, first.released) == (10, 1)
    assert all_time().tick().published == 29
    assert len(courier.waiting(system.redis())) == 40


def test_a_row_that_the_ledger_refuses_stops_no_other_endpoint(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found among those of its page, and the others go."""
    told: list[facts.Fact] = []
    monkeypatch.setattr(parts.observers(), "tell", told.append)
    names = [f"m{each}" for each in range(7)]
    holding(system, *names)
    system.sql("ALTER TABLE deliveries ADD CHECK (merchant_id <> 'm4' OR state = 'held') NOT VALID")
    assert all_time().tick().released == 6
    assert sorted(queued(system)) == [name for name in names if name != "m4"]
    (put_off,) = [fact for fact in told if isinstance(fact, facts.ReleasePutOff)]
    assert (put_off.endpoint_id, put_off.others) == ("m4", 0)


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    """What is published, in place of publishing."""
    published: list[Message] = []

    def publish_all(_self: Publisher, messages: Sequence[Message], _wait: timedelta = timedelta()) -> int:
        published.extend(messages)
        return len(messages)

    monkeypatch.setattr(Publisher, "publish_all", publish_all)
    return published


@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize("make", [lambda slow: MayProbe("s0", slow), lambda slow: MayRelease(("s0", "s1"), slow)])
def test_what_is_released_of_a_slow_endpoint_goes_to_its_queue(
    system: System, published: list[Message], make: Callable[[bool], Offer], slow: bool
) -> None:
    """As the gate says, the oldest first; first tries of others go before all of it."""
    holding(system, "m0", each=3)
    offer = make(slow)
    parts.release().all_of({"m0": offer})
    oldest = ["m0-row-3", "m0-row-2"][: len(published)]
    assert [(each.id, each.slot) for each in published] == list(zip(oldest, ("s0", "s1"), strict=False))
    assert {(each.slow, each.may_wait) for each in published} == {(slow, True)}
    parts.release().next_of("m0", ("s2",), slow=slow)
    assert (published[-1].slot, published[-1].slow, published[-1].may_wait) == ("s2", slow, True)


def test_first_tries_go_before_what_the_sweep_publishes(
    system: System, published: list[Message], make_rows: MakeRows
) -> None:
    """What was lost or was far has waited before."""
    make_rows(3)
    parts.sweeper().tick()
    assert [each.may_wait for each in published] == [True] * 3


def test_what_waits_in_the_queue_of_the_slow_is_not_published_again(system: System) -> None:
    """It has left the other one, where only later ones wait; the moment at which it was first published counts (I7)."""
    redis = system.redis()
    deliver.delay({**EVENT, "id": "moved"})
    redis.lmove(DELIVERIES, SLOW, "RIGHT", "LEFT")
    deliver.delay({**EVENT, "id": "later"})
    for _ in range(2):
        system.sql("UPDATE deliveries SET sweep_at = now() WHERE state = 'pending'")
        assert parts.sweeper().tick().published == 0
    redis.delete(SLOW)
    system.sql("UPDATE deliveries SET sweep_at = now() WHERE state = 'pending'")
    assert parts.sweeper().tick().published == 1


def test_only_the_quick_queue_is_kept_short(system: System, make_rows: MakeRows) -> None:
    """What waits for the slow is bounded by their places, and leaves the others theirs."""
    system.set(max_queued=5)
    redis = system.redis()
    redis.lpush(SLOW, *["{}"] * 20)
    make_rows(9)
    assert parts.sweeper().tick().published == 5


@pytest.mark.parametrize(
    ("one", "other", "both"), [(None, None, None), (1, None, 1), (None, 2, 2), (1, 2, 1), (2, 1, 1)]
)
def test_two_queues_are_seen_as_one(one: int | None, other: int | None, both: int | None) -> None:
    """With the depth of the first, and what has waited longest in either."""

    def sighting(depth: int, second: int | None) -> Sighting:
        return Sighting(depth, datetime(2026, 1, 31, 0, 0, second, tzinfo=UTC) if second else None)

    assert sighting(3, one).beside(sighting(4, other)) == sighting(3, both)


def test_what_has_about_as_long_to_wait_is_published_together() -> None:
    """None earlier than it is due."""
    message = a_message()
    waits = (0.0, 0.001, 0.1, 0.101, 0.0)
    together = _by_wait(Due(message, timedelta(seconds=wait)) for wait in waits)
    assert {wait.total_seconds(): len(some) for wait, some in together.items()} == {0: 2, 0.1: 2, 0.2: 1}


def a_message() -> Message:
    """Return any message."""
    return Message("evt-1", "acme", "kyc.status_changed", 0, datetime(2026, 1, 31, tzinfo=UTC))
