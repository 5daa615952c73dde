"""The breaker's rules, with the product's numbers, under a clock that the test sets."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.gate.clock import Clock
from tests.gate.script import MERCHANT, admitted, attempts, offered_probe
from webhooks.gate.gate import Gate
from webhooks.gate.values import Admitted, Breaker, Busy, Held, Report, Wait
from webhooks.model import HeldFor, Outcome
from webhooks.policy.breaker import BreakerRules, BreakerState, Effect, effect_of

_PAUSE = BreakerRules().pause
_INSTANT = timedelta(microseconds=1)
_HELD = HeldFor.BREAKER


@pytest.mark.parametrize(
    ("successes", "failures", "opens"),
    [
        (0, 4, False),  # fewer than five attempts
        (0, 5, True),
        (1, 4, True),  # exactly 80 %
        (2, 7, False),
        (2, 8, True),
        (21, 79, False),
        (20, 80, True),
        (100, 0, False),
    ],
)
def test_opens_at_five_attempts_of_which_four_fifths_failed(
    successes: int, failures: int, opens: bool, gate: Gate
) -> None:
    """79 % of failures leave it closed and 80 % open it, from the fifth attempt on."""
    attempts(gate, Effect.SUCCESS, successes)
    reports = attempts(gate, Effect.FAILURE, failures)

    assert [report.opened for report in reports] == [False] * (failures - 1) + [opens] * bool(failures)
    assert gate.show(MERCHANT).state is (BreakerState.PAUSED if opens else BreakerState.WORKING)


def test_one_delivery_that_fails_five_times_opens_it(gate: Gate) -> None:
    """Every attempt counts, not every delivery once."""
    reports = [gate.report(MERCHANT, admitted(gate, "the same"), Effect.FAILURE) for _ in range(5)]

    assert reports[-1] == Report(opened=True)


@pytest.mark.parametrize("effect", [Effect.SUCCESS, Effect.THROTTLED, Effect.NOTHING])
def test_answers_and_faults_of_ours_never_open_it(effect: Effect, gate: Gate) -> None:
    """A hundred attempts that were answered, 4xx and 429 included, or never sent, leave it closed."""
    assert not any(report.opened for report in attempts(gate, effect, 100))


def test_faults_of_ours_neither_count_nor_reset_the_count(gate: Gate) -> None:
    """Four failures, a local fault, one more failure: it opens on the fifth failure of the merchant's."""
    attempts(gate, Effect.FAILURE, 4)
    attempts(gate, Effect.NOTHING)

    assert gate.show(MERCHANT).failures == 4
    assert attempts(gate, Effect.FAILURE)[0].opened


@pytest.mark.parametrize(
    ("outcome", "effect"),
    [
        (Outcome.DELIVERED, Effect.SUCCESS),
        (Outcome.REJECTED, Effect.SUCCESS),
        (Outcome.MISDIRECTED, Effect.SUCCESS),
        (Outcome.THROTTLED, Effect.THROTTLED),
        (Outcome.UNAVAILABLE, Effect.FAILURE),
        (Outcome.UNSENDABLE, Effect.NOTHING),
        (Outcome.UNKNOWN, Effect.NOTHING),
    ],
)
def test_only_unavailability_counts_against_a_merchant(outcome: Outcome, effect: Effect) -> None:
    """What each outcome does to the breaker; the table of the rules, part 2."""
    assert effect_of(outcome) is effect


def test_the_window_slides(gate: Gate, clock: Clock) -> None:
    """Failures older than five minutes do not count, and those of 4 min 55 s ago do."""
    attempts(gate, Effect.FAILURE, 4)
    clock.advance(timedelta(minutes=4, seconds=54))
    assert gate.show(MERCHANT).failures == 4

    clock.advance(timedelta(seconds=6))
    assert gate.show(MERCHANT).failures == 0
    assert not attempts(gate, Effect.FAILURE)[0].opened


def test_while_it_is_open_everything_is_held(gate: Gate, clock: Clock) -> None:
    """Fresh deliveries and known ones are told to wait for the rest of the pause, and the sweep has nothing to do."""
    attempts(gate, Effect.FAILURE, 5)
    clock.advance(timedelta(minutes=1))

    held = gate.admit(MERCHANT, "fresh")
    assert isinstance(held, Held)
    assert (held.why, held.until) == (_HELD, clock.now + timedelta(minutes=4))
    assert gate.offer([MERCHANT]) == {MERCHANT: Wait()}
    assert gate.show(MERCHANT) == Breaker(
        MERCHANT,
        BreakerState.PAUSED,
        since=clock.now - timedelta(minutes=1),
        pause=_PAUSE,
        until=clock.now + timedelta(minutes=4),
        failures=5,
    )


def test_pauses_double_with_each_failed_probe_up_to_half_an_hour(gate: Gate, clock: Clock) -> None:
    """5, 10, 20, 30, 30 minutes, one probe after each, and neither a moment earlier."""
    attempts(gate, Effect.FAILURE, 5)
    pauses = []
    for _ in range(5):
        pause = gate.show(MERCHANT).pause
        assert pause
        pauses.append(pause / timedelta(minutes=1))
        clock.advance(pause - _INSTANT)
        assert gate.admit(MERCHANT, "too early") == Held(_HELD)
        clock.advance(_INSTANT)
        probe = admitted(gate)
        assert probe.probe
        assert isinstance(gate.admit(MERCHANT, "second"), Held)
        gate.report(MERCHANT, probe, Effect.FAILURE)

    assert pauses == [5, 10, 20, 30, 30]


@pytest.mark.parametrize("effect", [Effect.SUCCESS, Effect.THROTTLED])
def test_an_answered_probe_closes_it_and_one_failure_leaves_it_closed(effect: Effect, gate: Gate, clock: Clock) -> None:
    """The counters are cleared: what failed before it closed is forgotten."""
    attempts(gate, Effect.FAILURE, 5)
    clock.advance(_PAUSE)

    report = gate.report(MERCHANT, admitted(gate), effect)
    assert report.closed
    gate.drained(MERCHANT, report.slots)
    clock.advance(_INSTANT)
    assert not attempts(gate, Effect.FAILURE)[0].opened
    assert gate.show(MERCHANT) == Breaker(MERCHANT, since=clock.now - _INSTANT, failures=1)


def test_the_first_pause_after_it_closed_is_the_short_one_again(gate: Gate, clock: Clock) -> None:
    """A closed breaker remembers nothing of the pauses before."""
    attempts(gate, Effect.FAILURE, 5)
    for effect in (Effect.FAILURE, Effect.SUCCESS):
        clock.advance(2 * _PAUSE)
        gate.report(MERCHANT, admitted(gate), effect)
    gate.drained(MERCHANT)
    attempts(gate, Effect.FAILURE, 5)

    assert gate.show(MERCHANT).pause == _PAUSE


def test_a_probe_that_was_never_sent_decides_nothing(gate: Gate, clock: Clock) -> None:
    """The next delivery takes its place at once, and the pause is not doubled."""
    attempts(gate, Effect.FAILURE, 5)
    clock.advance(_PAUSE)
    gate.report(MERCHANT, admitted(gate), Effect.NOTHING)

    assert gate.show(MERCHANT).pause == _PAUSE
    assert admitted(gate).probe


def test_results_of_attempts_from_before_it_opened_change_nothing(wide_gate: Gate, clock: Clock) -> None:
    """Whether they come while it is paused, probing or working again."""
    gate = wide_gate
    late = [admitted(gate) for _ in range(3)]
    attempts(gate, Effect.FAILURE, 5)

    gate.report(MERCHANT, late[0], Effect.SUCCESS)
    assert gate.show(MERCHANT).state is BreakerState.PAUSED

    clock.advance(_INSTANT)
    gate.reset(MERCHANT)
    gate.report(MERCHANT, late[1], Effect.FAILURE)
    gate.report(MERCHANT, late[2], Effect.SUCCESS)
    assert gate.show(MERCHANT) == Breaker(MERCHANT, since=clock.now, width=BreakerRules().lane)


def test_a_probe_whose_owner_is_silent_is_given_up(gate: Gate, clock: Clock) -> None:
    """Another takes over when the lease is over, not before; and the late answer of the first moves nothing."""
    attempts(gate, Effect.FAILURE, 5)
    clock.advance(_PAUSE)
    first = admitted(gate, "first")
    assert gate.show(MERCHANT).probe == "first"
    clock.advance(BreakerRules().lease - _INSTANT)
    assert gate.offer([MERCHANT]) == {MERCHANT: Wait()}
    held = gate.admit(MERCHANT, "second")
    assert isinstance(held, Held)
    assert (held.why, held.until) == (_HELD, None)  # nobody knows until when: the probe decides

    clock.advance(_INSTANT)
    second = admitted(gate, "second")

    assert second.probe
    assert gate.report(MERCHANT, first, Effect.SUCCESS) == Report()
    assert gate.show(MERCHANT).state is BreakerState.PROBING
    assert gate.report(MERCHANT, second, Effect.SUCCESS).closed


def test_the_offered_probe_is_whoever_carries_its_slot(gate: Gate, clock: Clock) -> None:
    """A fresh event that comes in between is held; the slot's bearer probes, under a lease of its own."""
    attempts(gate, Effect.FAILURE, 5)
    clock.advance(_PAUSE)
    slot = offered_probe(gate)

    assert gate.offer([MERCHANT]) == {MERCHANT: Wait()}
    assert gate.admit(MERCHANT, "fresh") == Held(_HELD)
    assert gate.show(MERCHANT).probe is None
    assert admitted(gate, "held", slot).probe
    assert gate.show(MERCHANT).probe == "held"
    clock.advance(BreakerRules().lease - _INSTANT)
    assert gate.admit(MERCHANT, "fresh") == Held(_HELD)
    clock.advance(_INSTANT)
    assert admitted(gate, "fresh").probe


def test_an_offer_that_nobody_takes_lapses(gate: Gate, clock: Clock) -> None:
    """The sweep offers another probe then; a late bearer of the first slot takes the new offer, and no second one."""
    attempts(gate, Effect.FAILURE, 5)
    clock.advance(_PAUSE)
    first = offered_probe(gate)
    clock.advance(BreakerRules().slot_lease)
    second = offered_probe(gate)

    assert first != second
    assert admitted(gate, "late", first).probe
    assert isinstance(gate.admit(MERCHANT, "in time", second), Held)


def test_an_offer_that_finds_no_held_delivery_is_given_back(gate: Gate, clock: Clock) -> None:
    """The next fresh event probes at once."""
    attempts(gate, Effect.FAILURE, 5)
    clock.advance(_PAUSE)
    gate.drained(MERCHANT, [offered_probe(gate)])

    assert admitted(gate).probe


def test_a_reset_starts_anew_and_keeps_what_is_in_flight(gate: Gate, clock: Clock) -> None:
    """It works again at once; a delivery in flight stays leased, and its outcome counts nowhere."""
    in_flight = admitted(gate, "in flight")
    attempts(gate, Effect.FAILURE, 5)
    clock.advance(_INSTANT)
    gate.reset(MERCHANT)

    assert gate.show(MERCHANT) == Breaker(MERCHANT, since=clock.now, in_flight=1)
    assert gate.admit(MERCHANT, "in flight") == Busy()
    gate.report(MERCHANT, in_flight, Effect.FAILURE)
    assert gate.show(MERCHANT) == Breaker(MERCHANT, since=clock.now)


def test_a_second_report_of_the_same_attempt_counts_nothing(gate: Gate) -> None:
    """Neither does one whose lease ran out, nor one that was never admitted by this gate."""
    once = admitted(gate)
    for _ in range(5):
        gate.report(MERCHANT, once, Effect.FAILURE)
    gate.report(MERCHANT, Admitted(None), Effect.FAILURE)

    assert gate.show(MERCHANT).failures == 1


def test_a_delivery_is_in_flight_once(gate: Gate, clock: Clock) -> None:
    """While its lease lives it is busy (I3); a dead worker's delivery is free again when the lease is over."""
    first = admitted(gate, "one")
    assert gate.admit(MERCHANT, "one") == Busy()

    clock.advance(BreakerRules().lease)
    second = admitted(gate, "one")

    assert second != first
    gate.report(MERCHANT, first, Effect.FAILURE)
    assert gate.show(MERCHANT) == Breaker(MERCHANT, in_flight=1)


def test_a_clock_that_steps_back_brings_no_old_epoch_back(gate: Gate, clock: Clock) -> None:
    """After a failover to a server whose clock is behind, late results still belong to an epoch that is over."""
    gate.reset(MERCHANT)
    old = admitted(gate)
    clock.advance(-_INSTANT)
    gate.reset(MERCHANT)
    clock.advance(_INSTANT)
    gate.reset(MERCHANT)
    gate.report(MERCHANT, old, Effect.FAILURE)

    assert gate.show(MERCHANT).failures == 0


def test_merchants_do_not_touch_each_other(gate: Gate) -> None:
    """One is paused, the other works; both are asked in one call, and only one is worth listing."""
    attempts(gate, Effect.FAILURE, 5, merchant="dead")
    attempts(gate, Effect.SUCCESS, 5, merchant="alive")

    assert list(gate.offer(["dead", "alive"])) == ["dead", "alive"]
    gate.drained("alive")
    assert [breaker.endpoint_id for breaker in gate.list()] == ["dead"]
