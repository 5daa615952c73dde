"""The breaker's numbers and words: when an endpoint counts as down, and how long it is left in peace."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum

from webhooks.model import Limits, Outcome

MOST_IN_FLIGHT = 1000  # that a lane may let be in flight at once
_BUCKETS = 60
_WIDEST_BUCKET = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class BreakerRules:
    """The rules' breaker, as numbers; `lane` is how many deliveries of one endpoint may be in flight at once.

    `rate` is how many attempts an endpoint gets in a second, None for any number.
    """

    window: timedelta = timedelta(minutes=5)
    min_attempts: int = 5
    failure_percent: int = 80
    pause: timedelta = timedelta(minutes=5)
    max_pause: timedelta = timedelta(minutes=30)
    lease: timedelta = timedelta(seconds=15)  # the attempt deadline (10 s) plus a margin
    lane: int = 10
    slot_lease: timedelta = timedelta(seconds=30)  # how long a place is kept for a released delivery on its way
    narrow: int = 2  # places of the lane for an endpoint of which nothing good is known
    remembered_quick: timedelta = timedelta(seconds=60)  # how long an answer speaks for an endpoint
    slow_after: timedelta = timedelta(seconds=1)  # without an answer, or with answers that take so long
    rate: float | None = None

    @property
    def buckets(self) -> int:
        """How many buckets the sliding window is counted in: 60, and more where they would be wider than 5 s."""
        return max(_BUCKETS, -(-self.window // _WIDEST_BUCKET))

    @property
    def token(self) -> timedelta | None:
        """How long it takes until one more attempt is allowed, where there is a rate."""
        return max(timedelta(seconds=1) / self.rate, timedelta.resolution) if self.rate else None

    @property
    def burst(self) -> timedelta | None:
        """How long it takes until as many are allowed as may go at once: those of a second, and one at least."""
        return max(timedelta(seconds=1), self.token) if self.token else None

    def with_limits(self, limits: Limits) -> BreakerRules:
        """Return the rules for an endpoint with limits of its own."""
        return replace(
            self,
            lane=self.lane if limits.lane is None else limits.lane,
            rate=self.rate if limits.rate is None else limits.rate,
        )


class BreakerState(StrEnum):
    """Where an endpoint's breaker stands (rules, part 1)."""

    WORKING = "working"
    PAUSED = "paused"
    PROBING = "probing"


class Effect(StrEnum):
    """What an attempt does to its endpoint's breaker and lane.

    `success` and `throttled` both count as answered, and the second one slows the release of held deliveries;
    `nothing` gives the place back and counts nowhere.
    """

    SUCCESS = "success"
    THROTTLED = "throttled"
    FAILURE = "failure"
    NOTHING = "nothing"


_EFFECTS = {
    Outcome.DELIVERED: Effect.SUCCESS,
    Outcome.REJECTED: Effect.SUCCESS,
    Outcome.MISDIRECTED: Effect.SUCCESS,
    Outcome.THROTTLED: Effect.THROTTLED,
    Outcome.UNAVAILABLE: Effect.FAILURE,
    Outcome.UNSENDABLE: Effect.NOTHING,
    Outcome.UNKNOWN: Effect.NOTHING,
}


def effect_of(outcome: Outcome) -> Effect:
    """Return what the breaker hears of an attempt (rules, part 2): only unavailability counts against an endpoint."""
    return _EFFECTS[outcome]
