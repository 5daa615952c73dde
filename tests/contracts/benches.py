"""What a contract's test may do besides calling the port: set the scene, and look behind it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from webhooks import ports
from webhooks.gate.values import Admitted, Offer, Report
from webhooks.model import HeldFor, Message, Outcome, Reason, State
from webhooks.policy.breaker import BreakerRules, Effect


@dataclass(frozen=True)
class Standing:
    """How a delivery stands in a ledger; `number` counts its attempts, `due_in` is in whole seconds."""

    state: State
    turn: int
    number: int
    reason: Reason | None = None
    held_for: HeldFor | None = None
    sending: bool = False
    queued: bool = False
    fast_spent: int = 0
    due_in: int = 0


class LedgerBench(Protocol):
    """A ledger with the merchant `acme`, which has an address until it is taken away."""

    @property
    def ledger(self) -> ports.Ledger:
        """The part."""

    def accept(self, delivery_id: str = "evt-1") -> Message:
        """Record an event of acme's whose message is on its way."""

    def take_address(self) -> None:
        """Take acme's address away."""

    def pause(self) -> None:
        """Pause acme by hand."""

    def remove(self) -> None:
        """Take acme's endpoint away for good."""

    def age(self, by: timedelta) -> None:
        """Let time pass."""

    def take_back(self, delivery_id: str = "evt-1") -> None:
        """Take a delivery from its worker, whose lease is over."""

    def replay(self, delivery_id: str = "evt-1") -> None:
        """Send a finished delivery again, by hand."""

    def stands(self, delivery_id: str = "evt-1") -> Standing:
        """Look at a delivery."""

    def outcomes(self, delivery_id: str = "evt-1") -> Sequence[Outcome]:
        """Return what its attempts came to, in order."""


class OfferingGate(ports.Gate, Protocol):
    """The gate as the sweep sees it, too."""

    def offer(self, endpoint_ids: Sequence[str], /) -> dict[str, Offer]:
        """Ask what may be done with held deliveries."""


class GateBench(Protocol):
    """A gate with the product's numbers."""

    @property
    def gate(self) -> OfferingGate:
        """The part."""

    @property
    def away(self) -> ports.Gate:
        """One whose server is away."""

    def advance(self, wait: timedelta) -> None:
        """Let time pass."""


class PublisherBench(Protocol):
    """A way to a broker that can be away, with the ledger that it tells."""

    @property
    def publisher(self) -> ports.Publisher:
        """The part."""

    def accept(self, delivery_id: str = "evt-1") -> Message:
        """Record an event whose message is on its way."""

    def away(self) -> AbstractContextManager[None]:
        """Let the broker take nothing."""

    def take(self) -> tuple[Message, timedelta] | None:
        """Take the message that has waited longest, and how long it is to wait yet, in whole seconds."""

    def is_queued(self, delivery_id: str = "evt-1") -> bool:
        """Whether the ledger believes that a message is on its way."""


class SenderBench(Protocol):
    """A sender and a merchant."""

    @property
    def sender(self) -> ports.Sender:
        """The part."""

    @property
    def broken(self) -> ports.Sender:
        """One on a machine that can't send."""

    @property
    def url(self) -> str:
        """The merchant's."""

    @property
    def silent_url(self) -> str:
        """Where nobody listens."""

    @property
    def forbidden_url(self) -> str:
        """What our own guard refuses."""

    def answers(self, status: int) -> None:
        """Have the merchant answer so."""

    def bodies(self) -> Sequence[bytes]:
        """What the merchant got."""


def admitted(bench: GateBench, delivery_id: str, endpoint_id: str = "shop", slot: str | None = None) -> Admitted:
    """Have a delivery admitted."""
    bench.advance(timedelta(microseconds=1))  # no two calls are made in the same one
    answer = bench.gate.admit(endpoint_id, delivery_id, slot)
    assert isinstance(answer, Admitted), answer
    return answer


def attempts(
    bench: GateBench, effect: Effect, times: int, endpoint_id: str = "shop", took: timedelta | None = None
) -> list[Report]:
    """Let so many attempts of different deliveries end like this, one after the other."""
    return [
        bench.gate.report(endpoint_id, admitted(bench, f"other-{number}", endpoint_id), effect, took=took)
        for number in range(times)
    ]


def widen(bench: GateBench, endpoint_id: str = "shop") -> None:
    """Let an endpoint answer quickly until it may have its whole lane."""
    attempts(bench, Effect.SUCCESS, BreakerRules().lane, endpoint_id, timedelta(milliseconds=10))
