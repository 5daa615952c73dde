"""What the story needs of the others: as little as it uses, so that it can be told without a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Protocol

from webhooks.gate.values import Admitted, Busy, Held, Report, Slow
from webhooks.model import (
    NO_LIMITS,
    Answer,
    Attempt,
    Delivery,
    HeldFor,
    Limits,
    Message,
    Refusal,
    Silence,
    Unclaimed,
    Written,
)
from webhooks.policy.breaker import Effect
from webhooks.policy.decisions import Budgets, Decision


class Ledger(Protocol):
    """What we will still know tomorrow. Everything raises LedgerUnavailable or LedgerFault."""

    def claim(self, message: Message) -> Delivery | Unclaimed:
        """Take a delivery for one attempt, or say why there is none; every other message of it is stale then (I3).

        LocalFault where its secret cannot be read: nothing is claimed.
        """

    def hold(self, message: Message, held_for: HeldFor) -> bool:
        """Put a delivery aside without an attempt. Returns whether it was this turn's to hold."""

    def end_removed(self, message: Message) -> bool | None:
        """End as cancelled what goes to an endpoint that was removed.

        Returns whether it is money; None where it was not this turn's to end.
        """

    def finish(
        self, delivery: Delivery, attempt: Attempt, decision: Decision, spent: Budgets, *, queued: bool
    ) -> Written:
        """Write down an attempt and what follows from it; `queued`: its retry's message is published right away.

        The same again changes nothing. Where it came too late what is final stays (I8), what is unknown of the attempt
        is filled in, and a 2xx ends what still waits.
        """

    def hand_back(self, delivery_id: str, turn: int, wait: timedelta) -> None:
        """Undo a claim that led to no POST, to be tried again after `wait`; nothing is spent (I10)."""

    def unqueue(self, delivery_id: str, turn: int) -> None:
        """Note that no message is on its way: the sweep publishes one as soon as the delivery is due."""

    def is_recorded(self, delivery_id: str) -> bool:
        """Whether a delivery of this id was ever accepted."""


class Gate(Protocol):
    """What all workers must agree on now. It raises nothing: where it is away, every delivery may pass."""

    def admit(
        self,
        endpoint_id: str,
        delivery_id: str,
        slot: str | None = None,
        limits: Limits = NO_LIMITS,
        *,
        slow: bool = False,
    ) -> Admitted | Held | Busy | Slow:
        """Ask whether an attempt may start now; if so, the delivery is leased. `limits`: the endpoint's own.

        `slow`: its message came through the queue of the slow endpoints, and will not be sent there again.
        """

    def report(
        self,
        endpoint_id: str,
        admitted: Admitted,
        effect: Effect,
        limits: Limits = NO_LIMITS,
        took: timedelta | None = None,
    ) -> Report:
        """Tell how an admitted attempt went; what is told twice, or after the lease ran out, changes nothing.

        `took`: how long the POST took, None where nothing was sent.
        """


class Sender(Protocol):
    """How a delivery travels."""

    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer | Silence | Refusal:
        """POST, and return what came of it. LocalFault: nothing has gone out whole."""


class Publisher(Protocol):
    """The way to the broker."""

    def publish(self, message: Message, wait: timedelta) -> bool:
        """Publish, to be looked at after `wait`. Returns whether the broker has it; if not, the ledger knows."""


class Release(Protocol):
    """What lets held deliveries go."""

    def next_of(self, endpoint_id: str, slots: Sequence[str], *, slow: bool = False) -> int:
        """Release the oldest held deliveries of an endpoint, one a slot. Returns how many there were.

        `slow`: their messages go to the queue of the slow endpoints.
        """


class Stopping(Protocol):
    """Whether this process is told to stop."""

    def wait(self, timeout: float, /) -> bool:
        """Wait until it is, for so many seconds at most. Returns whether it is."""
