"""What the story relies on in a gate; the whole of it is compared with its model in `tests/gate`."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.contracts.benches import GateBench, admitted, attempts, widen
from webhooks.gate.values import Admitted, Busy, Held, MayProbe, MayRelease, Report, Slow, Wait
from webhooks.model import HeldFor, Limits
from webhooks.policy.breaker import BreakerRules, Effect

RULES = BreakerRules()
INSTANT = timedelta(microseconds=1)
HELD = Held(HeldFor.BREAKER)
MOMENT = timedelta(milliseconds=1)
QUICK = timedelta(milliseconds=10)
TIMEOUT = timedelta(seconds=10)


def _places(bench: GateBench, endpoint_id: str) -> int:
    """Ask for places until there is none."""
    number = 0
    while isinstance(bench.gate.admit(endpoint_id, f"one-{number}", slow=True), Admitted):
        bench.advance(INSTANT)
        number += 1
    return number


def test_a_delivery_is_admitted_once_at_a_time(gate_bench: GateBench) -> None:
    """Until it is reported; another one of the endpoint, and the same one of another, may go meanwhile (I3)."""
    first = admitted(gate_bench, "one")
    assert (first.probe, first.token is not None) == (False, True)
    assert gate_bench.gate.admit("shop", "one") == Busy()
    admitted(gate_bench, "two")
    admitted(gate_bench, "one", "other")
    assert gate_bench.gate.report("shop", first, Effect.SUCCESS) == Report()
    assert admitted(gate_bench, "one").token != first.token


def test_a_lease_that_ran_out_is_over(gate_bench: GateBench) -> None:
    """The delivery may go again, and what its first attempt reports moves nothing."""
    first = admitted(gate_bench, "one")
    gate_bench.advance(RULES.lease)
    second = admitted(gate_bench, "one")
    assert gate_bench.gate.report("shop", first, Effect.FAILURE) == Report()
    assert gate_bench.gate.admit("shop", "one") == Busy()
    gate_bench.gate.report("shop", second, Effect.NOTHING)
    admitted(gate_bench, "one")


def test_a_full_lane_holds_until_its_backlog_is_gone(gate_bench: GateBench) -> None:
    """Those who were held go first, with a slot each."""
    widen(gate_bench)
    leases = [admitted(gate_bench, f"one-{number}") for number in range(RULES.lane)]
    assert gate_bench.gate.admit("shop", "more") == Held(HeldFor.LANE)
    admitted(gate_bench, "one", "other")
    slots = gate_bench.gate.report("shop", leases[0], Effect.SUCCESS).slots
    assert len(slots) == 1
    assert gate_bench.gate.admit("shop", "fresh") == Held(HeldFor.LANE)
    assert not admitted(gate_bench, "more", slot=slots[0]).probe


def test_an_endpoint_may_have_a_lane_of_its_own(gate_bench: GateBench) -> None:
    """Two in flight and no third; whoever says nothing of a lane has the usual one."""
    widen(gate_bench, "other")
    for number in range(2):
        assert isinstance(gate_bench.gate.admit("shop", f"one-{number}", None, Limits(2)), Admitted)
        admitted(gate_bench, f"one-{number}", "other")
    assert gate_bench.gate.admit("shop", "third", None, Limits(2)) == Held(HeldFor.LANE)
    admitted(gate_bench, "third", "other")


@pytest.mark.parametrize("effect", [Effect.SUCCESS, Effect.THROTTLED, Effect.NOTHING])
def test_only_failures_open_a_breaker(gate_bench: GateBench, effect: Effect) -> None:
    """An answer never does, and what was not sent counts nowhere."""
    assert attempts(gate_bench, effect, 20) == [Report()] * 20
    admitted(gate_bench, "fresh")


@pytest.mark.parametrize(
    ("effect", "opens"), [(Effect.SUCCESS, False), (Effect.THROTTLED, False), (Effect.NOTHING, True)]
)
def test_answers_weigh_against_failures(gate_bench: GateBench, effect: Effect, opens: bool) -> None:
    """Five failures among seven attempts are too few; what was not sent is none."""
    attempts(gate_bench, effect, 2)
    assert attempts(gate_bench, Effect.FAILURE, 5)[-1].opened is opens


def test_five_failures_open_it_and_it_is_said_once(gate_bench: GateBench) -> None:
    """By the report that did it; everything of the endpoint is held then, and nothing of others."""
    assert [report.opened for report in attempts(gate_bench, Effect.FAILURE, 5)] == [False] * 4 + [True]
    assert gate_bench.gate.admit("shop", "fresh") == HELD
    assert gate_bench.gate.offer(["shop"]) == {"shop": Wait()}
    admitted(gate_bench, "fresh", "other")


def test_after_the_pause_one_probes(gate_bench: GateBench) -> None:
    """Neither a moment earlier, nor a second one beside it (I5)."""
    attempts(gate_bench, Effect.FAILURE, 5)
    gate_bench.advance(RULES.pause - timedelta(milliseconds=1))
    assert gate_bench.gate.admit("shop", "fresh") == HELD
    gate_bench.advance(timedelta(milliseconds=1))
    assert admitted(gate_bench, "probe").probe
    assert gate_bench.gate.admit("shop", "second") == HELD


@pytest.mark.parametrize(
    ("effect", "closes", "slots", "then"),
    [
        (Effect.SUCCESS, True, 1, Admitted),
        (Effect.THROTTLED, True, 0, Held(HeldFor.LANE)),
        (Effect.FAILURE, False, 0, HELD),
    ],
)
def test_a_probe_decides(gate_bench: GateBench, effect: Effect, closes: bool, slots: int, then: object) -> None:
    """Answered, it closes the breaker, and a success brings the slot of the next; failed, the pause begins anew."""
    attempts(gate_bench, Effect.FAILURE, 5)
    gate_bench.advance(RULES.pause)
    report = gate_bench.gate.report("shop", admitted(gate_bench, "probe"), effect)
    assert (report.opened, report.closed, len(report.slots)) == (False, closes, slots)
    gate_bench.advance(INSTANT)
    answer = gate_bench.gate.admit("shop", "held", next(iter(report.slots), None))
    assert then in {type(answer), answer}


def test_a_probe_that_was_not_sent_decides_nothing(gate_bench: GateBench) -> None:
    """The next one takes its place at once."""
    attempts(gate_bench, Effect.FAILURE, 5)
    gate_bench.advance(RULES.pause)
    assert gate_bench.gate.report("shop", admitted(gate_bench, "probe"), Effect.NOTHING) == Report()
    assert admitted(gate_bench, "next").probe


def test_the_offered_probe_passes_by_its_slot(gate_bench: GateBench) -> None:
    """Whoever comes without is held meanwhile."""
    attempts(gate_bench, Effect.FAILURE, 5)
    gate_bench.advance(RULES.pause)
    offer = gate_bench.gate.offer(["shop"])["shop"]
    assert isinstance(offer, MayProbe)
    assert gate_bench.gate.offer(["shop"]) == {"shop": Wait()}
    assert gate_bench.gate.admit("shop", "fresh") == HELD
    assert admitted(gate_bench, "held", slot=offer.slot).probe


def test_what_is_offered_passes_by_its_slot(gate_bench: GateBench) -> None:
    """A working endpoint's backlog goes as its lane has room, and fresh ones wait behind it."""
    widen(gate_bench)
    offer = gate_bench.gate.offer(["shop"])["shop"]
    assert isinstance(offer, MayRelease)
    assert len(offer.slots) == RULES.lane
    assert gate_bench.gate.admit("shop", "fresh") == Held(HeldFor.LANE)
    assert not admitted(gate_bench, "held", slot=offer.slots[0]).probe


def test_who_has_not_answered_lately_has_few_places(gate_bench: GateBench) -> None:
    """Each answer adds one to them, up to the lane; what is silent loses them again, and what fails quickly none."""
    assert _places(gate_bench, "first") == RULES.narrow
    attempts(gate_bench, Effect.SUCCESS, 3, "second", QUICK)
    attempts(gate_bench, Effect.FAILURE, 1, "second", QUICK)
    assert _places(gate_bench, "second") == RULES.narrow + 3
    attempts(gate_bench, Effect.THROTTLED, 3, "third", QUICK)
    attempts(gate_bench, Effect.FAILURE, 1, "third", RULES.slow_after)
    assert _places(gate_bench, "third") == RULES.narrow


def test_a_slow_endpoint_is_served_in_the_queue_of_the_slow(gate_bench: GateBench) -> None:
    """There the slot that the quick queue's message got is its place; what is released goes there at once."""
    (report,) = attempts(gate_bench, Effect.FAILURE, 1, took=TIMEOUT)
    assert report.slow
    gate_bench.advance(INSTANT)
    answer = gate_bench.gate.admit("shop", "one")
    assert isinstance(answer, Slow)
    gate_bench.advance(INSTANT)
    assert isinstance(gate_bench.gate.admit("shop", "two"), Slow)
    assert gate_bench.gate.admit("shop", "three") == Held(HeldFor.LANE)
    gate_bench.advance(INSTANT)
    assert isinstance(gate_bench.gate.admit("shop", "one", answer.slot, slow=True), Admitted)
    gate_bench.advance(RULES.slot_lease)
    offer = gate_bench.gate.offer(["shop"])["shop"]
    assert isinstance(offer, MayRelease)
    assert offer.slow


def test_an_endpoint_is_slow_as_soon_as_it_is_silent(gate_bench: GateBench) -> None:
    """A second after the oldest attempt that is out began, and no more once that is answered."""
    first = admitted(gate_bench, "one")
    gate_bench.advance(RULES.slow_after - MOMENT)
    second = admitted(gate_bench, "two")
    gate_bench.gate.report("shop", second, Effect.SUCCESS, took=QUICK)
    gate_bench.advance(MOMENT)
    assert isinstance(gate_bench.gate.admit("shop", "three"), Slow)
    assert not gate_bench.gate.report("shop", first, Effect.SUCCESS, took=RULES.slow_after).slow


def test_the_probe_of_a_slow_endpoint_goes_to_the_queue_of_the_slow(gate_bench: GateBench) -> None:
    """Whether it is offered or a fresh one: it carries a slot then, and is the probe there."""
    attempts(gate_bench, Effect.FAILURE, 4)
    attempts(gate_bench, Effect.FAILURE, 1, took=TIMEOUT)
    gate_bench.advance(RULES.pause)
    offer = gate_bench.gate.offer(["shop"])["shop"]
    assert isinstance(offer, MayProbe)
    assert offer.slow
    gate_bench.advance(RULES.slot_lease)
    fresh = gate_bench.gate.admit("shop", "fresh")
    assert isinstance(fresh, Slow)
    assert gate_bench.gate.admit("shop", "second") == HELD
    answer = gate_bench.gate.admit("shop", "fresh", fresh.slot, slow=True)
    assert isinstance(answer, Admitted)
    assert answer.probe


def test_an_endpoint_gets_so_many_attempts_a_second(gate_bench: GateBench) -> None:
    """The others are held, and what the sweep is offered goes by the same rate."""
    twice = Limits(rate=2)
    for number in range(2):
        gate_bench.advance(INSTANT)
        assert isinstance(gate_bench.gate.admit("shop", f"one-{number}", None, twice), Admitted)
    assert gate_bench.gate.admit("shop", "held", None, twice) == Held(HeldFor.RATE)
    gate_bench.advance(timedelta(seconds=0.5))
    assert gate_bench.gate.admit("shop", "fresh", None, twice) == Held(HeldFor.LANE)
    admitted(gate_bench, "held", "other")


def test_a_report_counts_once(gate_bench: GateBench) -> None:
    """However often it is told: four failures told twice open nothing."""
    for number in range(4):
        lease = admitted(gate_bench, f"one-{number}")
        for _ in range(2):
            assert gate_bench.gate.report("shop", lease, Effect.FAILURE) == Report()
    admitted(gate_bench, "fresh")


def test_away_everything_passes_and_nothing_moves(gate_bench: GateBench) -> None:
    """Without a lease, so that the report of it goes nowhere; and so does one of a lease from before."""
    for slow in (False, False, True):
        assert gate_bench.away.admit("shop", "one", slow=slow) == Admitted(None)
    for token in (None, admitted(gate_bench, "one").token):
        assert gate_bench.away.report("shop", Admitted(token), Effect.FAILURE) == Report()
