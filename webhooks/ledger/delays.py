"""What waits, and what waits too long: the endpoints that hold most, and the deliveries that are longest overdue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Integer, func, select

from webhooks.ledger.rows import DeliveryRow
from webhooks.ledger.shown import SHOWN, Reads, delivery_of
from webhooks.ledger.tables import deliveries
from webhooks.ledger.transitions import HELD, NOW, WAITING, the

_MOST = the("most", Integer)
_NUMBER = func.count().label("number")

_HOLDING_MOST = (
    select(
        deliveries.c.endpoint_id,
        func.min(deliveries.c.merchant_id).label("merchant_id"),
        _NUMBER,
        func.min(deliveries.c.accepted_at).label("oldest"),
    )
    .where(HELD)
    .group_by(deliveries.c.endpoint_id)
    .order_by(_NUMBER.desc(), deliveries.c.endpoint_id)
    .limit(_MOST)
)

_OVERDUE = select(*SHOWN).where(WAITING, deliveries.c.due_at < NOW).order_by(deliveries.c.due_at).limit(_MOST)


@dataclass(frozen=True, slots=True)
class Heap:
    """What an endpoint has held: how many deliveries, the oldest of them accepted then."""

    endpoint_id: str
    merchant_id: str
    number: int
    oldest: datetime


class Delays(Reads):
    """What waits, and since when, the worst first."""

    def holding_most(self, most: int) -> Sequence[Heap]:
        """Return the endpoints that hold the most deliveries, most first."""
        return [Heap(**row._asdict()) for row in self._rows(_HOLDING_MOST, the_most=most)]

    def overdue(self, most: int) -> Sequence[DeliveryRow]:
        """Return the pending deliveries that are longest past their due time and not being sent, the longest first."""
        return [delivery_of(row) for row in self._rows(_OVERDUE, the_most=most)]
