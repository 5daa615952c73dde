"""So many attempts a second: a bucket of tokens, in the same scripts."""

from __future__ import annotations

from datetime import timedelta

import pytest
import redis

from tests.gate.clock import Clock
from tests.gate.script import MERCHANT, QUICK, attempts, widen
from webhooks.gate.gate import Gate
from webhooks.gate.keys import keys_of
from webhooks.gate.values import Admitted, Held, MayRelease
from webhooks.model import HeldFor, Limits
from webhooks.policy.breaker import BreakerRules, Effect

_RULES = BreakerRules()
_INSTANT = timedelta(microseconds=1)
_RATE = Held(HeldFor.RATE)


def _offered(gate: Gate, limits: Limits) -> tuple[str, ...]:
    offer = gate.offer([MERCHANT], {MERCHANT: limits})[MERCHANT]
    return offer.slots if isinstance(offer, MayRelease) else ()


@pytest.mark.parametrize(
    ("rate", "burst", "token"), [(0.1, 1, 10), (0.5, 1, 2), (1, 1, 1), (2.5, 2, 0.4), (10, 10, 0.1), (1e9, 1e6, 1e-6)]
)
def test_a_rate_is_a_burst_and_a_token_at_a_time(rate: float, burst: int, token: float) -> None:
    """A second's attempts may go at once, one at least; no token is shorter than the clock's microsecond."""
    rules = _RULES.with_limits(Limits(rate=rate))

    assert rules.token == timedelta(seconds=token)
    assert rules.burst
    assert rules.burst // rules.token == burst


def test_rules_without_a_rate_have_no_tokens() -> None:
    """Nor have they a limit of anybody else's."""
    assert (_RULES.token, _RULES.burst, _RULES.with_limits(Limits(lane=3)).lane) == (None, None, 3)


@pytest.mark.parametrize(("rate", "burst", "token"), [(2.5, 2, 0.4), (0.5, 1, 2), (4, 4, 0.25)])
def test_each_attempt_takes_a_token(rate: float, burst: int, token: float, gate: Gate, clock: Clock) -> None:
    """Those of a second at once, and then one whenever a token has come, not a moment earlier."""
    widen(gate)
    limits, wait = Limits(rate=rate), timedelta(seconds=token)
    start = clock.now
    for number in range(burst):
        assert isinstance(gate.admit(MERCHANT, f"first-{number}", None, limits), Admitted)
    assert gate.admit(MERCHANT, "more", None, limits) == _RATE
    gate.drained(MERCHANT)
    missing = timedelta(seconds=(burst + 1) * token) - max(timedelta(seconds=1), wait)
    clock.advance(start + missing - clock.now - _INSTANT)
    assert gate.admit(MERCHANT, "more", None, limits) == _RATE
    gate.drained(MERCHANT)
    clock.advance(_INSTANT)
    assert isinstance(gate.admit(MERCHANT, "more", None, limits, slow=True), Admitted)
    assert gate.admit(MERCHANT, "one more", None, limits) == _RATE


def test_held_ones_go_at_the_rate_and_first(gate: Gate, clock: Clock) -> None:
    """The sweep gets no more slots than there are tokens; fresh ones wait behind them. Ten seconds: ten times two."""
    widen(gate)
    limits = Limits(rate=2)
    went = 0
    while isinstance(answer := gate.admit(MERCHANT, f"fresh-{went}", None, limits), Admitted):
        gate.report(MERCHANT, answer, Effect.SUCCESS, limits, QUICK)
        went += 1
    for _ in range(10):
        clock.advance(timedelta(seconds=1))
        assert gate.admit(MERCHANT, "fresh", None, limits) == Held(HeldFor.LANE)
        for slot in _offered(gate, limits):
            answer = gate.admit(MERCHANT, f"held-{went}", slot, limits)
            assert isinstance(answer, Admitted)
            assert gate.report(MERCHANT, answer, Effect.SUCCESS, limits, QUICK).slots == ()
            went += 1

    assert went == 2 + 10 * 2


def test_a_report_grants_no_more_than_there_are_tokens(gate: Gate, clock: Clock) -> None:
    """One has come: one slot, where without a rate there would be two; and its bearer needs no other token."""
    widen(gate)
    limits = Limits(rate=1)
    first = gate.admit(MERCHANT, "first", None, limits)
    assert isinstance(first, Admitted)
    assert gate.admit(MERCHANT, "held", None, limits) == _RATE
    clock.advance(timedelta(seconds=1))

    (slot,) = gate.report(MERCHANT, first, Effect.SUCCESS, limits, QUICK).slots

    assert _offered(gate, limits) == ()
    assert isinstance(gate.admit(MERCHANT, "held", slot, limits), Admitted)


def test_a_probe_takes_no_token(gate: Gate, clock: Clock) -> None:
    """One a cycle is too few for any rate: what closes the breaker brings the next one."""
    attempts(gate, Effect.FAILURE, 5)
    clock.advance(_RULES.pause)
    limits = Limits(rate=1)
    probe = gate.admit(MERCHANT, "probe", None, limits)
    assert isinstance(probe, Admitted)

    assert len(gate.report(MERCHANT, probe, Effect.SUCCESS, limits, QUICK).slots) == 1


def test_a_clock_that_steps_back_keeps_nobody_waiting(wide_gate: Gate, clock: Clock) -> None:
    """After a failover to a server that is an hour behind, the bucket is full, and each token comes in its time."""
    gate, limits = wide_gate, Limits(rate=1)
    gate.admit(MERCHANT, "first", None, limits)
    clock.advance(-timedelta(hours=1))
    assert isinstance(gate.admit(MERCHANT, "second", None, limits), Admitted)
    clock.advance(_INSTANT)
    assert gate.admit(MERCHANT, "third", None, limits) == _RATE
    gate.drained(MERCHANT)
    clock.advance(timedelta(seconds=1))
    assert isinstance(gate.admit(MERCHANT, "third", None, limits, slow=True), Admitted)


def test_another_rate_counts_at_once(gate: Gate) -> None:
    """What was owed by a slow rate is not owed by a quick one."""
    for number, rate in enumerate((0.01, 100)):
        answer = gate.admit(MERCHANT, f"one-{number}", None, Limits(rate=rate))
        assert isinstance(answer, Admitted)


def test_without_a_rate_nothing_is_written_for_it(client: redis.Redis, gate: Gate) -> None:
    """And with one, what is owed is kept for as long as that takes."""
    gate.admit(MERCHANT, "one")
    pace = keys_of(MERCHANT)[4]
    assert not client.exists(pace)

    gate.admit(MERCHANT, "two", None, Limits(rate=0.0001))
    assert client.pttl(pace) >= 10_000_000 - 1000
