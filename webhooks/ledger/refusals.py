"""Events sent by task name that were not accepted: their producers hear nothing, so operators must."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, func, insert, select

from webhooks.accepting.reading import RefusedEvent
from webhooks.ledger.database import Database
from webhooks.ledger.tables import refused_events


class Refusals:
    """The record of refused events: which and why, never their bodies (I9)."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def note(self, refused: RefusedEvent) -> None:
        """Add a line; raises LedgerUnavailable."""
        self._database.rows(insert(refused_events).values(asdict(refused)))

    def latest(self, count: int) -> Sequence[dict[str, Any]]:
        """Return the latest refusals, the newest first."""
        newest = select(refused_events).order_by(refused_events.c.id.desc()).limit(count)
        return [row._asdict() for row in self._database.rows(newest, repeatable=True)]

    def prune(self, keep: timedelta, batch: int) -> int:
        """Forget up to `batch` that are older than `keep`, the oldest first. Returns how many."""
        old = (
            select(refused_events.c.id)
            .where(refused_events.c.at <= func.now() - keep)
            .order_by(refused_events.c.id)
            .limit(batch)
        )
        gone = delete(refused_events).where(refused_events.c.id.in_(old)).returning(refused_events.c.id)
        return len(self._database.rows(gone))
