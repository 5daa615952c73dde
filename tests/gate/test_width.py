"""How much of its lane an endpoint has, and in which queue: by how it has answered lately."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.gate.clock import Clock
from tests.gate.endpoint import Endpoint
from tests.gate.script import MERCHANT, QUICK, admitted, attempts, offered_probe, released, widen
from webhooks.gate.gate import Gate
from webhooks.gate.values import Admitted, Held, MayProbe, Slow
from webhooks.model import HeldFor
from webhooks.policy.breaker import BreakerRules, Effect

_RULES = BreakerRules()
_NARROW, _LANE, _SLOW = _RULES.narrow, _RULES.lane, _RULES.slow_after
_INSTANT = timedelta(microseconds=1)
_TIMEOUT = timedelta(seconds=10)
_FULL = Held(HeldFor.LANE)


def _start(gate: Gate, clock: Clock, places: int = _LANE) -> list[Admitted]:
    """Take so many places, through whatever queue."""
    leases = []
    for number in range(places):
        clock.advance(_INSTANT)
        answer = gate.admit(MERCHANT, f"one of {places}: {number}", slow=True)
        leases += [answer] if isinstance(answer, Admitted) else []
    return leases


def test_an_answer_speaks_for_an_endpoint_for_a_minute(gate: Gate, clock: Clock) -> None:
    """Then it is as one that nobody has heard of; the next answer adds one to that."""
    widen(gate)
    clock.advance(_RULES.remembered_quick - _INSTANT)
    assert gate.show(MERCHANT).width == _LANE
    clock.advance(_INSTANT)
    assert gate.show(MERCHANT).width == _NARROW
    attempts(gate, Effect.SUCCESS, took=QUICK)
    assert gate.show(MERCHANT).width == _NARROW + 1


def test_a_burst_to_a_quick_endpoint_is_worked_off_by_its_answers(gate: Gate, clock: Clock) -> None:
    """A hundred at once, to one that nobody has heard of: two go, and the last of the rest before the second tick."""
    first, *more = (gate.admit(MERCHANT, f"burst-{number}") for number in range(_NARROW + 1))
    assert isinstance(first, Admitted)
    assert more == [more[0], _FULL]
    assert isinstance(more[0], Admitted)
    slots = gate.report(MERCHANT, first, Effect.SUCCESS, took=QUICK).slots
    slots += gate.report(MERCHANT, more[0], Effect.SUCCESS, took=QUICK).slots
    endpoint = Endpoint(gate, clock, 1000, QUICK)

    took = endpoint.work_off(98, slots)

    assert (endpoint.ticks, endpoint.slow, endpoint.most_at_once) == (1, 0, _LANE)
    assert took <= 15 * QUICK


def test_an_endpoint_that_takes_nine_seconds_keeps_its_lane(gate: Gate, clock: Clock) -> None:
    """In the queue of the slow, where its answers earn it places as quick ones would."""
    attempts(gate, Effect.SUCCESS, took=timedelta(seconds=9))
    endpoint = Endpoint(gate, clock, 1000, timedelta(seconds=9))

    took = endpoint.work_off(100, ())

    assert endpoint.most_at_once == _LANE
    assert endpoint.slow >= 90
    assert took <= timedelta(seconds=9 * (100 / _LANE + 4))


@pytest.mark.parametrize(("per_second", "latency_ms"), [(10, 20), (10, 300), (3, 20), (100, 50)])
def test_a_weak_endpoint_is_not_narrowed_by_what_it_refuses(
    per_second: int, latency_ms: int, gate: Gate, clock: Clock
) -> None:
    """A 503 that comes quickly holds up nobody: it slows the release, and costs no place."""
    widen(gate)
    endpoint = Endpoint(gate, clock, per_second, timedelta(milliseconds=latency_ms))

    took = endpoint.work_off(10 * per_second, ())

    assert took <= timedelta(seconds=25)
    assert (endpoint.slow, gate.show(MERCHANT).width) == (0, _LANE)


def test_who_falls_silent_is_narrow_and_slow_a_second_later(gate: Gate, clock: Clock) -> None:
    """Not a moment earlier; and an answer gives back what was earned."""
    widen(gate)
    first, second = admitted(gate), admitted(gate)
    clock.advance(_SLOW - _INSTANT)
    shown = gate.show(MERCHANT)
    assert (shown.width, shown.slow) == (_LANE, False)

    clock.advance(_INSTANT)
    shown = gate.show(MERCHANT)
    assert (shown.width, shown.slow) == (_NARROW, True)
    assert gate.admit(MERCHANT, "fresh") == _FULL

    gate.report(MERCHANT, first, Effect.SUCCESS, took=_SLOW)
    shown = gate.show(MERCHANT)
    assert (shown.width, shown.slow) == (_LANE, True)  # the second one is out yet
    gate.report(MERCHANT, second, Effect.SUCCESS, took=_SLOW)
    assert not gate.show(MERCHANT).slow


def test_who_answers_others_is_not_narrowed_by_one_that_hangs(gate: Gate, clock: Clock) -> None:
    """The attempts of a worker that was killed hang until their leases end: they cost their own places and no more."""
    widen(gate)
    _start(gate, clock, 3)
    for _ in range(10):
        clock.advance(_SLOW / 2)
        attempts_of_slow = gate.admit(MERCHANT, "another", slow=True)
        assert isinstance(attempts_of_slow, Admitted)
        gate.report(MERCHANT, attempts_of_slow, Effect.SUCCESS, took=QUICK)

    assert gate.show(MERCHANT).slow
    assert len(_start(gate, clock)) == _LANE - 3


def test_a_quick_failure_is_no_silence(gate: Gate, clock: Clock) -> None:
    """Though one hangs, whoever refuses others at once holds up no thread by them; for a second more, each time."""
    widen(gate)
    admitted(gate)
    clock.advance(_SLOW / 2)
    attempts(gate, Effect.FAILURE, took=QUICK)
    clock.advance(_SLOW - _INSTANT)
    assert gate.show(MERCHANT).width == _LANE
    clock.advance(_INSTANT)
    assert gate.show(MERCHANT).width == _NARROW


def test_a_timeout_takes_the_places_away(gate: Gate, clock: Clock) -> None:
    """Whatever was earned before."""
    widen(gate)
    attempts(gate, Effect.FAILURE, took=_TIMEOUT)

    assert len(_start(gate, clock)) == _NARROW


def test_one_timeout_makes_it_slow_and_four_quick_answers_quick(gate: Gate) -> None:
    """The newest answer has a quarter's weight."""
    attempts(gate, Effect.FAILURE, took=_TIMEOUT)
    slow = [gate.show(MERCHANT).slow]
    for number in range(4):
        answer = gate.admit(MERCHANT, f"one-{number}", slow=True)
        assert isinstance(answer, Admitted)
        report = gate.report(MERCHANT, answer, Effect.SUCCESS, took=QUICK)
        assert report.slow is gate.show(MERCHANT).slow
        slow.append(report.slow)

    assert slow == [True, True, True, True, False]
    admitted(gate)


@pytest.mark.parametrize(("effect", "took"), [(Effect.NOTHING, _TIMEOUT), (Effect.FAILURE, None)])
def test_nothing_is_learnt_of_what_was_not_sent(effect: Effect, took: timedelta | None, gate: Gate) -> None:
    """A fault of ours says nothing of an endpoint."""
    widen(gate)
    before = gate.show(MERCHANT)
    attempts(gate, effect, took=took)
    after = gate.show(MERCHANT)

    assert (after.width, after.pace, after.slow) == (before.width, before.pace, before.slow)


def test_a_slot_is_exchanged_for_one_in_the_queue_of_the_slow(gate: Gate, clock: Clock) -> None:
    """Its place stays kept, for as long again: what was released before the endpoint fell silent is not lost."""
    slot, other = released(gate)
    clock.advance(_RULES.slot_lease - timedelta(seconds=12))
    attempts_out = admitted(gate, slot=other)
    clock.advance(_SLOW)
    answer = gate.admit(MERCHANT, "held", slot)

    assert isinstance(answer, Slow)
    assert answer.slot != slot
    assert gate.show(MERCHANT).slots == 1
    gate.report(MERCHANT, attempts_out, Effect.NOTHING)
    clock.advance(_RULES.slot_lease - _INSTANT)
    assert gate.show(MERCHANT).slots == 1
    admitted(gate, "held", answer.slot)
    assert gate.show(MERCHANT).slots == 0


def test_a_late_slot_takes_a_place_that_is_kept_for_others(gate: Gate, clock: Clock) -> None:
    """In a long queue of the slow, where fresh ones have got slots since: whoever comes out of it goes."""
    attempts(gate, Effect.FAILURE, took=_TIMEOUT)
    first = gate.admit(MERCHANT, "first")
    assert isinstance(first, Slow)
    clock.advance(_RULES.slot_lease)
    for number in range(_NARROW):
        assert isinstance(gate.admit(MERCHANT, f"later-{number}"), Slow)
        clock.advance(_INSTANT)

    answer = gate.admit(MERCHANT, "first", first.slot, slow=True)

    assert isinstance(answer, Admitted)
    assert gate.show(MERCHANT).slots == _NARROW - 1


def test_the_offered_probe_of_a_slow_endpoint_is_offered_again_elsewhere(gate: Gate, clock: Clock) -> None:
    """Its message may come through the quick queue first; it probes once it comes through the other."""
    attempts(gate, Effect.FAILURE, 5)
    clock.advance(_RULES.pause)
    gate.report(MERCHANT, admitted(gate), Effect.FAILURE, took=_TIMEOUT)
    clock.advance(2 * _RULES.pause)
    offer = gate.offer([MERCHANT])[MERCHANT]
    assert isinstance(offer, MayProbe)
    assert offer.slow
    clock.advance(_INSTANT)
    elsewhere = gate.admit(MERCHANT, "held", offer.slot)

    assert isinstance(elsewhere, Slow)
    assert gate.admit(MERCHANT, "fresh", slow=True) == Held(HeldFor.BREAKER)
    probe = gate.admit(MERCHANT, "held", elsewhere.slot, slow=True)
    assert isinstance(probe, Admitted)
    assert probe.probe
    assert gate.report(MERCHANT, probe, Effect.SUCCESS, took=_TIMEOUT).slow


def test_a_quick_endpoints_probe_is_not_slow(gate: Gate, clock: Clock) -> None:
    """It was refused at once."""
    attempts(gate, Effect.FAILURE, 5, took=QUICK)
    clock.advance(_RULES.pause)

    assert admitted(gate, slot=offered_probe(gate)).probe


def test_a_reset_forgets_the_breaker_and_not_how_it_answers(gate: Gate) -> None:
    """Who has timed out gets few places, and in the queue of the slow, whatever an operator believes."""
    attempts(gate, Effect.FAILURE, took=_TIMEOUT)
    gate.reset(MERCHANT)

    assert isinstance(gate.admit(MERCHANT, "one"), Slow)
