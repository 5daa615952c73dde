"""A broker's queue in memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from tests.fakes.ledger import FakeLedger
from webhooks.model import Message


class FakePublisher:
    """Keeps what is published with its wait; while the broker is `away` the ledger is told instead."""

    def __init__(self, ledger: FakeLedger) -> None:
        self.away = False
        self.queue: list[tuple[Message, timedelta]] = []
        self._ledger = ledger

    def publish(self, message: Message, wait: timedelta = timedelta()) -> bool:
        """As Publisher.publish."""
        if self.away:
            self._ledger.unqueue(message.id, message.turn)
            return False
        self.queue.append((message, wait))
        return True


class FakeRelease:
    """Notes for whom how many may go."""

    def __init__(self) -> None:
        self.released: list[tuple[str, Sequence[str]]] = []

    def next_of(self, endpoint_id: str, slots: Sequence[str], *, slow: bool = False) -> int:  # noqa: ARG002
        """As Release.next_of."""
        if slots:
            self.released.append((endpoint_id, slots))
        return len(slots)
