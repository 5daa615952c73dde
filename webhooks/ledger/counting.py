"""How things stand: how many deliveries wait, are held for what, have failed for what, and which is overdue.

What is exact counts what is not delivered, by the partial indexes that know it. The delivered are most of a table that
only grows, and are told about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import Row, case, func, select, text

from webhooks.ledger.endpoints import unknown
from webhooks.ledger.shown import THE_ID, Reads
from webhooks.ledger.statements import HAS_ADDRESS, HOLDING
from webhooks.ledger.tables import deliveries, endpoints
from webhooks.ledger.transitions import HELD, NOW, WAITING
from webhooks.model import HeldFor, Reason, State

MOST_COUNTED = 20_000  # rows of a table that are counted one by one; how many there are beyond is an estimate
MOST_HOLDERS = 20

_NUMBER = func.count().label("number")

_PENDING = select(_NUMBER).where(deliveries.c.state == State.PENDING)
_FAILED = (
    select(deliveries.c.reason, _NUMBER, func.count().filter(deliveries.c.money).label("money"))
    .where(deliveries.c.state == State.FAILED)
    .group_by(deliveries.c.reason)
)
_FIRST_ROWS = select(_NUMBER).select_from(select(deliveries.c.id).limit(MOST_COUNTED + 1).subquery())
# What the planner thinks, which knows how the table has grown since it was looked at last.
_ESTIMATE = text("EXPLAIN (FORMAT JSON) SELECT FROM deliveries")

_BY_CAUSE = select(deliveries.c.held_for, _NUMBER).where(HELD).group_by(deliveries.c.held_for)
_OF_MERCHANT, _AT_ENDPOINT = (_BY_CAUSE.where(deliveries.c[name] == THE_ID) for name in ("merchant_id", "endpoint_id"))

_HAS_ANY = select(deliveries.c.id).where(deliveries.c.merchant_id == THE_ID).limit(1)
_REGISTERED = select(HAS_ADDRESS.label("has_address"), endpoints.c.paused_at).where(
    endpoints.c.id == THE_ID, endpoints.c.removed_at.is_(None)
)

_IS_DEFAULT = endpoints.c.id == endpoints.c.merchant_id
_IS_STRANGE = endpoints.c.id.is_(None) | (_IS_DEFAULT & endpoints.c.removed_at.is_not(None))
_STRANGERS = (
    select(HOLDING.c.endpoint_id)
    .outerjoin(endpoints, endpoints.c.id == HOLDING.c.endpoint_id)
    .where(_IS_STRANGE)
    .order_by(HOLDING.c.endpoint_id)
)

_IS_OVER = case(
    (deliveries.c.held_for == HeldFor.OPERATOR, endpoints.c.paused_at.is_(None)),
    (deliveries.c.held_for == HeldFor.ADDRESS, HAS_ADDRESS & endpoints.c.paused_at.is_(None)),
    else_=False,
)
_LET_GO = (
    select(deliveries.c.held_for, _NUMBER)
    .join(endpoints, endpoints.c.id == deliveries.c.endpoint_id)
    .where(HELD, _IS_OVER)
    .group_by(deliveries.c.held_for)
)

_HOLDERS = (
    select(deliveries.c.merchant_id, _NUMBER, func.bool_or(_IS_STRANGE).label("strange"))
    .outerjoin(endpoints, endpoints.c.id == deliveries.c.endpoint_id)
    .where(HELD)
    .group_by(deliveries.c.merchant_id)
    .order_by(_NUMBER.desc(), deliveries.c.merchant_id)
    .limit(MOST_HOLDERS)
)

_MOST_OVERDUE = (
    select(deliveries.c.id, (NOW - deliveries.c.due_at).label("overdue"))
    .where(WAITING, deliveries.c.due_at < NOW)
    .order_by(deliveries.c.due_at)
    .limit(1)
)


@dataclass(frozen=True, slots=True)
class Holding:
    """How many deliveries an endpoint has held, and what keeps all of them whatever its breaker says."""

    number: int
    stay_for: HeldFor | None


@dataclass(frozen=True, slots=True)
class Overdue:
    """A delivery that should have been sent, and for how long."""

    delivery_id: str
    span: timedelta


@dataclass(frozen=True, slots=True)
class Holder:
    """A merchant that holds deliveries; one that is not registered has no address to send them to."""

    merchant_id: str
    number: int
    registered: bool


@dataclass(frozen=True, slots=True)
class Standing:
    """How all deliveries stand.

    `held` and `failed` name only what there is; `let_go` of the held goes with the next sweep, as what it was held for
    is over. `failed_money` of the failed are of money events. `total` and `delivered` are exact on a small ledger, and
    otherwise (`is_about`) an estimate. `holders` are the merchants with the most held deliveries; `unregistered` all
    endpoints that hold some and belong to nobody who is registered.
    """

    pending: int
    held: Mapping[HeldFor, int]
    let_go: Mapping[HeldFor, int]
    failed: Mapping[Reason, int]
    failed_money: int
    total: int
    delivered: int
    is_about: bool
    most_overdue: Overdue | None
    holders: Sequence[Holder]
    unregistered: Sequence[str]

    @property
    def by_state(self) -> Mapping[State, int]:
        """How many there are in each state; every state is named."""
        return {
            State.PENDING: self.pending,
            State.HELD: sum(self.held.values()),
            State.DELIVERED: self.delivered,
            State.FAILED: sum(self.failed.values()),
        }


class Counts(Reads):
    """The ledger's numbers as operators see them."""

    def standing(self) -> Standing:
        """Return how all deliveries stand, without a look at what is delivered."""
        pending, held = self._rows(_PENDING)[0].number, self.count_held()
        failed = self._rows(_FAILED)
        unfinished = pending + sum(held.values()) + sum(row.number for row in failed)
        total, is_about = self._total(unfinished)
        return Standing(
            pending=pending,
            held=held,
            let_go=self.count_let_go(),
            failed={Reason(row.reason): row.number for row in failed},
            failed_money=sum(row.money for row in failed),
            total=total,
            delivered=total - unfinished,
            is_about=is_about,
            most_overdue=self.most_overdue(),
            holders=[Holder(row.merchant_id, row.number, not row.strange) for row in self._rows(_HOLDERS)],
            unregistered=self.unregistered(),
        )

    def _total(self, at_least: int) -> tuple[int, bool]:
        """Return how many deliveries there are, and whether that is an estimate; those that are known are among it."""
        counted = self._rows(_FIRST_ROWS)[0].number
        if counted <= MOST_COUNTED:
            return max(counted, at_least), False
        return max(counted, at_least, self._rows(_ESTIMATE)[0][0][0]["Plan"]["Plan Rows"]), True

    def count_by_state(self) -> Mapping[State, int]:
        """Return how many deliveries there are in each state, the delivered about where they are many."""
        unfinished = {
            State.PENDING: self._rows(_PENDING)[0].number,
            State.HELD: sum(self.count_held().values()),
            State.FAILED: sum(row.number for row in self._rows(_FAILED)),
        }
        total, _ = self._total(sum(unfinished.values()))
        return {**unfinished, State.DELIVERED: total - sum(unfinished.values())}

    def count_held(self, merchant_id: str | None = None) -> Mapping[HeldFor, int]:
        """Return how many deliveries are held for what, of one merchant or of all."""
        if merchant_id is None:
            return _by_cause(self._rows(_BY_CAUSE))
        return _by_cause(self._of(_OF_MERCHANT, merchant_id))

    def count_held_at(self, endpoint_id: str) -> Mapping[HeldFor, int]:
        """Return how many deliveries to an endpoint are held for what."""
        return _by_cause(self._of(_AT_ENDPOINT, endpoint_id))

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

    def count_let_go(self) -> Mapping[HeldFor, int]:
        """Return how many held deliveries are held for what is over by now: the next sweep lets them go."""
        return _by_cause(self._rows(_LET_GO))

    def most_overdue(self) -> Overdue | None:
        """Return the pending delivery that is longest past its due time; None when none is."""
        rows = self._rows(_MOST_OVERDUE)
        return Overdue(rows[0].id, rows[0].overdue) if rows else None


def _by_cause(rows: Sequence[Row[Any]]) -> Mapping[HeldFor, int]:
    return {HeldFor(row.held_for): row.number for row in rows}
