"""The notices that operators were sent, or are to be sent, as they read them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import BigInteger, Integer, Row, bindparam, or_, select, tuple_

from webhooks.errors import NotPossible
from webhooks.ledger.database import Database
from webhooks.ledger.rows import Page
from webhooks.ledger.side_tables import notices
from webhooks.ledger.tables import endpoints
from webhooks.observing.operators import NoticeKind

_AFTER = bindparam("the_after", type_=BigInteger())

_LAST = notices.alias("last")
_OLDER = tuple_(notices.c.noted_at, notices.c.id) < (
    select(_LAST.c.noted_at, _LAST.c.id).where(_LAST.c.id == _AFTER).scalar_subquery()
)
_LATEST = (
    select(notices, endpoints.c.url)
    .outerjoin(endpoints, endpoints.c.id == notices.c.endpoint_id)
    .where(notices.c.noted_at.is_not(None), or_(_AFTER.is_(None), _OLDER))
    .order_by(notices.c.noted_at.desc(), notices.c.id.desc())
    .limit(bindparam("the_most", type_=Integer()))
)
_IS_KNOWN = select(notices.c.id).where(notices.c.id == _AFTER)


class Reached(StrEnum):
    """How far a notice has come."""

    WAITING = "waiting"
    TOLD = "told"  # every recipient has it
    GIVEN_UP = "given up"  # a recipient has not taken it for a day, or what it says was over before


@dataclass(frozen=True, slots=True)
class NoticeRow:
    """A notice: what it says, and whom it has reached.

    `host` is all that is told of an address. `told_with`: several were told in one message, by the id of the first.
    `trouble` is what kept a recipient from taking it.
    """

    id: int
    kind: NoticeKind
    merchant_id: str
    endpoint_id: str | None
    host: str | None
    since: datetime
    noted_at: datetime
    held: int
    failed: int
    reached: Reached
    tries: int
    told_at: datetime | None
    told_to: tuple[str, ...]
    told_with: int | None
    trouble: str | None


class Notices:
    """The ledger's notices, for operators."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def latest(self, count: int, after: int | None = None) -> Page[NoticeRow, int]:
        """Return the latest notices, the newest first, from the one on that comes behind `after`.

        Raises NotPossible where there is none of that number.
        """
        values = {"the_most": count + 1, "the_after": after}
        found = [notice_of(row) for row in self._database.rows(_LATEST, values, repeatable=True)]
        if not found and after is not None and not self._database.rows(_IS_KNOWN, {"the_after": after}):
            raise NotPossible(f"no notice {after}; see: webhooks notice list")
        return Page(found[:count], found[count - 1].id if len(found) > count else None)


def notice_of(row: Row[Any]) -> NoticeRow:
    """Read a row of the table, with the address that its endpoint has now."""
    return NoticeRow(
        id=row.id,
        kind=NoticeKind(row.kind),
        merchant_id=row.merchant_id,
        endpoint_id=row.endpoint_id,
        host=_host_of(row.url),
        since=row.since,
        noted_at=row.noted_at,
        held=row.held,
        failed=row.failed,
        reached=Reached.WAITING if row.try_at else Reached.GIVEN_UP if row.trouble or not row.told_at else Reached.TOLD,
        tries=row.tries,
        told_at=row.told_at,
        told_to=tuple(row.told_to),
        told_with=row.told_with if row.told_with != row.id else None,
        trouble=row.trouble,
    )


def _host_of(url: str | None) -> str | None:
    try:
        return urlsplit(url).hostname if url else None
    except ValueError:  # stored behind the back of our checks
        return None
