"""The lane, and how a backlog leaves through it without knocking the merchant over again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.gate.clock import Clock
from tests.gate.endpoint import Endpoint
from tests.gate.script import MERCHANT, admitted, attempts, offered_probe, released
from webhooks.gate.gate import Gate
from webhooks.gate.values import Admitted, Held, Report, Wait
from webhooks.model import HeldFor
from webhooks.policy.breaker import BreakerRules, Effect

_RULES = BreakerRules()
_LANE = _RULES.lane


@pytest.fixture
def gate(wide_gate: Gate) -> Gate:
    """How wide an endpoint is has tests of its own."""
    return wide_gate


def _fill(gate: Gate) -> list[Admitted]:
    return [admitted(gate) for _ in range(_LANE)]


def _close_after_probe(gate: Gate, clock: Clock) -> Report:
    attempts(gate, Effect.FAILURE, _RULES.min_attempts)
    clock.advance(_RULES.pause)
    return gate.report(MERCHANT, admitted(gate, slot=offered_probe(gate)), Effect.SUCCESS)


def _lane_is_shut(gate: Gate) -> bool:
    answer = gate.admit(MERCHANT, "one more")
    return isinstance(answer, Held) and answer.why is HeldFor.LANE


def test_a_full_lane_holds_what_comes_next(gate: Gate) -> None:
    """The 21st waits; and from then on fresh ones too, though a place is free, so that the oldest goes first."""
    in_flight = _fill(gate)
    assert _lane_is_shut(gate)

    gate.report(MERCHANT, in_flight[0], Effect.NOTHING)

    assert _lane_is_shut(gate)
    assert gate.show(MERCHANT).release == _LANE


def test_each_success_lets_the_next_held_delivery_in(gate: Gate) -> None:
    """The report carries the slot, the slot opens the lane, and the lane is never more than full."""
    in_flight = _fill(gate)
    assert _lane_is_shut(gate)

    (slot,) = gate.report(MERCHANT, in_flight[0], Effect.SUCCESS).slots
    assert gate.offer([MERCHANT]) == {MERCHANT: Wait()}
    admitted(gate, slot=slot)

    assert gate.show(MERCHANT).in_flight == _LANE


def test_off_the_beaten_track_a_report_grants_nothing(gate: Gate) -> None:
    """Where nothing is held no slot is made."""
    assert attempts(gate, Effect.SUCCESS, 3) == [Report()] * 3


def test_places_kept_for_released_deliveries_count_as_taken(gate: Gate, clock: Clock) -> None:
    """The sweep grants as many slots as there is room; the rest waits until they are used or have lapsed."""
    in_flight = _fill(gate)
    assert _lane_is_shut(gate)
    for one in in_flight[:5]:
        gate.report(MERCHANT, one, Effect.NOTHING)

    assert len(released(gate)) == 5
    assert gate.offer([MERCHANT]) == {MERCHANT: Wait()}
    clock.advance(_RULES.slot_lease)
    assert len(released(gate)) == _LANE


def test_when_nothing_is_held_any_more_fresh_ones_pass_again(gate: Gate) -> None:
    """The slots that found no delivery are free at once."""
    in_flight = _fill(gate)
    assert _lane_is_shut(gate)
    for one in in_flight:
        gate.report(MERCHANT, one, Effect.NOTHING)

    gate.drained(MERCHANT, released(gate))

    assert not gate.show(MERCHANT).draining
    assert len(_fill(gate)) == _LANE


def test_a_merchant_without_history_is_released_by_the_lane(gate: Gate) -> None:
    """Its held deliveries get a lane full of slots, and until they are gone fresh ones wait."""
    assert len(released(gate)) == _LANE
    assert _lane_is_shut(gate)


def test_after_a_pause_the_release_starts_with_one(gate: Gate, clock: Clock) -> None:
    """The probe's success lets one in, each success two more, until the lane is full."""
    slots = list(_close_after_probe(gate, clock).slots)
    assert len(slots) == 1

    widths = []
    for _ in range(_LANE + 2):
        clock.advance(timedelta(microseconds=1))
        slots += gate.report(MERCHANT, admitted(gate, slot=slots.pop(0)), Effect.SUCCESS).slots
        widths.append(gate.show(MERCHANT).release)
        assert len(slots) == widths[-1]

    assert widths == [*range(2, _LANE + 1), _LANE, _LANE, _LANE]


@pytest.mark.parametrize("effect", [Effect.FAILURE, Effect.THROTTLED])
def test_a_failure_halves_the_release_and_rests_until_the_sweep(effect: Effect, gate: Gate, clock: Clock) -> None:
    """10, 5, 2, 1 and never less; no slot comes with such a report."""
    in_flight = _fill(gate)
    assert _lane_is_shut(gate)
    attempts_before = gate.show(MERCHANT).failures
    widths = [gate.show(MERCHANT).release]
    for one in in_flight[:3]:
        assert gate.report(MERCHANT, one, effect) == Report()
        widths.append(gate.show(MERCHANT).release)
    for one in in_flight[3:8]:
        gate.report(MERCHANT, one, Effect.THROTTLED)

    assert attempts_before == 0
    assert widths == [10, 5, 2, 1]
    assert gate.show(MERCHANT).release == 1


def test_a_lapsed_slot_still_finds_a_place_kept_for_others(gate: Gate, clock: Clock) -> None:
    """In a queue longer than the slots live, the release moves on, and no more are in flight than the window allows."""
    (late,) = _close_after_probe(gate, clock).slots
    clock.advance(_RULES.slot_lease)
    (kept,) = released(gate)

    admitted(gate, slot=late)

    assert gate.show(MERCHANT).slots == 0
    held = gate.admit(MERCHANT, "comes second", kept)
    assert isinstance(held, Held)
    assert held.why is HeldFor.LANE


def test_opening_again_voids_the_slots(gate: Gate, clock: Clock) -> None:
    """A released delivery that arrives while the breaker is open again is held like any other."""
    slots = list(_close_after_probe(gate, clock).slots)
    for _ in range(3):
        slots += gate.report(MERCHANT, admitted(gate, slot=slots.pop(0)), Effect.SUCCESS).slots
    late = [admitted(gate, slot=slot) for slot in slots[:3]]
    for one in late:
        gate.report(MERCHANT, one, Effect.FAILURE)
    while not gate.report(MERCHANT, admitted(gate, slot=released(gate)[0]), Effect.FAILURE).opened:
        pass

    assert gate.show(MERCHANT).slots == 0
    answer = gate.admit(MERCHANT, "released before", slots[-1])
    assert isinstance(answer, Held)
    assert answer.why is HeldFor.BREAKER


@pytest.mark.parametrize(("per_second", "latency_ms"), [(10, 20), (10, 300), (3, 20), (100, 50)])
def test_a_weak_endpoint_gets_its_backlog_without_a_second_pause(
    per_second: int, latency_ms: int, gate: Gate, clock: Clock
) -> None:
    """It answers 503 above what it can take: the release finds its pace, and the breaker stays closed."""
    report = _close_after_probe(gate, clock)
    endpoint = Endpoint(gate, clock, per_second, timedelta(milliseconds=latency_ms))

    took = endpoint.work_off(10 * per_second, report.slots)

    assert endpoint.reopened == 0
    assert took <= timedelta(seconds=25)
    assert endpoint.most_at_once <= _LANE
