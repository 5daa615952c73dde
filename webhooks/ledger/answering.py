"""How endpoints answer: how many of their attempts of late were answered 2xx, and how quickly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Integer, Interval, Text, bindparam, func, select, text
from sqlalchemy.dialects.postgresql import ARRAY

from webhooks.ledger.rows import AttemptRow
from webhooks.ledger.shown import SHOWN_OF_ATTEMPT, THE_ID, Reads, attempt_of
from webhooks.ledger.tables import attempts, deliveries, endpoints
from webhooks.ledger.transitions import the
from webhooks.model import HeldFor, Reason, State

HOUR, DAY = timedelta(hours=1), timedelta(days=1)

MOST_ANSWERS = 20_000  # of an endpoint's that are looked at: of a busy one, as far back as that goes

_IDS = bindparam("the_ids", type_=ARRAY(Text()))

_ENDPOINTS = select(endpoints.c.id).where(endpoints.c.merchant_id == THE_ID)

# Endpoint by endpoint, since an index has each one's attempts in their order.
_ANSWERED = text("""
WITH looked_at AS MATERIALIZED (
    SELECT made.*, row_number() OVER (PARTITION BY endpoint_id ORDER BY started_at DESC) AS place
    FROM unnest(:the_ids) AS its (id), LATERAL (
        SELECT endpoint_id, started_at, status, duration_ms FROM attempts
        WHERE endpoint_id = its.id AND started_at >= now() - :the_span
        ORDER BY started_at DESC LIMIT :the_most
    ) AS made
)
SELECT coalesce((SELECT max(started_at) FROM looked_at WHERE place = :the_most), now() - :the_span) AS since,
    count(*) AS number, count(*) FILTER (WHERE status BETWEEN 200 AND 299) AS delivered,
    percentile_disc(0.5) WITHIN GROUP (ORDER BY duration_ms) FILTER (WHERE status IS NOT NULL) AS median_ms
FROM looked_at
""").bindparams(_IDS, the("span", Interval), the("most", Integer))

_LAST = (
    select(*SHOWN_OF_ATTEMPT)
    .where(attempts.c.endpoint_id == THE_ID)
    .order_by(attempts.c.started_at.desc())
    .limit(the("most", Integer))
)

_NUMBER = func.count().label("number")
_HELD, _FAILED = (
    select(deliveries.c[name].label("why"), _NUMBER)
    .where(deliveries.c.state == state, deliveries.c.endpoint_id == func.any(_IDS))
    .group_by(deliveries.c[name])
    for name, state in (("held_for", State.HELD), ("reason", State.FAILED))
)


@dataclass(frozen=True, slots=True)
class Answered:
    """How attempts since a moment went; `median` is how long an answer took, None where there was none.

    `since` is later than what was asked for where an endpoint has made more attempts than are looked at.
    """

    since: datetime
    attempts: int
    delivered: int
    median: timedelta | None

    @property
    def share(self) -> float | None:
        """Which share of them was answered 2xx; None where there were none."""
        return self.delivered / self.attempts if self.attempts else None


@dataclass(frozen=True, slots=True)
class Performance:
    """How an endpoint, or all of a merchant's, answered within the last hour and day, and what stands there now."""

    hour: Answered
    day: Answered
    held: Mapping[HeldFor, int]
    failed: Mapping[Reason, int]


class Performances(Reads):
    """How endpoints do."""

    def performance_at(self, endpoint_id: str) -> Performance:
        """Return how an endpoint does; of one that nobody has heard of, that nothing was."""
        return self._performance([endpoint_id])

    def performance_of(self, merchant_id: str) -> Performance:
        """Return how all of a merchant's endpoints do, the removed ones among them."""
        return self._performance(self._endpoints_of(merchant_id))

    def last_answers(self, endpoint_id: str, limit: int) -> Sequence[AttemptRow]:
        """Return an endpoint's last attempts, the newest first."""
        return [attempt_of(row) for row in self._rows(_LAST, the_id=endpoint_id, the_most=limit)]

    def _endpoints_of(self, merchant_id: str) -> list[str]:
        return sorted({merchant_id, *(row.id for row in self._of(_ENDPOINTS, merchant_id))})

    def _performance(self, ids: list[str]) -> Performance:
        hour, day = (self._answered(ids, span) for span in (HOUR, DAY))
        held, failed = (self._rows(asked, the_ids=ids) for asked in (_HELD, _FAILED))
        return Performance(
            hour,
            day,
            {HeldFor(row.why): row.number for row in held},
            {Reason(row.why): row.number for row in failed},
        )

    def _answered(self, ids: list[str], span: timedelta) -> Answered:
        (row,) = self._rows(_ANSWERED, the_ids=ids, the_span=span, the_most=MOST_ANSWERS)
        median = None if row.median_ms is None else timedelta(milliseconds=row.median_ms)
        return Answered(row.since, row.number, row.delivered, median)
