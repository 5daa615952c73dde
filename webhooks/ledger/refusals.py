"""Events sent by task name that were not accepted: their producers hear nothing, so operators must."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta

from sqlalchemy import BigInteger, Integer, Interval, bindparam, delete, func, insert, or_, select

from webhooks.accepting.reading import RefusedEvent
from webhooks.ledger.database import Database
from webhooks.ledger.rows import Page, RefusalRow
from webhooks.ledger.side_tables import refused_events

_MOST, _AFTER = bindparam("the_most", type_=Integer()), bindparam("the_after", type_=BigInteger())

_LATEST = (
    select(refused_events)
    .where(or_(_AFTER.is_(None), refused_events.c.id < _AFTER))
    .order_by(refused_events.c.id.desc())
    .limit(_MOST)
)

_OLD = (
    select(refused_events.c.id)
    .where(refused_events.c.at <= func.now() - bindparam("the_keep", type_=Interval()))
    .order_by(refused_events.c.id)
    .limit(_MOST)
)

_PRUNE = delete(refused_events).where(refused_events.c.id.in_(_OLD)).returning(refused_events.c.id)


class Refusals:
    """The record of refused events: which and why, never their bodies (I9)."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def note(self, refused: RefusedEvent) -> None:
        """Add a line; raises LedgerUnavailable."""
        self._database.rows(insert(refused_events).values(asdict(refused)))

    def latest(self, count: int, after: int | None = None) -> Page[RefusalRow, int]:
        """Return the latest refusals, the newest first, from the one on that comes behind `after`."""
        values = {"the_most": count + 1, "the_after": after}
        found = [RefusalRow(**row._asdict()) for row in self._database.rows(_LATEST, values, repeatable=True)]
        return Page(found[:count], found[count - 1].id if len(found) > count else None)

    def prune(self, keep: timedelta, batch: int) -> int:
        """Forget up to `batch` that are older than `keep`, the oldest first. Returns how many."""
        return len(self._database.rows(_PRUNE, {"the_most": batch, "the_keep": keep}))
