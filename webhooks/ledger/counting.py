"""How things stand: how many deliveries wait, are held for what, have failed for what, and which is overdue.

What is exact counts what is not delivered, by the partial indexes that know it. The delivered are most of a table that
only grows, and are told about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Integer, Interval, and_, func, literal_column, select, text

from webhooks.ledger.database import Database
from webhooks.ledger.failures import OPEN
from webhooks.ledger.holding import Holder, Holds, Pile
from webhooks.ledger.tables import deliveries
from webhooks.ledger.transitions import NOW, WAITING, the
from webhooks.model import HeldFor, Reason, State

LATE = timedelta(minutes=1)  # past its due time, before a delivery counts as overdue
MOST_COUNTED = 20_000  # rows of a table that are counted one by one; how many there are beyond is an estimate
MOST_HOLDERS = 20

_NUMBER = func.count().label("number")

_PENDING = select(_NUMBER).where(deliveries.c.state == State.PENDING)
_FAILED = (
    select(deliveries.c.reason, _NUMBER, func.count().filter(deliveries.c.money).label("money"))
    .where(deliveries.c.state == State.FAILED)
    .group_by(deliveries.c.reason)
)
_MONEY_FAILED = select(_NUMBER).where(OPEN, deliveries.c.money)
_FIRST_ROWS = select(_NUMBER).select_from(select(deliveries.c.id).limit(MOST_COUNTED + 1).subquery())
# What the planner thinks, which knows how the table has grown since it was looked at last.
_ESTIMATE = text("EXPLAIN (FORMAT JSON) SELECT FROM deliveries")
# The server's own count of the rows that ever came into the table, those of transactions that were taken back as well.
_ACCEPTED = select(func.pg_stat_get_tuples_inserted(literal_column("'events'::regclass")).label("number"))

# Whatever is due has a moment for the sweep that is not further ahead: by that the index leaves out what is far.
_IS_DUE = and_(WAITING, deliveries.c.due_at < NOW, deliveries.c.sweep_at < NOW + the("recover_after", Interval))
_SPAN = NOW - deliveries.c.due_at
_OVERDUE = select(
    func.count().filter(deliveries.c.due_at < NOW - LATE).label("number"), func.max(_SPAN).label("oldest")
).where(_IS_DUE)
_LONGEST = (
    select(
        deliveries.c.id.label("delivery_id"),
        *deliveries.c["merchant_id", "type", "attempts", "due_at"],
        _SPAN.label("span"),
    )
    .where(_IS_DUE)
    .order_by(deliveries.c.due_at)
    .limit(the("most", Integer))
)


@dataclass(frozen=True, slots=True)
class Overdue:
    """A delivery that should have been sent, when, and for how long that has been so."""

    delivery_id: str
    merchant_id: str
    type: str
    attempts: int
    due_at: datetime
    span: timedelta


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


@dataclass(frozen=True, slots=True)
class Stock:
    """How much there is of what somebody should know about, as it is measured.

    `overdue` by more than LATE; `oldest` is the longest time past a due time. `money_failed` are on the desk.
    `accepted` counts events since the server began to count, about.
    """

    held: Mapping[HeldFor, Pile]
    overdue: int
    oldest: timedelta
    money_failed: int
    accepted: int


class Counts(Holds):
    """The ledger's numbers as operators see them."""

    def __init__(self, database: Database, *, recover_after: timedelta) -> None:
        super().__init__(database)
        self._recover_after = recover_after

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
            most_overdue=next(iter(self.overdue(1)), None),
            holders=self.holders(MOST_HOLDERS),
            unregistered=self.unregistered(),
        )

    def stock(self) -> Stock:
        """Return how much there is of what somebody should know about."""
        (due,) = self._rows(_OVERDUE, the_recover_after=self._recover_after)
        return Stock(
            held=self.piles(),
            overdue=due.number,
            oldest=due.oldest or timedelta(),
            money_failed=self._rows(_MONEY_FAILED)[0].number,
            accepted=self._rows(_ACCEPTED)[0].number,
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

    def overdue(self, most: int) -> Sequence[Overdue]:
        """Return the pending deliveries that are longest past their due time and not being sent, the longest first."""
        rows = self._rows(_LONGEST, the_most=most, the_recover_after=self._recover_after)
        return [Overdue(**row._asdict()) for row in rows]
