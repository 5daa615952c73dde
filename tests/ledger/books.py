"""The ledger's parts together, with a few short cuts for tests."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from cryptography.fernet import MultiFernet
from sqlalchemy import text

from webhooks.accepting import reading
from webhooks.ledger.backlog import Backlog
from webhooks.ledger.database import Database
from webhooks.ledger.desk import Desk
from webhooks.ledger.endpoints import Endpoints
from webhooks.ledger.ledger import Ledger
from webhooks.ledger.pruning import Pruning
from webhooks.ledger.replays import Replays
from webhooks.ledger.tallying import Tallying
from webhooks.ledger.views import Views
from webhooks.model import Attempt, Changes, Delivery, HeldFor, Message, Outcome, Reason, Written
from webhooks.policy.decisions import Budgets, Decision, Failed

RECOVER_AFTER = timedelta(seconds=30)


class Books:
    """Everything that reads or writes the ledger."""

    def __init__(self, database: Database, cipher: MultiFernet, max_age: timedelta) -> None:
        self.database = database
        lease = timedelta(seconds=15)
        self.ledger = Ledger(database, cipher, max_age=max_age, lease=lease, recover_after=RECOVER_AFTER)
        self.backlog = Backlog(database, recover_after=RECOVER_AFTER)
        self.merchants = Endpoints(database, cipher)
        self.replays = Replays(database, max_age=max_age)
        self.views = Views(database, recover_after=RECOVER_AFTER)
        self.tallying = Tallying(database)
        self.desk = Desk(database)
        self.pruning = Pruning(database, keep_delivered=timedelta(days=30), keep_failed=timedelta(days=180))

    def accept(self, delivery_id: str = "evt-1", merchant_id: str = "acme") -> Message:
        """Record an event whose message is on its way."""
        event = {"id": delivery_id, "type": "refund.completed", "merchant_id": merchant_id}
        (message,) = self.ledger.record(reading.read(event))
        return message

    def register(self, merchant_id: str = "acme") -> None:
        """Give a merchant an address."""
        self.merchants.set(merchant_id, Changes(url="https://acme.example/", secret="s"))

    def take_address(self, merchant_id: str = "acme") -> None:
        """Take a merchant's address away."""
        self.merchants.set(merchant_id, Changes(url=None))

    def take_secret(self, merchant_id: str = "acme") -> None:
        """Take a merchant's secret away, as only a hand can that takes the table's own check away first."""
        self.sql("ALTER TABLE endpoints DROP CONSTRAINT address_has_a_secret")
        self.sql("UPDATE endpoints SET secret = NULL WHERE id = :id", id=merchant_id)

    def claim(self, message: Message) -> Delivery:
        """Claim a delivery that can be claimed."""
        delivery = self.ledger.claim(message)
        assert isinstance(delivery, Delivery), delivery
        return delivery

    def hold(self, message: Message) -> bool:
        """Put a delivery aside, as the gate would have it."""
        return self.ledger.hold(message, HeldFor.BREAKER)

    def finish(self, delivery: Delivery, outcome: Outcome, decision: Decision, status: int | None = None) -> bool:
        """Write down an attempt of a delivery."""
        spent = Budgets(delivery.money, delivery.expires_at, delivery.fast_spent, delivery.slow_spent)
        attempt = Attempt(delivery.number, delivery.started_at, timedelta(seconds=1), outcome, status)
        return self.ledger.finish(delivery, attempt, decision, spent, queued=False) is Written.IN_TIME

    def fail(
        self,
        delivery_id: str = "evt-1",
        merchant_id: str = "acme",
        reason: Reason = Reason.REJECTED,
        *,
        money: bool = True,
    ) -> None:
        """Have a delivery be accepted, and fail by its first attempt."""
        kind = "refund.completed" if money else "kyc.status_changed"
        event = {"id": delivery_id, "type": kind, "merchant_id": merchant_id}
        (message,) = self.ledger.record(reading.read(event))
        assert self.finish(self.claim(message), Outcome.REJECTED, Failed(reason))

    def sql(self, statement: str, **values: object) -> Sequence[Any]:
        """Run a statement."""
        return self.database.rows(text(statement), values)

    def row(self, delivery_id: str = "evt-1") -> Any:
        """Return a delivery's row."""
        (row,) = self.sql("SELECT * FROM deliveries WHERE id = :id", id=delivery_id)
        return row

    def outcomes(self, delivery_id: str = "evt-1") -> list[str]:
        """Return the outcomes of a delivery's attempts."""
        return [
            row.outcome
            for row in self.sql("SELECT outcome FROM attempts WHERE delivery_id = :id ORDER BY number", id=delivery_id)
        ]

    def age(self, by: timedelta) -> None:
        """Let time pass for every row: move all its moments back."""
        moments = (
            "due_at", "sweep_at", "queued_at", "sending_since", "slow_since", "accepted_at",
            "expires_at", "finished_at", "seen_at", "dismissed_at",
        )  # fmt: skip
        moved = ", ".join(f"{name} = {name} - :by" for name in moments)
        self.sql(f"UPDATE deliveries SET {moved}", by=by)
        self.sql("UPDATE claims SET ends_at = ends_at - :by, silent_since = silent_since - :by", by=by)
        self.sql("UPDATE events SET accepted_at = accepted_at - :by", by=by)

    def body(self, event_id: str = "evt-1") -> bytes | None:
        """Return the body of an event, unless it was pruned."""
        (row,) = self.sql("SELECT body FROM events WHERE id = :id", id=event_id)
        return row.body and bytes(row.body)
