"""The benches of the parts in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from tests.contracts.benches import Standing
from tests.fakes.clock import FakeClock
from tests.fakes.gate import FakeGate
from tests.fakes.ledger import FakeLedger
from tests.fakes.publisher import FakePublisher
from tests.fakes.sender import FakeSender
from webhooks.errors import LocalFault
from webhooks.model import Message, Outcome, Refusal, Silence
from webhooks.policy.breaker import BreakerRules


class FakeLedgerBench:
    """See LedgerBench."""

    def __init__(self) -> None:
        self._clock = FakeClock()
        self.ledger = FakeLedger(self._clock)
        self.ledger.addresses["acme"] = "https://acme.example/"

    def accept(self, delivery_id: str = "evt-1") -> Message:
        """Record an event."""
        return self.ledger.accept(delivery_id, "acme", "refund.completed")

    def take_address(self) -> None:
        """Take acme's address away."""
        self.ledger.addresses.clear()

    def pause(self) -> None:
        """Pause acme."""
        self.ledger.paused.add("acme")

    def remove(self) -> None:
        """Take acme away for good."""
        self.ledger.removed.add("acme")

    def age(self, by: timedelta) -> None:
        """Let time pass."""
        self._clock.advance(by)

    def take_back(self, delivery_id: str = "evt-1") -> None:
        """Take a delivery from its worker."""
        self.ledger.take_back(delivery_id)

    def replay(self, delivery_id: str = "evt-1") -> None:
        """Send it again."""
        self.ledger.replay(delivery_id)

    def stands(self, delivery_id: str = "evt-1") -> Standing:
        """Look at a delivery."""
        row = self.ledger.rows[delivery_id]
        return Standing(
            state=row.state,
            turn=row.turn,
            number=row.number,
            reason=row.reason,
            held_for=row.held_for,
            sending=row.sending_since is not None,
            queued=row.queued,
            fast_spent=row.spent.fast_spent,
            due_in=max(round((row.due_at - self._clock.now).total_seconds()), 0),
        )

    def outcomes(self, delivery_id: str = "evt-1") -> Sequence[Outcome]:
        """Return what its attempts came to."""
        return [attempt.outcome for _, attempt in sorted(self.ledger.rows[delivery_id].attempts.items())]


class FakeGateBench:
    """See GateBench."""

    def __init__(self) -> None:
        self._clock = FakeClock()
        self.gate = FakeGate(self._clock, BreakerRules())
        self.away = FakeGate(self._clock, BreakerRules())
        self.away.away = True

    def advance(self, wait: timedelta) -> None:
        """Let time pass."""
        self._clock.advance(wait)


class FakePublisherBench:
    """See PublisherBench."""

    def __init__(self) -> None:
        self._ledger = FakeLedger(FakeClock())
        self.publisher = FakePublisher(self._ledger)

    def accept(self, delivery_id: str = "evt-1") -> Message:
        """Record an event."""
        return self._ledger.accept(delivery_id, "acme", "refund.completed")

    @contextmanager
    def away(self) -> Iterator[None]:
        """Let the broker take nothing."""
        self.publisher.away = True
        yield
        self.publisher.away = False

    def take(self) -> tuple[Message, timedelta] | None:
        """Take the oldest message."""
        return self.publisher.queue.pop(0) if self.publisher.queue else None

    def is_queued(self, delivery_id: str = "evt-1") -> bool:
        """Whether a message is on its way."""
        return self._ledger.rows[delivery_id].queued


class FakeSenderBench:
    """See SenderBench."""

    url = "https://acme.example/"

    def __init__(self) -> None:
        self.sender = FakeSender()
        self.broken = FakeSender()
        self.broken.answers(LocalFault("no sockets"))

    @property
    def silent_url(self) -> str:
        """Where nobody listens."""
        self.sender.answers(Silence("refused"))
        return self.url

    @property
    def forbidden_url(self) -> str:
        """What our own guard refuses."""
        self.sender.answers(Refusal("not HTTPS"))
        return self.url

    def answers(self, status: int) -> None:
        """Have the merchant answer so."""
        self.sender.answers(status)

    def bodies(self) -> Sequence[bytes]:
        """What the merchant got."""
        return [post.body for post in self.sender.posts]
