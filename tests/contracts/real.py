"""The benches of the parts that ship, on real servers."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from typing import NoReturn

import redis

from tests.contracts.benches import Standing
from tests.courier import LISTS
from tests.gate.clock import Clock, scripts_under_test
from tests.ledger.books import Books
from tests.merchant import Merchant, TestCA
from tests.system import System
from webhooks import parts
from webhooks.accepting import reading
from webhooks.celery import messages
from webhooks.gate.gate import Gate
from webhooks.gate.resilient import ResilientGate
from webhooks.model import HeldFor, Message, Outcome, Reason, State
from webhooks.policy.breaker import BreakerRules
from webhooks.wire.sender import Sender, SendingRules


class RealLedgerBench:
    """See LedgerBench."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self.ledger = books.ledger
        books.register()

    def accept(self, delivery_id: str = "evt-1") -> Message:
        """Record an event."""
        return self._books.accept(delivery_id)

    def take_address(self) -> None:
        """Take acme's address away."""
        self._books.take_address()

    def pause(self) -> None:
        """Pause acme."""
        self._books.merchants.pause("acme", paused=True)

    def remove(self) -> None:
        """Take acme away for good."""
        self._books.sql("UPDATE endpoints SET removed_at = now(), url = NULL WHERE id = 'acme'")

    def age(self, by: timedelta) -> None:
        """Let time pass."""
        self._books.age(by)

    def take_back(self, delivery_id: str = "evt-1") -> None:
        """Take a delivery from its worker."""
        silent = "UPDATE claims SET ends_at = now() WHERE delivery_id = :id"
        for look in (self._books.backlog.suspect, self._books.backlog.bury):
            self._books.sql(silent, id=delivery_id)
            assert look() in (1, [delivery_id])

    def replay(self, delivery_id: str = "evt-1") -> None:
        """Send it again."""
        self._books.replays.replay([delivery_id], again=False)

    def stands(self, delivery_id: str = "evt-1") -> Standing:
        """Look at a delivery."""
        row = self._books.row(delivery_id)
        return Standing(
            state=State(row.state),
            turn=row.turn,
            number=row.attempts,
            reason=Reason(row.reason) if row.reason else None,
            held_for=HeldFor(row.held_for) if row.held_for else None,
            sending=row.sending_since is not None,
            queued=row.queued_at is not None,
            fast_spent=row.fast_spent,
            due_in=max(round((row.due_at - datetime.now(UTC)).total_seconds()), 0),
        )

    def outcomes(self, delivery_id: str = "evt-1") -> Sequence[Outcome]:
        """Return what its attempts came to."""
        return [Outcome(outcome) for outcome in self._books.outcomes(delivery_id)]


class RealGateBench:
    """See GateBench; the gate is the one that workers use, under the test's clock."""

    def __init__(self, redis_url: str, client: redis.Redis) -> None:
        self._clock = Clock(client)
        self.gate = ResilientGate(Gate(redis_url, BreakerRules(), scripts_under_test()))
        self.away = ResilientGate(Gate("redis://127.0.0.1:1/0", BreakerRules()))

    def advance(self, wait: timedelta) -> None:
        """Let time pass."""
        self._clock.advance(wait)


class RealPublisherBench:
    """See PublisherBench; the way is Celery's."""

    def __init__(self, system: System) -> None:
        self._system = system
        self.publisher = parts.publisher()

    def accept(self, delivery_id: str = "evt-1") -> Message:
        """Record an event."""
        event = {"id": delivery_id, "type": "refund.completed", "merchant_id": "acme"}
        (message,) = parts.ledger().record(reading.read(event))
        return message

    @contextmanager
    def away(self) -> Iterator[None]:
        """Let the broker take nothing."""
        client = self._system.redis()
        client.config_set("maxmemory", 1)
        try:
            yield
        finally:
            client.config_set("maxmemory", 0)

    def take(self) -> tuple[Message, timedelta] | None:
        """Take the oldest message."""
        raw = next(filter(None, map(self._system.redis().rpop, LISTS)), None)
        if raw is None:
            return None
        envelope = json.loads(raw)
        (identity,), *_ = json.loads(base64.b64decode(envelope["body"]))
        eta = envelope["headers"]["eta"]
        wait = datetime.fromisoformat(eta) - datetime.now(UTC) if eta else timedelta()
        return messages.read(identity, envelope["headers"]), timedelta(seconds=round(wait.total_seconds()))

    def is_queued(self, delivery_id: str = "evt-1") -> bool:
        """Whether a message is on its way."""
        (row,) = self._system.sql("SELECT queued_at FROM deliveries WHERE id = :id", id=delivery_id)
        return row.queued_at is not None


class RealSenderBench:
    """See SenderBench; every name leads to the loopback."""

    def __init__(self, merchant: Merchant, ca: TestCA) -> None:
        self._merchant = merchant
        self._ca = ca
        self.sender = self._make(lambda _host: ["127.0.0.1"])
        self.broken = self._make(_no_resolver)
        self.url = merchant.url()
        self.forbidden_url = merchant.url().replace("https:", "http:")

    @property
    def silent_url(self) -> str:
        """Where nobody listens."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        return f"https://localhost:{port}/"

    def answers(self, status: int) -> None:
        """Have the merchant answer so."""
        self._merchant.answers(status)

    def bodies(self) -> Sequence[bytes]:
        """What the merchant got."""
        return [request.body for request in self._merchant.requests]

    def close(self) -> None:
        """Close the connections."""
        self.sender.close()
        self.broken.close()

    def _make(self, resolve: Callable[[str], list[str]]) -> Sender:
        rules = SendingRules(ca_bundle=self._ca.pem, allowed_networks=(ip_network("127.0.0.0/8"),))
        return Sender(rules, resolve=resolve)


def _no_resolver(_host: str) -> NoReturn:
    raise socket.gaierror(socket.EAI_AGAIN, "try again")
