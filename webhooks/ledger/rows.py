"""What is read from the ledger, as values: deliveries with their attempts, events, lines of the audit, refusals.

A listing comes in pages: `next` is the cursor with which the page after it is asked for, the id of its last line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Generic, TypeVar

from webhooks.model import HeldFor, Ladder, Outcome, Reason, State
from webhooks.process.spans import in_words

T = TypeVar("T")
Cursor = TypeVar("Cursor", str, int)


@dataclass(frozen=True, slots=True)
class Page(Generic[T, Cursor]):
    """Some lines of a listing, and where it goes on; None at its end."""

    items: Sequence[T]
    next: Cursor | None


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """A delivery as it stands; `sending_since` is set while a worker is at it."""

    id: str
    event_id: str
    merchant_id: str
    endpoint_id: str
    type: str
    money: bool
    state: State
    reason: Reason | None
    held_for: HeldFor | None
    due_at: datetime
    sending_since: datetime | None
    attempts: int
    fast_spent: int
    slow_spent: int
    slow_since: datetime | None
    accepted_at: datetime
    expires_at: datetime
    finished_at: datetime | None

    def standing(self) -> str:
        """Say the state with what is waited for."""
        match self.state:
            case State.FAILED:
                return f"failed: {self.reason}"
            case State.HELD:
                return f"held for {self.held_for}"
            case State.PENDING if self.sending_since:
                return "pending: being sent"
            case State.PENDING:
                wait = self.due_at - datetime.now(UTC)
                return f"pending: due in {in_words(wait)}" if wait > timedelta() else "pending: due"
            case state:
                return str(state)


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """An attempt as it was written down; `ladder` is the one that was charged, `duration_ms` unknown of the dead."""

    delivery_id: str
    number: int
    started_at: datetime
    duration_ms: int | None
    outcome: Outcome
    status: int | None
    cause: str | None
    excerpt: str | None
    ladder: Ladder | None
    probe: bool


@dataclass(frozen=True, slots=True)
class History:
    """A delivery with all its attempts; `note` says what the two do not agree about."""

    delivery: DeliveryRow
    note: str | None
    attempts: Sequence[AttemptRow]


@dataclass(frozen=True, slots=True)
class EventRow:
    """An event as it was accepted; `body_bytes` is None once the body was pruned.

    `unmatched`: no endpoint of its merchant wanted it.
    """

    id: str
    merchant_id: str
    type: str
    money: bool
    accepted_at: datetime
    body_sha256: str
    body_bytes: int | None
    unmatched: bool


@dataclass(frozen=True, slots=True)
class AuditRow:
    """What an operator did: `deliveries` is how many it concerned, where it concerned deliveries."""

    id: int
    at: datetime
    who: str
    what: str
    why: str | None
    deliveries: int | None


@dataclass(frozen=True, slots=True)
class RefusalRow:
    """An event by task name that was not accepted."""

    id: int
    at: datetime
    event_id: str | None
    merchant_id: str | None
    type: str | None
    task_id: str
    why: str
