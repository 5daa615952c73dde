"""What operators read from the ledger: deliveries with all their attempts, and how things stand. No body, no secret."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, TypeVarTuple

from sqlalchemy import Executable, Row, Select, Text, and_, bindparam, case, func, or_, select

from webhooks.errors import NotPossible
from webhooks.ledger.database import Database
from webhooks.ledger.endpoints import unknown
from webhooks.ledger.rows import AttemptRow, DeliveryRow, EventRow, History, Page
from webhooks.ledger.statements import ELSEWHERE, HAS_ADDRESS, HOLDING
from webhooks.ledger.tables import attempts, deliveries, endpoints, events
from webhooks.ledger.transitions import HELD, NOW, WAITING
from webhooks.model import HeldFor, Ladder, Outcome, Reason, State, event_of

_SHOWN = [deliveries.c[field.name] for field in fields(DeliveryRow)]
_WORDS = {"state": State, "reason": Reason, "held_for": HeldFor, "outcome": Outcome, "ladder": Ladder}

_EVENT = select(
    *events.c["id", "merchant_id", "type", "money", "accepted_at"],
    func.encode(events.c.body_sha256, "hex").label("body_sha256"),
    func.octet_length(events.c.body).label("body_bytes"),
    events.c.unmatched,
).where(events.c.id == bindparam("the_id", type_=Text()))

_NUMBER = func.count().label("number")
_ID = bindparam("the_id", type_=Text())

_ONE = select(*_SHOWN).where(deliveries.c.id == _ID)
_JOURNEY = select(attempts).where(attempts.c.delivery_id == _ID).order_by(attempts.c.number)
_OF_EVENT = (
    select(*_SHOWN)
    .where(or_(deliveries.c.id == _ID, and_(deliveries.c.event_id == _ID, ELSEWHERE)))
    .order_by(deliveries.c.endpoint_id)
)
_BODY = select(events.c.body).where(events.c.id == _ID)

_BY_STATE = select(deliveries.c.state, _NUMBER).group_by(deliveries.c.state)
_BY_CAUSE = select(deliveries.c.held_for, _NUMBER).where(HELD).group_by(deliveries.c.held_for)
_OF_MERCHANT, _AT_ENDPOINT = (_BY_CAUSE.where(deliveries.c[name] == _ID) for name in ("merchant_id", "endpoint_id"))

_HAS_ANY = select(deliveries.c.id).where(deliveries.c.merchant_id == _ID).limit(1)
_REGISTERED = select(HAS_ADDRESS.label("has_address"), endpoints.c.paused_at).where(
    endpoints.c.id == _ID, endpoints.c.removed_at.is_(None)
)

_IS_DEFAULT = endpoints.c.id == endpoints.c.merchant_id
_STRANGERS = (
    select(HOLDING.c.endpoint_id)
    .outerjoin(endpoints, endpoints.c.id == HOLDING.c.endpoint_id)
    .where(or_(endpoints.c.id.is_(None), and_(_IS_DEFAULT, endpoints.c.removed_at.is_not(None))))
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

_MOST_OVERDUE = (
    select(deliveries.c.id, (NOW - deliveries.c.due_at).label("overdue"))
    .where(WAITING, deliveries.c.due_at < NOW)
    .order_by(deliveries.c.due_at)
    .limit(1)
)

_Ts = TypeVarTuple("_Ts")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which deliveries to list; what is None does not narrow the list."""

    merchant_id: str | None = None
    state: State | None = None
    reason: Reason | None = None
    type: str | None = None
    since: datetime | None = None
    until: datetime | None = None


def matching(statement: Select[*_Ts], wanted: Wanted) -> Select[*_Ts]:
    """Narrow a statement to the wanted deliveries."""
    equal = {"merchant_id": wanted.merchant_id, "state": wanted.state, "reason": wanted.reason, "type": wanted.type}
    for column, value in equal.items():
        if value is not None:
            statement = statement.where(deliveries.c[column] == value)
    if wanted.since is not None:
        statement = statement.where(deliveries.c.accepted_at >= wanted.since)
    if wanted.until is not None:
        statement = statement.where(deliveries.c.accepted_at < wanted.until)
    return statement


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


def _delivery(row: Row[Any]) -> DeliveryRow:
    return DeliveryRow(**_in_words(row))


def _in_words(row: Row[Any]) -> dict[str, Any]:
    """Return a row's values, with our own words where the table has texts."""
    return {
        name: _WORDS[name](value) if name in _WORDS and value is not None else value
        for name, value in row._asdict().items()
    }


def _note(found: DeliveryRow, made: Sequence[AttemptRow]) -> str | None:
    """Say what state and attempts do not agree about: an answer that came too late changes no final state (I8)."""
    had = [attempt.number for attempt in made if attempt.outcome == Outcome.DELIVERED]
    return answered(had[-1]) if had and found.state == State.FAILED else None


def answered(attempt: int) -> str:
    """Say what it means that a failed delivery has an attempt that was answered 2xx."""
    return f"its attempt {attempt} was answered 2xx: the merchant has it"


class Views:
    """The ledger as operators see it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def deliveries(self, wanted: Wanted, limit: int, after: str | None = None) -> Page[DeliveryRow, str]:
        """Return deliveries, the newest first, from the one on that comes behind `after`.

        Raises NotPossible where that is none.
        """
        chosen = matching(select(*_SHOWN), wanted)
        if after is not None:
            last = self._one(after)
            older = deliveries.c.accepted_at < last.accepted_at
            # The first of the two is what an index can begin with.
            chosen = chosen.where(deliveries.c.accepted_at <= last.accepted_at, or_(older, deliveries.c.id > last.id))
        newest = chosen.order_by(deliveries.c.accepted_at.desc(), deliveries.c.id).limit(limit + 1)
        found = [_delivery(row) for row in self._database.rows(newest, repeatable=True)]
        return Page(found[:limit], found[limit - 1].id if len(found) > limit else None)

    def delivery(self, delivery_id: str) -> History:
        """Return one delivery, with its attempts. Raises NotPossible when there is none."""
        found = self._one(delivery_id)
        made = [AttemptRow(**_in_words(row)) for row in self._of(_JOURNEY, delivery_id)]
        return History(found, _note(found, made), made)

    def _one(self, delivery_id: str) -> DeliveryRow:
        found = self._of(_ONE, delivery_id)
        if not found:
            raise NotPossible(f"no delivery {delivery_id}; see: webhooks delivery list")
        return _delivery(found[0])

    def event(self, event_id: str) -> EventRow:
        """Return an event as it was accepted. Raises NotPossible when there is none."""
        rows = self._of(_EVENT, event_id)
        if not rows:
            its = event_of(event_id)
            other = "" if its == event_id else f"; that is a delivery, of event {its}"
            raise NotPossible(f"no event {event_id} was accepted{other}")
        return EventRow(**rows[0]._asdict())

    def body(self, event_id: str) -> bytes | None:
        """Return an event's body as it was stored, and as it is sent; None once it was pruned."""
        rows = self._of(_BODY, event_id)
        return bytes(rows[0].body) if rows and rows[0].body is not None else None

    def of_event(self, event_id: str) -> Sequence[DeliveryRow]:
        """Return the deliveries of an event, one for each endpoint that wanted it."""
        return [_delivery(row) for row in self._of(_OF_EVENT, event_id)]

    def _of(self, asked: Executable, its_id: str) -> Sequence[Row[Any]]:
        return self._database.rows(asked, {"the_id": its_id}, repeatable=True)

    def count_by_state(self) -> Mapping[State, int]:
        """Return how many deliveries there are in each state; every state is named."""
        counted = {row.state: row.number for row in self._database.rows(_BY_STATE, repeatable=True)}
        return {state: counted.get(state, 0) for state in State}

    def count_held(self, merchant_id: str | None = None) -> Mapping[HeldFor, int]:
        """Return how many deliveries are held for what, of one merchant or of all."""
        if merchant_id is None:
            return _by_cause(self._database.rows(_BY_CAUSE, repeatable=True))
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
        return [row.endpoint_id for row in self._database.rows(_STRANGERS, repeatable=True)]

    def count_let_go(self) -> Mapping[HeldFor, int]:
        """Return how many held deliveries are held for what is over by now: the next sweep lets them go."""
        return _by_cause(self._database.rows(_LET_GO, repeatable=True))

    def most_overdue(self) -> Overdue | None:
        """Return the pending delivery that is longest past its due time; None when none is."""
        rows = self._database.rows(_MOST_OVERDUE, repeatable=True)
        return Overdue(rows[0].id, rows[0].overdue) if rows else None


def _by_cause(rows: Sequence[Row[Any]]) -> Mapping[HeldFor, int]:
    return {HeldFor(row.held_for): row.number for row in rows}
