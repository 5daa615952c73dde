"""What can happen, a frozen value for each; what says nothing of the system itself is no fact.

A fact holds no body, no secret, no URL, and of a merchant's answer only its status and the host that it redirects to
(I9): whoever listens may write it anywhere. Its `name` is what logs and metrics call it, the thing first and what
became of it behind the dot.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import ClassVar

from webhooks.model import Attempt, Delivery, HeldFor, Ladder, Message, Outcome, Reason, State
from webhooks.policy.decisions import Decision, Delivered, Failed


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that happened."""

    name: ClassVar[str]


@dataclass(frozen=True, slots=True)
class Attempted(Fact):
    """An attempt is over and written down. `late`: too late, so that only a 2xx still ends what waits."""

    name = "delivery.attempted"
    delivery_id: str
    merchant_id: str
    endpoint_id: str
    type: str
    attempt: int
    outcome: Outcome
    status: int | None
    cause: str | None
    duration: timedelta | None
    ladder: Ladder | None
    probe: bool
    decision: Decision
    late: bool
    lag: timedelta  # from its due time to its beginning
    released: bool  # it was held before, so that its lag says little of the workers

    @classmethod
    def of(cls, message: Message, delivery: Delivery, attempt: Attempt, decision: Decision, *, late: bool) -> Attempted:
        """Take what may be told."""
        return cls(
            delivery_id=delivery.id,
            merchant_id=delivery.merchant_id,
            endpoint_id=delivery.endpoint_id,
            type=delivery.type,
            attempt=attempt.number,
            outcome=attempt.outcome,
            status=attempt.status,
            cause=attempt.cause,
            duration=attempt.duration,
            ladder=attempt.ladder,
            probe=attempt.probe,
            decision=decision,
            late=late,
            lag=max(attempt.started_at - delivery.due_at, timedelta()),  # it may begin a moment too early
            released=message.slot is not None,
        )


@dataclass(frozen=True, slots=True)
class Finished(Fact):
    """A delivery has ended, by its last attempt or on its way to a removed endpoint; see `EndedApart` for others."""

    name = "delivery.finished"
    delivery_id: str
    merchant_id: str
    endpoint_id: str
    type: str
    state: State
    reason: Reason | None
    money: bool

    @classmethod
    def of(cls, delivery: Delivery, decision: Delivered | Failed) -> Finished:
        """Say how it ended."""
        names = delivery.id, delivery.merchant_id, delivery.endpoint_id, delivery.type
        if isinstance(decision, Failed):
            return cls(*names, State.FAILED, decision.reason, delivery.money)
        return cls(*names, State.DELIVERED, None, delivery.money)

    @classmethod
    def cancelled(cls, message: Message, *, money: bool) -> Finished:
        """Say that it has nowhere to go any more."""
        names = message.id, message.merchant_id, message.endpoint_id, message.type
        return cls(*names, State.FAILED, Reason.CANCELLED, money)


@dataclass(frozen=True, slots=True)
class DeliveryHeld(Fact):
    """A delivery was put aside without an attempt."""

    name = "delivery.held"
    delivery_id: str
    merchant_id: str
    endpoint_id: str
    type: str
    held_for: HeldFor

    @classmethod
    def of(cls, message: Message, held_for: HeldFor) -> DeliveryHeld:
        """Take what may be told."""
        return cls(message.id, message.merchant_id, message.endpoint_id, message.type, held_for)


@dataclass(frozen=True, slots=True)
class Released(Fact):
    """What was held has a message again; it may be the probe."""

    name = "delivery.released"
    delivery_id: str
    merchant_id: str
    endpoint_id: str
    type: str
    probe: bool

    @classmethod
    def of(cls, message: Message, *, probe: bool) -> Released:
        """Take what may be told."""
        return cls(message.id, message.merchant_id, message.endpoint_id, message.type, probe)


@dataclass(frozen=True, slots=True)
class Interrupted(Fact):
    """A fault of ours ended an attempt.

    `for_good`: one that trying again does not mend; `of_outage`: one that is told by itself, once.
    """

    name = "delivery.interrupted"
    delivery_id: str
    why: str
    for_good: bool = False
    of_outage: bool = False


@dataclass(frozen=True, slots=True)
class ReleasePutOff(Fact):
    """The ledger could not say which held deliveries of an endpoint and `others`, or which `probe`, may go."""

    name = "release.put_off"
    endpoint_id: str
    probe: bool
    why: str
    others: int = 0


@dataclass(frozen=True, slots=True)
class BreakerOpened(Fact):
    """From working to paused."""

    name = "breaker.opened"
    merchant_id: str
    endpoint_id: str


@dataclass(frozen=True, slots=True)
class BreakerClosed(Fact):
    """From probing to working."""

    name = "breaker.closed"
    merchant_id: str
    endpoint_id: str


@dataclass(frozen=True, slots=True)
class BreakerReset(Fact):
    """Closed by a person, or by a new address."""

    name = "breaker.reset"
    endpoint_id: str


@dataclass(frozen=True, slots=True)
class LedgerAway(Fact):
    """PostgreSQL cannot be used; told once an outage."""

    name = "ledger.away"
    why: str


@dataclass(frozen=True, slots=True)
class LedgerBack(Fact):
    """It is used again."""

    name = "ledger.back"


@dataclass(frozen=True, slots=True)
class LedgerAwayAtStart(Fact):
    """A worker started without having seen the ledger."""

    name = "ledger.away_at_start"
    why: str


@dataclass(frozen=True, slots=True)
class LedgerNewer(Fact):
    """Its tables are of a later release than this one."""

    name = "ledger.newer"
    revision: str


@dataclass(frozen=True, slots=True)
class GateAway(Fact):
    """The gate's Redis cannot be used; told once an outage."""

    name = "gate.away"
    why: str


@dataclass(frozen=True, slots=True)
class GateBypassed(Fact):
    """One call to the gate went without an answer; `calls` counts them since this process started."""

    name = "gate.bypassed"
    calls: int


@dataclass(frozen=True, slots=True)
class GateBack(Fact):
    """It is used again; `bypassed` counts the calls that went without it since this process started."""

    name = "gate.back"
    bypassed: int


class BrokerUser(StrEnum):
    """Who in this process noticed."""

    PUBLISHER = "publisher"
    BEAT = "beat"


@dataclass(frozen=True, slots=True)
class BrokerAway(Fact):
    """The broker cannot be used; told once an outage."""

    name = "broker.away"
    user: BrokerUser
    why: str


@dataclass(frozen=True, slots=True)
class BrokerBack(Fact):
    """It is used again."""

    name = "broker.back"
    user: BrokerUser


@dataclass(frozen=True, slots=True)
class Swept(Fact):
    """What one tick did, in deliveries; nothing where another sweep was at work."""

    name = "sweep.done"
    expired: int = 0
    buried: int = 0
    published: int = 0
    probes: int = 0
    released: int = 0
    ended: int = 0  # of endpoints that were removed
    took: timedelta = field(default=timedelta(), compare=False)


@dataclass(frozen=True, slots=True)
class SweepStopped(Fact):
    """A tick was not done to its end; `for_good` and `of_outage` as in Interrupted."""

    name = "sweep.stopped"
    why: str
    for_good: bool = False
    of_outage: bool = False


@dataclass(frozen=True, slots=True)
class Pruned(Fact):
    """So many long finished deliveries and refused events were forgotten."""

    name = "pruning.done"
    number: int
    took: timedelta


@dataclass(frozen=True, slots=True)
class PruningStopped(Fact):
    """Pruning came to no end."""

    name = "pruning.stopped"
    why: str
