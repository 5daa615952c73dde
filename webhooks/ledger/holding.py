"""What is held: how many deliveries, for what, at which endpoints and of whom.

All of it is counted by the index of what is held, without a look at the rows, and by nothing that grows with what is
delivered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Integer, Row, case, cast, func, literal, or_, select

from webhooks.ledger.endpoints import unknown
from webhooks.ledger.shown import THE_ID, Reads
from webhooks.ledger.statements import HAS_ADDRESS, HOLDING
from webhooks.ledger.tables import deliveries, endpoints
from webhooks.ledger.transitions import HELD, the
from webhooks.model import HeldFor

_COUNTED = func.count().label("number")

# Each endpoint that holds deliveries, with how many for what: all else is said of these.
_EACH = (
    select(*deliveries.c["endpoint_id", "held_for"], _COUNTED, func.min(deliveries.c.accepted_at).label("oldest"))
    .where(HELD)
    .group_by(*deliveries.c["endpoint_id", "held_for"])
    .subquery("each")
)
_NUMBER = cast(func.sum(_EACH.c.number), BigInteger).label("number")
_WITH_ENDPOINTS = _EACH.outerjoin(endpoints, endpoints.c.id == _EACH.c.endpoint_id)
_MERCHANT = func.coalesce(endpoints.c.merchant_id, _EACH.c.endpoint_id).label("merchant_id")
_MOST = the("most", Integer)

_BY_CAUSE = select(_EACH.c.held_for, _NUMBER, func.count().label("endpoints")).group_by(_EACH.c.held_for)

_OF = select(deliveries.c.held_for, _COUNTED).where(HELD).group_by(deliveries.c.held_for)
_AT_ENDPOINT = _OF.where(deliveries.c.endpoint_id == THE_ID)
_ITS_ENDPOINTS = select(endpoints.c.id).where(endpoints.c.merchant_id == THE_ID)
_OF_MERCHANT = _OF.where(or_(deliveries.c.endpoint_id == THE_ID, deliveries.c.endpoint_id.in_(_ITS_ENDPOINTS)))

_IS_DEFAULT = endpoints.c.id == endpoints.c.merchant_id
_IS_STRANGE = endpoints.c.id.is_(None) | (_IS_DEFAULT & endpoints.c.removed_at.is_not(None))
_STRANGERS = (
    select(HOLDING.c.endpoint_id)
    .outerjoin(endpoints, endpoints.c.id == HOLDING.c.endpoint_id)
    .where(_IS_STRANGE)
    .order_by(HOLDING.c.endpoint_id)
)

_IS_OVER = case(
    (_EACH.c.held_for == HeldFor.OPERATOR, endpoints.c.paused_at.is_(None)),
    (_EACH.c.held_for == HeldFor.ADDRESS, HAS_ADDRESS & endpoints.c.paused_at.is_(None)),
    else_=False,
)
_LET_GO = (
    select(_EACH.c.held_for, _NUMBER)
    .join(endpoints, endpoints.c.id == _EACH.c.endpoint_id)
    .where(_IS_OVER)
    .group_by(_EACH.c.held_for)
)

_ENDPOINTS = (
    select(_EACH.c.endpoint_id, _MERCHANT, _NUMBER, func.min(_EACH.c.oldest).label("oldest"))
    .select_from(_WITH_ENDPOINTS)
    .group_by(_EACH.c.endpoint_id, _MERCHANT)
    .order_by(_NUMBER.desc(), _EACH.c.endpoint_id)
    .limit(_MOST)
)
_MERCHANTS = (
    select(_MERCHANT, _NUMBER, (~func.bool_or(_IS_STRANGE)).label("registered"))
    .select_from(_WITH_ENDPOINTS)
    .group_by(_MERCHANT)
    .order_by(_NUMBER.desc(), _MERCHANT)
    .limit(_MOST)
)

_HAS_ANY = select(literal(1)).where(deliveries.c.merchant_id == THE_ID).limit(1)
_REGISTERED = select(HAS_ADDRESS.label("has_address"), endpoints.c.paused_at).where(
    endpoints.c.id == THE_ID, endpoints.c.removed_at.is_(None)
)


@dataclass(frozen=True, slots=True)
class Pile:
    """How many deliveries are held for one cause, and at how many endpoints."""

    number: int
    endpoints: int


@dataclass(frozen=True, slots=True)
class Holding:
    """How many deliveries an endpoint has held, and what keeps all of them whatever its breaker says."""

    number: int
    stay_for: HeldFor | None


@dataclass(frozen=True, slots=True)
class Heap:
    """What an endpoint has held: how many deliveries, the oldest of them accepted then."""

    endpoint_id: str
    merchant_id: str
    number: int
    oldest: datetime


@dataclass(frozen=True, slots=True)
class Holder:
    """A merchant that holds deliveries; one that is not registered has no address to send them to."""

    merchant_id: str
    number: int
    registered: bool


class Holds(Reads):
    """What is held, in numbers."""

    def count_held(self, merchant_id: str | None = None) -> Mapping[HeldFor, int]:
        """Return how many deliveries are held for what, of one merchant or of all."""
        if merchant_id is None:
            return {cause: pile.number for cause, pile in self.piles().items()}
        return _by_cause(self._of(_OF_MERCHANT, merchant_id))

    def count_held_at(self, endpoint_id: str) -> Mapping[HeldFor, int]:
        """Return how many deliveries to an endpoint are held for what."""
        return _by_cause(self._of(_AT_ENDPOINT, endpoint_id))

    def piles(self) -> Mapping[HeldFor, Pile]:
        """Return how much is held for what."""
        return {HeldFor(row.held_for): Pile(row.number, row.endpoints) for row in self._rows(_BY_CAUSE)}

    def count_let_go(self) -> Mapping[HeldFor, int]:
        """Return how many held deliveries are held for what is over by now: the next sweep lets them go."""
        return _by_cause(self._rows(_LET_GO))

    def holding(self, endpoint_id: str) -> Holding:
        """Return what an endpoint has held. Raises NotPossible for one nobody has heard of.

        That is one which is not registered, and has no delivery.
        """
        found = self._of(_REGISTERED, endpoint_id)
        if not found and not self._of(_HAS_ANY, endpoint_id):
            raise unknown(endpoint_id)
        number = sum(self.count_held_at(endpoint_id).values())
        if not found or not found[0].has_address:
            return Holding(number, HeldFor.ADDRESS)
        return Holding(number, HeldFor.OPERATOR if found[0].paused_at else None)

    def unregistered(self) -> Sequence[str]:
        """Return the merchants that hold deliveries and are not registered, by id; each costs one index entry."""
        return [row.endpoint_id for row in self._rows(_STRANGERS)]

    def holding_most(self, most: int) -> Sequence[Heap]:
        """Return the endpoints that hold the most deliveries, most first."""
        return [Heap(**row._asdict()) for row in self._rows(_ENDPOINTS, the_most=most)]

    def holders(self, most: int) -> Sequence[Holder]:
        """Return the merchants that hold the most deliveries, most first."""
        return [Holder(**row._asdict()) for row in self._rows(_MERCHANTS, the_most=most)]


def _by_cause(rows: Sequence[Row[Any]]) -> Mapping[HeldFor, int]:
    return {HeldFor(row.held_for): row.number for row in rows}
