"""What operators did by hand: who, when, what and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta

from sqlalchemy import BigInteger, Insert, Integer, Interval, Text, bindparam, func, insert, or_, select

from webhooks.ledger.database import Database
from webhooks.ledger.rows import AuditRow, Page
from webhooks.ledger.side_tables import audit
from webhooks.model import Operator
from webhooks.observing.observers import NOBODY, Observers
from webhooks.observing.operators import Acted

_AFTER, _WHAT = bindparam("the_after", type_=BigInteger()), bindparam("the_what", type_=Text())

_LATEST = (
    select(audit)
    .where(or_(_AFTER.is_(None), audit.c.id < _AFTER))
    .order_by(audit.c.id.desc())
    .limit(bindparam("the_most", type_=Integer()))
)

_LOCK = select(func.pg_advisory_xact_lock(func.hashtextextended(_WHAT, 0)))

_YOUNG = (
    select(audit.c.who)
    .where(audit.c.what == _WHAT, audit.c.at > func.now() - bindparam("the_age", type_=Interval()))
    .order_by(audit.c.id)
    .limit(1)
)

_IDS_IN_A_LINE = 100  # so that a line stays readable when a replay is of thousands


class Audit:
    """The operators' record; lines are only ever added."""

    def __init__(self, database: Database, observers: Observers = NOBODY) -> None:
        self._database = database
        self._observers = observers

    @contextmanager
    def once(self, by: Operator, what: str, *, within: timedelta = timedelta(seconds=10)) -> Iterator[str | None]:
        """Add a line for what is done in the block, unless there is one that young; gives who did it then, else None.

        Others who ask at the same time wait for the end of the block. Where it raises, there is no line.
        """
        with self._database.transaction() as transaction:
            transaction.rows(_LOCK, {"the_what": what})
            done = transaction.rows(_YOUNG, {"the_what": what, "the_age": within})
            if not done:
                transaction.rows(line(by, what))
            yield done[0].who if done else None
        if not done:
            self._observers.tell(Acted(by.name, what, by.why, None))

    def latest(self, count: int, after: int | None = None) -> Page[AuditRow, int]:
        """Return the latest lines, the newest first, from the one on that comes behind `after`."""
        values = {"the_most": count + 1, "the_after": after}
        found = [AuditRow(**row._asdict()) for row in self._database.rows(_LATEST, values, repeatable=True)]
        return Page(found[:count], found[count - 1].id if len(found) > count else None)


def line(by: Operator, what: str) -> Insert:
    """Return the statement that adds a line."""
    return insert(audit).values(who=by.name, what=what, why=by.why)


def told_of(by: Operator, what: str, delivery_ids: Sequence[str]) -> Sequence[Acted]:
    """Return what is told of an act on these deliveries: one fact that names them, or several where they are many."""
    parts = [delivery_ids[first : first + _IDS_IN_A_LINE] for first in range(0, len(delivery_ids), _IDS_IN_A_LINE)]
    return [Acted(by.name, f"{what} {', '.join(part)}", by.why, len(part)) for part in parts]


def lines(acted: Sequence[Acted]) -> Insert:
    """Return the statement that adds a line for each."""
    return insert(audit).values([asdict(each) for each in acted])
