"""The gate's words as values: what it answers before an attempt, after it, and to the sweep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType

from webhooks.model import HeldFor, Limits
from webhooks.policy.breaker import BreakerRules, BreakerState


@dataclass(frozen=True, slots=True)
class Admitted:
    """Go. `token` names this attempt's lease and goes back with the report; None: the gate could not be asked."""

    token: str | None
    probe: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """Not now, and nothing is spent.

    `until` is when the breaker's pause ends; None where a probe decides, and for all others.
    """

    why: HeldFor
    until: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Busy:
    """This very delivery is being sent by somebody now (I3)."""


@dataclass(frozen=True, slots=True)
class Slow:
    """Not in the quick queue: the endpoint is slow. The message goes to the other one with `slot`, its place there."""

    slot: str


@dataclass(frozen=True, slots=True)
class Report:
    """What a report has moved.

    `opened`: from working to paused; `closed`: from probing to working. `slots`: so many further held deliveries of
    this endpoint may be released now, each with one of these in its message; slots without a delivery go to `drained`.
    `slow`: their messages go to the queue of the slow endpoints.
    """

    opened: bool = False
    closed: bool = False
    slots: tuple[str, ...] = ()
    slow: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """The endpoint's held deliveries stay where they are."""


@dataclass(frozen=True, slots=True)
class MayProbe:
    """One held delivery may try whether the endpoint is back; its message carries `slot`. `slow` as in Report."""

    slot: str
    slow: bool = False


@dataclass(frozen=True, slots=True)
class MayRelease:
    """So many held deliveries may go, oldest first; each message carries one of `slots` (never empty).

    `slow` as in Report.
    """

    slots: tuple[str, ...]
    slow: bool = False


Offer = Wait | MayProbe | MayRelease

LimitsOf = Mapping[str, Limits]  # by endpoint
NOBODYS: LimitsOf = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Breaker:
    """How an endpoint's breaker and lane stand, for operators.

    `since` is when it opened, closed or was reset last, None when never as far as anyone remembers. `pause` and
    `until` are set while it is paused or probing. `probe` is the id of the delivery that probes right now.
    `in_flight` counts leases and `slots` the places kept for released deliveries on their way. `release` is the
    release window: how many of both there may be while the backlog is drained, None when it is not. `width` is how many
    places of its lane it may have now, `pace` how long its answers take of late, and `slow` whether it is slow.
    """

    endpoint_id: str
    state: BreakerState = BreakerState.WORKING
    since: datetime | None = None
    pause: timedelta | None = None
    until: datetime | None = None
    probe: str | None = None
    successes: int = 0
    failures: int = 0
    in_flight: int = 0
    slots: int = 0
    release: int | None = None
    width: int = BreakerRules().narrow
    pace: timedelta = timedelta()
    slow: bool = False

    @property
    def draining(self) -> bool:
        """Whether deliveries without a slot are held so that the backlog goes first."""
        return self.release is not None

    @property
    def quiet(self) -> bool:
        """Whether there is nothing to tell: working, and nothing held back."""
        return self.state is BreakerState.WORKING and not self.draining
