"""What operators did by hand: who, when, what and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from sqlalchemy import Insert, func, insert, select, true

from webhooks.ledger.database import Database
from webhooks.ledger.rows import AuditRow, Page
from webhooks.ledger.tables import audit
from webhooks.model import Operator

_IDS_IN_A_LINE = 100  # so that a line stays readable when a replay is of thousands


class Audit:
    """The operators' record; lines are only ever added."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def note(self, by: Operator, what: str) -> None:
        """Add a line about an act that changes nothing in the ledger; for others see `acts.act`."""
        self._database.rows(line(by, what))

    @contextmanager
    def once(self, by: Operator, what: str, *, within: timedelta = timedelta(seconds=10)) -> Iterator[str | None]:
        """Add a line for what is done in the block, unless there is one that young; gives who did it then, else None.

        Others who ask at the same time wait for the end of the block. Where it raises, there is no line.
        """
        with self._database.transaction() as transaction:
            transaction.rows(select(func.pg_advisory_xact_lock(func.hashtextextended(what, 0))))
            young = select(audit.c.who).where(audit.c.what == what, audit.c.at > func.now() - within)
            done = transaction.rows(young.order_by(audit.c.id).limit(1))
            if not done:
                transaction.rows(line(by, what))
            yield done[0].who if done else None

    def latest(self, count: int, after: int | None = None) -> Page[AuditRow, int]:
        """Return the latest lines, the newest first, from the one on that comes behind `after`."""
        older = true() if after is None else audit.c.id < after
        newest = select(audit).where(older).order_by(audit.c.id.desc()).limit(count + 1)
        found = [AuditRow(**row._asdict()) for row in self._database.rows(newest, repeatable=True)]
        return Page(found[:count], found[count - 1].id if len(found) > count else None)


def line(by: Operator, what: str) -> Insert:
    """Return the statement that adds a line."""
    return insert(audit).values(who=by.name, what=what, why=by.why)


def lines(by: Operator, what: str, delivery_ids: Sequence[str]) -> Insert:
    """Return the statement that adds a line which names these deliveries, or several where they are many."""
    parts = [delivery_ids[first : first + _IDS_IN_A_LINE] for first in range(0, len(delivery_ids), _IDS_IN_A_LINE)]
    return insert(audit).values(
        [
            {"who": by.name, "what": f"{what} {', '.join(part)}", "why": by.why, "deliveries": len(part)}
            for part in parts
        ]
    )
