"""How much goes through: accepted, delivered and failed by the minute, and how late what is due was sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Interval, Row, text

from webhooks.ledger.shown import Reads
from webhooks.ledger.transitions import the

_MINUTE, _HOUR, _DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
_STEP = timedelta(minutes=5)  # of the picture of a day

_PACE = text("""
WITH steps AS (
    SELECT since, since + CAST(:the_step AS interval) AS until
    FROM generate_series(CAST(:the_until AS timestamptz) - CAST(:the_span AS interval),
        CAST(:the_until AS timestamptz) - CAST(:the_step AS interval), CAST(:the_step AS interval)) AS since
), accepted AS (
    SELECT date_bin(:the_step, accepted_at, :the_until) AS since, count(*) AS number FROM deliveries
    WHERE accepted_at >= CAST(:the_until AS timestamptz) - CAST(:the_span AS interval) AND accepted_at < :the_until
    GROUP BY 1
), ended AS (
    SELECT date_bin(:the_step, finished_at, :the_until) AS since,
        count(*) FILTER (WHERE state = 'delivered') AS delivered, count(*) FILTER (WHERE state = 'failed') AS failed,
        percentile_disc(0.5) WITHIN GROUP (ORDER BY lag) AS lag, max(lag) AS longest_lag
    FROM (
        SELECT deliveries.*, (SELECT started_at - due_at FROM attempts WHERE delivery_id = id AND number = attempts
            AND state = 'delivered' AND turn = attempts) AS lag
        FROM deliveries
        WHERE finished_at >= CAST(:the_until AS timestamptz) - CAST(:the_span AS interval) AND finished_at < :the_until
    ) AS those GROUP BY 1
)
SELECT since, coalesce(accepted.number, 0) AS accepted, coalesce(delivered, 0) AS delivered,
    coalesce(failed, 0) AS failed, lag, longest_lag
FROM steps LEFT JOIN accepted USING (since) LEFT JOIN ended USING (since) ORDER BY since
""").bindparams(the("step", Interval), the("span", Interval))

_NOW = text("SELECT now() AS moment, date_trunc('minute', now()) AS minute")


@dataclass(frozen=True, slots=True)
class Tally:
    """What happened from a moment on, for so long.

    `lag` and `longest_lag` are how long past its due time what was delivered had been sent, of deliveries that were
    never held; None where there were none.
    """

    since: datetime
    lasts: timedelta
    accepted: int
    delivered: int
    failed: int
    lag: timedelta | None
    longest_lag: timedelta | None


@dataclass(frozen=True, slots=True)
class Pace:
    """The last 60 seconds, the last hour by the minute and the last day by 5 minutes, the newest last."""

    last_minute: Tally
    hour: Sequence[Tally]
    day: Sequence[Tally]


class Paces(Reads):
    """How much goes through the ledger."""

    def pace(self) -> Pace:
        """Return what went through of late, deliveries for each endpoint; a step that nothing happened in is there."""
        (now,) = self._rows(_NOW)
        (last,) = self._tallies(now.moment, _MINUTE, _MINUTE)
        return Pace(last, self._tallies(now.minute, _HOUR, _MINUTE), self._tallies(now.minute, _DAY, _STEP))

    def _tallies(self, until: datetime, span: timedelta, step: timedelta) -> Sequence[Tally]:
        return [_tally(row, step) for row in self._rows(_PACE, the_until=until, the_span=span, the_step=step)]


def _tally(row: Row[Any], lasts: timedelta) -> Tally:
    lag = None if row.lag is None else max(row.lag, timedelta())
    longest = None if row.longest_lag is None else max(row.longest_lag, timedelta())
    return Tally(row.since, lasts, row.accepted, row.delivered, row.failed, lag, longest)
