"""What is worth a notice, as the ledger knows it, and whom each notice has reached.

The ledger is asked and not Redis: a breaker that Redis has forgotten is no reason to begin counting anew, or to tell
anybody what is not so. Every statement is bounded, and does no harm when two run it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import text

from webhooks.ledger.database import Database
from webhooks.ledger.notices import NoticeRow, notice_of

NOTICE_REST = timedelta(days=1)
"""After a notice of failed money events of a merchant, before the next one; and how long a notice is tried."""

_LONGEST = timedelta(hours=1)  # between two tries
_NEW = 500  # breakers that one look finds open; the next one finds the others
_MANY = 100_000  # what is held or failed is counted up to here

# Of an endpoint with a million held deliveries the oldest say what holds them.
_OLDEST = """
    SELECT due_at, held_for FROM deliveries AS held
    WHERE held.state = 'held' AND held.endpoint_id = {endpoint} ORDER BY held.accepted_at, held.id LIMIT 1000
"""
# How many have failed of late at which endpoint: read once, for however many notices.
_FAILED_AT = f"""
    failed_at AS MATERIALIZED (
        SELECT endpoint_id, count(*) AS number FROM (
            SELECT endpoint_id FROM deliveries
            WHERE state = 'failed' AND NOT pruned AND finished_at > now() - CAST(:rest AS interval)
            ORDER BY finished_at DESC LIMIT {_MANY}
        ) AS latest GROUP BY endpoint_id
    )
"""  # noqa: S608 - of our own pieces, here as below
_HELD_AT = f"""
    (SELECT count(*) FROM (SELECT FROM deliveries AS held
        WHERE held.state = 'held' AND held.endpoint_id = e.id LIMIT {_MANY}) AS counted)
"""  # noqa: S608

# The gate says since when; where Redis was restored and remembers what is long over, what is held says otherwise.
_OPENED = text(f"""
    INSERT INTO notices (kind, key, merchant_id, endpoint_id, since)
    SELECT 'endpoint_paused', 'paused ' || e.id, e.merchant_id, e.id, least(now(), greatest(seen.since, coalesce(
        (SELECT min(oldest.due_at) FROM ({_OLDEST.format(endpoint="e.id")}) AS oldest
         WHERE oldest.held_for = 'breaker'), now())))
    FROM unnest(CAST(:ids AS text[]), CAST(:sinces AS timestamptz[])) AS seen (id, since)
    JOIN endpoints AS e ON e.id = seen.id AND e.removed_at IS NULL
    WHERE NOT EXISTS (SELECT FROM notices AS known WHERE known.key = 'paused ' || e.id)
    LIMIT {_NEW} ON CONFLICT (key) DO NOTHING
""")  # noqa: S608

_NOT_ANY_MORE = """
    WITH over AS (
        SELECT id FROM notices WHERE kind = 'endpoint_paused' AND key IS NOT NULL AND {which}
        ORDER BY id FOR UPDATE SKIP LOCKED
    ), forgotten AS (
        DELETE FROM notices WHERE id IN (SELECT id FROM over) AND noted_at IS NULL
    )
    UPDATE notices SET key = NULL, try_at = NULL
    WHERE id IN (SELECT id FROM over) AND noted_at IS NOT NULL
"""
_CLOSED = text(_NOT_ANY_MORE.format(which="endpoint_id = ANY(CAST(:ids AS text[]))"))
# Redis may have lost a breaker: as long as deliveries are held for it, it is only not known there yet.
_ONLY_THESE = text(
    _NOT_ANY_MORE.format(
        which=f"""NOT endpoint_id = ANY(CAST(:ids AS text[])) AND NOT EXISTS (
            SELECT FROM ({_OLDEST.format(endpoint="notices.endpoint_id")}) AS oldest WHERE oldest.held_for = 'breaker')
        """
    )
)

_RIPEN = text(f"""
    WITH {_FAILED_AT}, ripe AS (
        SELECT notices.id AS notice_id, e.id FROM notices JOIN endpoints AS e ON e.id = notices.endpoint_id
        WHERE kind = 'endpoint_paused' AND noted_at IS NULL AND since <= now() - CAST(:after AS interval)
            AND removed_at IS NULL AND paused_at IS NULL
        ORDER BY since, notices.id LIMIT {_NEW}
    )
    UPDATE notices SET noted_at = now(), try_at = now(), held = {_HELD_AT}, failed = coalesce(number, 0)
    FROM ripe AS e LEFT JOIN failed_at ON failed_at.endpoint_id = e.id
    WHERE notices.id = e.notice_id AND noted_at IS NULL
""")  # noqa: S608

_GONE = text(f"""
    WITH {_FAILED_AT}
    INSERT INTO notices (kind, key, merchant_id, endpoint_id, since, noted_at, try_at, held, failed)
    SELECT 'endpoint_gone', 'gone ' || to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD ') || e.id, e.merchant_id, e.id,
        now(), now(), now(), {_HELD_AT}, coalesce(number, 0)
    FROM endpoints AS e LEFT JOIN failed_at ON failed_at.endpoint_id = e.id
    WHERE e.id = ANY(CAST(:ids AS text[])) AND e.removed_at IS NULL
    ON CONFLICT (key) DO NOTHING
""")  # noqa: S608

# What is on the desk (see `webhooks.ledger.failures`) lies by merchant and reason: an index leads from one to the next,
# however much there is of each. A failure counts as the first where its merchant had no notice in the time before it,
# nor after it.
_ON_DESK = """
    state = 'failed' AND NOT pruned AND reason <> 'cancelled'
    AND (dismissed_at IS NULL OR dismissed_at < finished_at)
"""
_FAILED = text(f"""
    WITH RECURSIVE groups AS (
        (SELECT merchant_id, reason FROM deliveries WHERE {_ON_DESK} ORDER BY merchant_id, reason LIMIT 1)
        UNION ALL
        SELECT following.* FROM groups, LATERAL (
            SELECT merchant_id, reason FROM deliveries
            WHERE {_ON_DESK} AND (merchant_id, reason) > (groups.merchant_id, groups.reason)
            ORDER BY merchant_id, reason LIMIT 1
        ) AS following
    ), of_each AS (
        SELECT merchant_id, array_agg(reason) AS reasons, greatest(now() - CAST(:rest AS interval), (
            SELECT max(noted_at) + CAST(:rest AS interval) FROM notices
            WHERE notices.merchant_id = groups.merchant_id AND kind = 'money_failed')) AS begins
        FROM groups GROUP BY merchant_id
    ), firsts AS (
        SELECT DISTINCT ON (merchant_id) of_each.merchant_id, reasons, earliest.* FROM of_each,
        unnest(reasons) AS one (reason), LATERAL (
            SELECT id, endpoint_id, finished_at FROM deliveries
            WHERE {_ON_DESK} AND money AND merchant_id = of_each.merchant_id AND reason = one.reason
                AND finished_at >= begins
            ORDER BY finished_at, id LIMIT 1
        ) AS earliest ORDER BY merchant_id, finished_at, id
    )
    INSERT INTO notices (kind, key, merchant_id, endpoint_id, since, noted_at, try_at, failed)
    SELECT 'money_failed', 'failed ' || id || to_char(finished_at AT TIME ZONE 'UTC', ' YYYY-MM-DD HH24:MI:SS.US'),
        merchant_id, endpoint_id, finished_at, now(), now(), (
            SELECT count(*) FROM unnest(reasons) AS one (reason), LATERAL (
                SELECT FROM deliveries
                WHERE {_ON_DESK} AND money AND merchant_id = firsts.merchant_id AND reason = one.reason
                    AND finished_at > now() - CAST(:rest AS interval) LIMIT {_MANY}
            ) AS of_it)
    FROM firsts ON CONFLICT (key) DO NOTHING
""")  # noqa: S608

_TIDY = text("""
    WITH forgotten AS (
        DELETE FROM notices WHERE id IN (
            SELECT id FROM notices WHERE noted_at < now() - CAST(:keep AS interval) ORDER BY noted_at LIMIT 500)
    )
    UPDATE notices SET try_at = NULL WHERE try_at IS NOT NULL AND noted_at <= now() - CAST(:rest AS interval)
""")

_WAITING = text("""
    SELECT notices.*, e.url,
        (SELECT count(DISTINCT told_with) FROM notices WHERE told_at > now() - interval '1 hour') AS lately
    FROM notices LEFT JOIN endpoints AS e ON e.id = notices.endpoint_id
    WHERE try_at <= now() ORDER BY told_at IS NOT NULL, noted_at, notices.id LIMIT 1000
""")

_CLAIM = text("""
    UPDATE notices SET tries = tries + 1,
        try_at = now() + least(interval '1 minute' * power(2, least(tries, 10)), CAST(:longest AS interval))
    WHERE id = ANY(CAST(:ids AS bigint[])) AND try_at <= now() RETURNING id, now() AS now
""")

# By `told_with` the messages of an hour are counted: it stays what it was when the first recipient had it.
_REACHED = text("""
    UPDATE notices SET told_to = ARRAY(SELECT DISTINCT unnest(told_to || CAST(:recipients AS text[])) ORDER BY 1),
        told_at = coalesce(told_at, reached.at),
        told_with = CASE WHEN told_at IS NULL AND reached.at IS NOT NULL THEN first ELSE told_with END,
        trouble = :trouble, try_at = CASE WHEN :all THEN NULL ELSE try_at END
    FROM (SELECT CASE WHEN cardinality(CAST(:recipients AS text[])) > 0 THEN now() END AS at,
        (SELECT min(id) FROM notices WHERE id = ANY(CAST(:ids AS bigint[])) AND told_at IS NULL) AS first) AS reached
    WHERE id = ANY(CAST(:ids AS bigint[]))
""")


@dataclass(frozen=True, slots=True)
class Claimed:
    """Notices that are this process's to send, and the ledger's time."""

    ids: frozenset[int]
    now: datetime


class Noticing:
    """Notes what operators are to be told, and keeps whom it has reached."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def opened(self, since: Mapping[str, datetime | None]) -> None:
        """Note endpoints whose breaker is open, and since when as far as the gate knows; known ones stay as noted."""
        values = {"ids": list(since), "sinces": list(since.values())}
        self._database.rows(_OPENED, values, repeatable=True)

    def closed(self, endpoint_ids: Sequence[str]) -> None:
        """Note that these breakers were closed: what has not been told of them is not told any more."""
        self._database.rows(_CLOSED, {"ids": list(endpoint_ids)}, repeatable=True)

    def only_open(self, endpoint_ids: Sequence[str]) -> None:
        """Note that no other breakers are open, but for those for which deliveries are held."""
        self._database.rows(_ONLY_THESE, {"ids": list(endpoint_ids)}, repeatable=True)

    def ripen(self, after: timedelta) -> None:
        """Make notices of the endpoints whose breaker has been open for so long."""
        self._database.rows(_RIPEN, {"after": after, "rest": NOTICE_REST}, repeatable=True)

    def gone(self, endpoint_ids: Sequence[str]) -> None:
        """Note that these endpoints answer 410; once each day."""
        self._database.rows(_GONE, {"ids": list(endpoint_ids), "rest": NOTICE_REST}, repeatable=True)

    def failed(self) -> None:
        """Note each merchant of whom a money event has failed, for the first time in a day."""
        self._database.rows(_FAILED, {"rest": NOTICE_REST}, repeatable=True)

    def tidy(self, keep: timedelta) -> None:
        """Forget some notices that are older than `keep`, and give up those that reached nobody for a day."""
        self._database.rows(_TIDY, {"keep": keep, "rest": NOTICE_REST}, repeatable=True)

    def waiting(self) -> tuple[Sequence[NoticeRow], int]:
        """Return the notices to send now, those that nobody has before others and the oldest first.

        And how many messages were sent in the last hour.
        """
        rows = self._database.rows(_WAITING, repeatable=True)
        return [notice_of(row) for row in rows], rows[0].lately if rows else 0

    def claim(self, ids: Sequence[int]) -> Claimed | None:
        """Take notices to send them; None where somebody else has all of them. Each is put off for the next try."""
        rows = self._database.rows(_CLAIM, {"ids": list(ids), "longest": _LONGEST})
        return Claimed(frozenset(row.id for row in rows), rows[0].now) if rows else None

    def reached(self, ids: Sequence[int], recipients: Sequence[str], *, trouble: str | None) -> None:
        """Note which recipients have them, in one message; with no trouble nothing is left to do."""
        values = {"ids": list(ids), "recipients": list(recipients)}
        self._database.rows(_REACHED, {**values, "trouble": trouble, "all": trouble is None}, repeatable=True)
