"""How much goes through: accepted, delivered and failed by the minute, and how late what is due was sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import DateTime, Interval, Row, func, select, text

from webhooks.ledger.shown import Reads
from webhooks.ledger.tallying import COUNTED
from webhooks.ledger.transitions import the

_MINUTE, _HOUR, _DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
_STEP = timedelta(minutes=5)  # of the picture of a day
_UNCOUNTED = timedelta(minutes=5)

# What is not counted yet is counted now: the minutes since the last tally, as far as that was not long ago.
_PACE = text(f"""
WITH minutes AS (
    SELECT * FROM tallies WHERE minute >= :the_until - :the_span AND minute < :the_until
    UNION ALL
    SELECT since, accepted, delivered, failed, lag, longest_lag
    FROM generate_series(:the_until - :the_uncounted, :the_until - interval '1 minute', interval '1 minute') AS since,
        LATERAL (SELECT since + interval '1 minute' AS until) AS ends, LATERAL ({COUNTED}) AS counted
    WHERE NOT EXISTS (SELECT FROM tallies WHERE minute = since)
)
SELECT since, coalesce(sum(accepted), 0)::bigint AS accepted, coalesce(sum(delivered), 0)::bigint AS delivered,
    coalesce(sum(failed), 0)::bigint AS failed,
    percentile_disc(0.5) WITHIN GROUP (ORDER BY lag) AS lag, max(longest_lag) AS longest_lag
FROM generate_series(:the_until - :the_span, :the_until - :the_step, :the_step) AS since
LEFT JOIN minutes ON minute >= since AND minute < since + :the_step
GROUP BY since ORDER BY since
""").bindparams(  # noqa: S608 - all of it is written here
    *(the(name, Interval) for name in ("span", "step", "uncounted")), the("until", DateTime(timezone=True))
)

_LAST_MINUTE = text(f"""
SELECT since, counted.* FROM (SELECT now() - interval '1 minute' AS since, now() AS until) AS ends,
    LATERAL ({COUNTED}) AS counted
""")  # noqa: S608 - as above

_MINUTES = select(func.date_trunc("minute", func.now()).label("minute"))


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
        (last,), (now,) = self._rows(_LAST_MINUTE), self._rows(_MINUTES)
        hour, day = self._tallies(now.minute, _HOUR, _MINUTE), self._tallies(now.minute, _DAY, _STEP)
        return Pace(_tally(last, _MINUTE), hour, day)

    def _tallies(self, until: datetime, span: timedelta, step: timedelta) -> Sequence[Tally]:
        values = {"the_until": until, "the_span": span, "the_step": step, "the_uncounted": _UNCOUNTED}
        return [_tally(row, step) for row in self._rows(_PACE, **values)]


def _tally(row: Row[Any], lasts: timedelta) -> Tally:
    return Tally(row.since, lasts, row.accepted, row.delivered, row.failed, row.lag, row.longest_lag)
