"""How endpoints answer: how many of their attempts of late were answered 2xx, and how quickly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Integer, Interval, Row, Text, and_, bindparam, func, select
from sqlalchemy.dialects.postgresql import ARRAY

from webhooks.ledger.rows import AttemptRow
from webhooks.ledger.shown import SHOWN_OF_ATTEMPT, THE_ID, Reads, attempt_of
from webhooks.ledger.tables import attempts, deliveries, endpoints
from webhooks.ledger.transitions import NOW, the
from webhooks.model import HeldFor, Outcome, Reason, State

HOUR, DAY = timedelta(hours=1), timedelta(days=1)

_IDS = bindparam("the_ids", type_=ARRAY(Text()))
_NUMBER = func.count().label("number")

_ENDPOINTS = select(endpoints.c.id).where(endpoints.c.merchant_id == THE_ID)

_AT = deliveries.c.endpoint_id == func.any(_IDS)
_SINCE = NOW - the("span", Interval)
_ANSWERS = (
    select(
        _SINCE.label("since"),
        _NUMBER,
        func.count().filter(attempts.c.outcome == Outcome.DELIVERED).label("delivered"),
        func.percentile_disc(0.5)
        .within_group(attempts.c.duration_ms)
        .filter(attempts.c.status.is_not(None))
        .label("median_ms"),
    )
    .join(deliveries, deliveries.c.id == attempts.c.delivery_id)
    .where(_AT, attempts.c.started_at >= _SINCE)
)
_LAST = (
    select(*SHOWN_OF_ATTEMPT)
    .join(deliveries, deliveries.c.id == attempts.c.delivery_id)
    .where(_AT)
    .order_by(attempts.c.started_at.desc())
    .limit(the("most", Integer))
)
_HELD, _FAILED = (
    select(deliveries.c[name].label("why"), _NUMBER)
    .where(and_(deliveries.c.state == state, _AT))
    .group_by(deliveries.c[name])
    for name, state in (("held_for", State.HELD), ("reason", State.FAILED))
)


@dataclass(frozen=True, slots=True)
class Answered:
    """How attempts since a moment went; `median` is how long an answer took, None where there was none."""

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
        return [attempt_of(row) for row in self._rows(_LAST, the_ids=[endpoint_id], the_most=limit)]

    def _endpoints_of(self, merchant_id: str) -> list[str]:
        return sorted({merchant_id, *(row.id for row in self._of(_ENDPOINTS, merchant_id))})

    def _performance(self, ids: list[str]) -> Performance:
        hour, day = (_answers(self._rows(_ANSWERS, the_ids=ids, the_span=span)[0]) for span in (HOUR, DAY))
        held, failed = (self._rows(asked, the_ids=ids) for asked in (_HELD, _FAILED))
        return Performance(
            hour,
            day,
            {HeldFor(row.why): row.number for row in held},
            {Reason(row.why): row.number for row in failed},
        )


def _answers(row: Row[Any]) -> Answered:
    median = None if row.median_ms is None else timedelta(milliseconds=row.median_ms)
    return Answered(row.since, row.number, row.delivered, median)
