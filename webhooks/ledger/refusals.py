"""Events sent by task name that were not accepted: their producers hear nothing, so operators must."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta

from sqlalchemy import delete, func, insert, select, true

from webhooks.accepting.reading import RefusedEvent
from webhooks.ledger.database import Database
from webhooks.ledger.rows import Page, RefusalRow
from webhooks.ledger.tables import refused_events


class Refusals:
    """The record of refused events: which and why, never their bodies (I9)."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def note(self, refused: RefusedEvent) -> None:
        """Add a line; raises LedgerUnavailable."""
        self._database.rows(insert(refused_events).values(asdict(refused)))

    def latest(self, count: int, after: int | None = None) -> Page[RefusalRow, int]:
        """Return the latest refusals, the newest first, from the one on that comes behind `after`."""
        older = true() if after is None else refused_events.c.id < after
        newest = select(refused_events).where(older).order_by(refused_events.c.id.desc()).limit(count + 1)
        found = [RefusalRow(**row._asdict()) for row in self._database.rows(newest, repeatable=True)]
        return Page(found[:count], found[count - 1].id if len(found) > count else None)

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
