"""All of it → Delivered | RetryAt | Failed: what becomes of a delivery after an attempt."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import assert_never

from webhooks.model import Answer, Ladder, Outcome, Reason, Refusal, Silence
from webhooks.policy.answers import meaning, requested_wait
from webhooks.policy.ladders import Ladders, next_fast_wait, next_slow_wait


@dataclass(frozen=True, slots=True)
class Budgets:
    """What a delivery has spent so far. `slow_since` is its first step on the slow ladder."""

    money: bool
    expires_at: datetime
    fast_spent: int = 0
    slow_spent: int = 0
    slow_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Delivered:
    """The merchant has it."""


@dataclass(frozen=True, slots=True)
class RetryAt:
    """Try again at `due_at`, which stands on `ladder`; on none (None) after a fault of ours."""

    due_at: datetime
    ladder: Ladder | None


@dataclass(frozen=True, slots=True)
class Failed:
    """It ends here, for `reason`; `ladder` is the one that was charged, if any."""

    reason: Reason
    ladder: Ladder | None = None


Decision = Delivered | RetryAt | Failed

AFTER_OUR_FAULT = timedelta(seconds=5)
"""The wait after an attempt that a fault of ours has cost: it stands on no ladder."""


def decide(
    ladders: Ladders, before: Budgets, result: Answer | Silence | Refusal, now: datetime
) -> tuple[Decision, Budgets]:
    """Say what follows from an attempt that ended `now`, and what the delivery has spent by then.

    A fault of ours spends nothing: before the POST it never gets here, after it the outcome is `unknown`.
    """
    outcome = meaning(result)
    match outcome:
        case Outcome.DELIVERED:
            return Delivered(), before
        case Outcome.UNAVAILABLE | Outcome.THROTTLED:
            decision, after = _climb_fast(ladders, before, result, now)
        case Outcome.REJECTED if not before.money:
            return Failed(Reason.REJECTED), before
        case Outcome.REJECTED:
            decision, after = _climb_slow(ladders, before, now)
        case Outcome.MISDIRECTED | Outcome.UNSENDABLE if before.money:
            decision, after = _climb_slow(ladders, before, now)
        case Outcome.MISDIRECTED | Outcome.UNSENDABLE:
            decision, after = _climb_fast(ladders, before, result, now)
        case Outcome.UNKNOWN:
            decision, after = RetryAt(now + AFTER_OUR_FAULT, None), before
        case _:
            assert_never(outcome)
    return _within_age(decision, after), after


def _climb_fast(
    ladders: Ladders, before: Budgets, result: Answer | Silence | Refusal, now: datetime
) -> tuple[RetryAt | Failed, Budgets]:
    after = replace(before, fast_spent=before.fast_spent + 1)
    wait = next_fast_wait(ladders, after.fast_spent, requested_wait(result, now, ladders.retry_after_cap))
    if wait is None:
        return Failed(Reason.FAST_EXHAUSTED, Ladder.FAST), after
    return RetryAt(now + wait, Ladder.FAST), after


def _climb_slow(ladders: Ladders, before: Budgets, now: datetime) -> tuple[RetryAt | Failed, Budgets]:
    since = before.slow_since or now
    after = replace(before, slow_spent=before.slow_spent + 1, slow_since=since)
    wait = next_slow_wait(ladders, after.slow_spent, since, now)
    if wait is None:
        return Failed(Reason.SLOW_EXHAUSTED, Ladder.SLOW), after
    return RetryAt(now + wait, Ladder.SLOW), after


def _within_age(decision: RetryAt | Failed, after: Budgets) -> RetryAt | Failed:
    """Apply the absolute limit: at or past it nothing is sent, so a wait that would end there is not taken."""
    match decision:
        case RetryAt(due_at=due_at, ladder=ladder) if due_at >= after.expires_at:
            return Failed(Reason.EXPIRED, ladder)
        case _:
            return decision
