"""Attempts as they are written down, each told once: by which transactions could be seen when one last looked.

An attempt is written down when it is over, so an order of time would lose those that took longer than their neighbours.
PostgreSQL knows better which rows are new: those whose transaction the snapshot before did not see, and this one does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Interval, text

from webhooks.ledger.database import Database
from webhooks.ledger.rows import AttemptRow
from webhooks.ledger.shown import Reads, attempt_of
from webhooks.ledger.transitions import the

LATEST = timedelta(minutes=2)
"""How long after its beginning an attempt may be written down, and is still told; while the ledger is there."""

_PAGE = 500

_LOOK = text("SELECT CAST(pg_current_snapshot() AS text) AS seen, now() AS moment")

# A row says which transaction wrote it in 32 bits; the rest of its number is that of the snapshot, or one less.
_NEWS = text("""
WITH snapshot AS MATERIALIZED (
    SELECT CAST(:the_seen AS pg_snapshot) AS seen, CAST(:the_before AS pg_snapshot) AS before,
        CAST(CAST(pg_snapshot_xmax(CAST(:the_seen AS pg_snapshot)) AS text) AS bigint) AS latest
), written AS (
    SELECT attempts.*, CAST(CAST((latest >> 32 << 32) + CAST(CAST(attempts.xmin AS text) AS bigint)
            - CASE WHEN CAST(CAST(attempts.xmin AS text) AS bigint) > latest & 4294967295 THEN 4294967296 ELSE 0 END
        AS text) AS xid8) AS by, seen, before
    FROM attempts, snapshot
    WHERE started_at >= CAST(:the_since AS timestamptz) - CAST(:the_latest AS interval)
)
SELECT written.delivery_id, number, started_at, duration_ms, outcome, status, cause, excerpt, ladder, probe,
    deliveries.merchant_id, deliveries.endpoint_id, deliveries.type, deliveries.money
FROM written JOIN deliveries ON deliveries.id = written.delivery_id
WHERE pg_visible_in_snapshot(by, seen) AND NOT coalesce(pg_visible_in_snapshot(by, before), false)
    AND (written.started_at, written.delivery_id, number) > (CAST(:the_start AS timestamptz), :the_id, :the_number)
    AND (CAST(:the_merchant AS text) IS NULL OR deliveries.merchant_id = :the_merchant)
    AND (CAST(:the_endpoint AS text) IS NULL OR deliveries.endpoint_id = :the_endpoint)
    AND NOT (:the_failed AND outcome = 'delivered')
ORDER BY written.started_at, written.delivery_id, number
LIMIT :the_most
""").bindparams(the("latest", Interval))


@dataclass(frozen=True, slots=True)
class News:
    """An attempt that was written down, and of what delivery it was."""

    merchant_id: str
    endpoint_id: str
    type: str
    money: bool
    attempt: AttemptRow


@dataclass(frozen=True, slots=True)
class Followed:
    """Whose attempts are told; what is None does not narrow them. `failed`: only those that were not answered 2xx."""

    merchant_id: str | None = None
    endpoint_id: str | None = None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class _Look:
    seen: str
    moment: datetime


class Tail(Reads):
    """Tells each attempt once, however long its transaction took; of the past, what began `since` then.

    One whose outcome was unknown at first is told once more when its answer is written down after all.
    """

    def __init__(self, database: Database, followed: Followed, since: datetime | None = None) -> None:
        super().__init__(database)
        self._followed = followed
        self._since = since
        self._before: _Look | None = None
        self._now: _Look | None = None
        self._last: tuple[datetime, str, int] | None = None

    def news(self) -> Iterator[News]:
        """Yield what was written down since the call before; nothing at first, unless something of the past is asked.

        Where the ledger fails in between, the next call goes on behind what was yielded last.
        """
        if self._before is None and self._since is None:
            self._before = self._look()
            return
        self._now = self._now or self._look()
        while found := self._page(self._now):
            for row in found:
                self._last = row.started_at, row.delivery_id, row.number
                yield News(row.merchant_id, row.endpoint_id, row.type, row.money, attempt_of(row))
            if len(found) < _PAGE:
                break
        self._before, self._now, self._last = self._now, None, None

    def _look(self) -> _Look:
        (row,) = self._rows(_LOOK)
        return _Look(row.seen, row.moment)

    def _page(self, now: _Look) -> Sequence[Any]:
        since = self._before.moment if self._before else self._since
        start, its_id, number = self._last or (datetime.fromisoformat("0001-01-02T00:00:00Z"), "", 0)
        return self._rows(
            _NEWS,
            the_seen=now.seen,
            the_before=self._before.seen if self._before else None,
            the_since=since,
            the_latest=LATEST if self._before else timedelta(),
            the_start=start,
            the_id=its_id,
            the_number=number,
            the_merchant=self._followed.merchant_id,
            the_endpoint=self._followed.endpoint_id,
            the_failed=self._followed.failed,
            the_most=_PAGE,
        )
