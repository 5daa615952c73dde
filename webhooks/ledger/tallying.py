"""Counting what went through, minute by minute, so that nobody has to count a day's deliveries to see its picture."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import Interval, text

from webhooks.ledger.database import Database
from webhooks.ledger.transitions import the

SAMPLE = 500  # deliveries of a minute whose lag is looked at, the first that were delivered in it
KEPT = timedelta(days=8)
_AT_ONCE = timedelta(hours=2)
_AGAIN = timedelta(minutes=3)  # counted once more, since a producer's transaction may commit what it accepted before
_FIRST = timedelta(days=1)  # where nothing was counted yet

# What happened from `since` to `until`, each number by an index that knows it in order of time. Lag is told of what was
# never held: then the turn has moved with each attempt, and with nothing else.
COUNTED = f"""
SELECT (SELECT count(*) FROM deliveries WHERE accepted_at >= since AND accepted_at < until) AS accepted,
    (SELECT count(*) FROM deliveries WHERE state = 'delivered' AND finished_at IS NOT NULL AND NOT pruned
        AND finished_at >= since AND finished_at < until) AS delivered,
    (SELECT count(*) FROM deliveries WHERE state = 'failed' AND finished_at IS NOT NULL AND NOT pruned
        AND finished_at >= since AND finished_at < until) AS failed,
    percentile_disc(0.5) WITHIN GROUP (ORDER BY late) AS lag, max(late) AS longest_lag
FROM (
    SELECT greatest(started_at - due_at, interval '0') AS late
    FROM (
        SELECT id, attempts, due_at FROM deliveries WHERE state = 'delivered' AND finished_at IS NOT NULL
            AND NOT pruned AND finished_at >= since AND finished_at < until AND turn = attempts
        LIMIT {SAMPLE}
    ) AS sent JOIN attempts ON delivery_id = sent.id AND number = sent.attempts
) AS lags
"""  # noqa: S608 - all of it is written here

_TALLY = text(f"""
WITH span AS (
    SELECT greatest(coalesce((SELECT max(minute) + interval '1 minute' - :the_again FROM tallies), today - :the_first),
        today - :the_kept) AS began, today
    FROM (SELECT date_trunc('minute', now()) AS today) AS clock
), forgotten AS (
    DELETE FROM tallies WHERE minute < now() - :the_kept
)
INSERT INTO tallies (minute, accepted, delivered, failed, lag, longest_lag)
SELECT since, accepted, delivered, failed, lag, longest_lag
FROM span,
    generate_series(began, least(began + :the_at_once, today) - interval '1 minute', interval '1 minute') AS since,
    LATERAL (SELECT since + interval '1 minute' AS until) AS ends,
    LATERAL ({COUNTED}) AS counted
ON CONFLICT (minute) DO UPDATE SET accepted = excluded.accepted, delivered = excluded.delivered,
    failed = excluded.failed, lag = excluded.lag, longest_lag = excluded.longest_lag
RETURNING minute
""").bindparams(*(the(name, Interval) for name in ("again", "first", "kept", "at_once")))  # noqa: S608 - as above


class Tallying:
    """Counts the minutes that are over; to do it twice, or by two at once, does no harm."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def tally(self) -> int:
        """Count the minutes since the last one that was counted, up to two hours of them. Returns how many."""
        spans = {"the_again": _AGAIN, "the_first": _FIRST, "the_kept": KEPT, "the_at_once": _AT_ONCE}
        return len(self._database.rows(_TALLY, spans, repeatable=True))
