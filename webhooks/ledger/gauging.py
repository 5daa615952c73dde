"""How much there is in the ledger of what somebody should know about, in numbers; each read by an index of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Integer, Interval, and_, func, literal_column, select

from webhooks.ledger.database import Database
from webhooks.ledger.failures import OPEN
from webhooks.ledger.tables import deliveries
from webhooks.ledger.transitions import HELD, NOW, WAITING, the
from webhooks.model import HeldFor

LATE = timedelta(minutes=1)  # past its due time, before a delivery counts as overdue

_NUMBER = func.count().label("number")

_EACH = (
    select(*deliveries.c["endpoint_id", "held_for"], _NUMBER)
    .where(HELD)
    .group_by(*deliveries.c["endpoint_id", "held_for"])
    .subquery("each")
)
_HELD = select(_EACH.c.held_for, func.sum(_EACH.c.number).label("number"), func.count().label("endpoints")).group_by(
    _EACH.c.held_for
)
_MOST_HELD = (
    select(deliveries.c.endpoint_id, _NUMBER)
    .where(HELD)
    .group_by(deliveries.c.endpoint_id)
    .order_by(_NUMBER.desc(), deliveries.c.endpoint_id)
    .limit(the("most", Integer))
)

# Whatever is due has a moment for the sweep that is not further ahead: by that the index leaves out what is far.
_IS_DUE = and_(WAITING, deliveries.c.due_at < NOW, deliveries.c.sweep_at < NOW + the("recover_after", Interval))
_OVERDUE = select(
    func.count().filter(deliveries.c.due_at < NOW - LATE).label("number"),
    func.max(NOW - deliveries.c.due_at).label("oldest"),
).where(_IS_DUE)

_MONEY_FAILED = select(_NUMBER).where(OPEN, deliveries.c.money)

# The server's own count of the rows that ever came into the table, those of transactions that were taken back as well.
_ACCEPTED = select(func.pg_stat_get_tuples_inserted(literal_column("'events'::regclass")).label("number"))


@dataclass(frozen=True, slots=True)
class Stock:
    """How much there is: deliveries held for what, and at how many endpoints; overdue; of money, those on the desk.

    `most_held` are the endpoints with the most held deliveries. `oldest` is the longest time past a due time.
    `accepted` counts events since the server began to count, about.
    """

    held: Mapping[HeldFor, int]
    endpoints: Mapping[HeldFor, int]
    most_held: Mapping[str, int]
    overdue: int
    oldest: timedelta
    money_failed: int
    accepted: int


class Gauging:
    """The ledger as it is measured."""

    def __init__(self, database: Database, *, recover_after: timedelta) -> None:
        self._database = database
        self._recover_after = recover_after

    def stock(self, *, most: int = 0, within: timedelta = timedelta(seconds=5)) -> Stock:
        """Return how much there is, and the `most` endpoints with the most held deliveries."""
        with self._database.within(within):
            held = self._database.rows(_HELD, repeatable=True)
            named = self._database.rows(_MOST_HELD, {"the_most": most}, repeatable=True) if most else ()
            (due,) = self._database.rows(_OVERDUE, {"the_recover_after": self._recover_after}, repeatable=True)
            (failed,) = self._database.rows(_MONEY_FAILED, repeatable=True)
            (accepted,) = self._database.rows(_ACCEPTED, repeatable=True)
        return Stock(
            held={HeldFor(row.held_for): int(row.number) for row in held},
            endpoints={HeldFor(row.held_for): row.endpoints for row in held},
            most_held={row.endpoint_id: row.number for row in named},
            overdue=due.number,
            oldest=due.oldest or timedelta(),
            money_failed=failed.number,
            accepted=accepted.number,
        )
