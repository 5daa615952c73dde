"""What operators read from the ledger: deliveries with all their attempts, and how things stand. No body, no secret."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, TypeVarTuple

from sqlalchemy import ColumnElement, Row, Select, and_, case, func, or_, select, true

from webhooks.errors import NotPossible
from webhooks.ledger.database import Database
from webhooks.ledger.endpoints import unknown
from webhooks.ledger.rows import AttemptRow, DeliveryRow, EventRow, History, Page
from webhooks.ledger.statements import ELSEWHERE, HAS_ADDRESS, HOLDING
from webhooks.ledger.tables import attempts, deliveries, endpoints, events
from webhooks.model import HeldFor, Ladder, Outcome, Reason, State, event_of

_SHOWN = [deliveries.c[field.name] for field in fields(DeliveryRow)]
_WORDS = {"state": State, "reason": Reason, "held_for": HeldFor, "outcome": Outcome, "ladder": Ladder}

_EVENT = select(
    *events.c["id", "merchant_id", "type", "money", "accepted_at"],
    func.encode(events.c.body_sha256, "hex").label("body_sha256"),
    func.octet_length(events.c.body).label("body_bytes"),
    events.c.unmatched,
)

_IS_DEFAULT = endpoints.c.id == endpoints.c.merchant_id
_Ts = TypeVarTuple("_Ts")
_NUMBER = func.count().label("number")


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
            chosen = chosen.where(
                or_(older, and_(deliveries.c.accepted_at == last.accepted_at, deliveries.c.id > last.id))
            )
        newest = chosen.order_by(deliveries.c.accepted_at.desc(), deliveries.c.id).limit(limit + 1)
        found = [_delivery(row) for row in self._database.rows(newest, repeatable=True)]
        return Page(found[:limit], found[limit - 1].id if len(found) > limit else None)

    def delivery(self, delivery_id: str) -> History:
        """Return one delivery, with its attempts. Raises NotPossible when there is none."""
        found = self._one(delivery_id)
        asked = select(attempts).where(attempts.c.delivery_id == delivery_id).order_by(attempts.c.number)
        made = [AttemptRow(**_in_words(row)) for row in self._database.rows(asked, repeatable=True)]
        return History(found, _note(found, made), made)

    def _one(self, delivery_id: str) -> DeliveryRow:
        found = self._database.rows(select(*_SHOWN).where(deliveries.c.id == delivery_id), repeatable=True)
        if not found:
            raise NotPossible(f"no delivery {delivery_id}; see: webhooks delivery list")
        return _delivery(found[0])

    def event(self, event_id: str) -> EventRow:
        """Return an event as it was accepted. Raises NotPossible when there is none."""
        rows = self._database.rows(_EVENT.where(events.c.id == event_id), repeatable=True)
        if not rows:
            its = event_of(event_id)
            other = "" if its == event_id else f"; that is a delivery, of event {its}"
            raise NotPossible(f"no event {event_id} was accepted{other}")
        return EventRow(**rows[0]._asdict())

    def body(self, event_id: str) -> bytes | None:
        """Return an event's body as it was stored, and as it is sent; None once it was pruned."""
        rows = self._database.rows(select(events.c.body).where(events.c.id == event_id), repeatable=True)
        return bytes(rows[0].body) if rows and rows[0].body is not None else None

    def of_event(self, event_id: str) -> Sequence[DeliveryRow]:
        """Return the deliveries of an event, one for each endpoint that wanted it."""
        of_it = or_(deliveries.c.id == event_id, and_(deliveries.c.event_id == event_id, ELSEWHERE))
        asked = select(*_SHOWN).where(of_it).order_by(deliveries.c.endpoint_id)
        return [_delivery(row) for row in self._database.rows(asked, repeatable=True)]

    def count_by_state(self) -> dict[str, int]:
        """Return how many deliveries there are in each state; every state is named."""
        rows = self._database.rows(select(deliveries.c.state, _NUMBER).group_by(deliveries.c.state), repeatable=True)
        counted = {row.state: row.number for row in rows}
        return {state.value: counted.get(state, 0) for state in State}

    def count_held(self, merchant_id: str | None = None) -> dict[str, int]:
        """Return how many deliveries are held for what, of one merchant or of all."""
        return self._count_held(true() if merchant_id is None else deliveries.c.merchant_id == merchant_id)

    def count_held_at(self, endpoint_id: str) -> dict[str, int]:
        """Return how many deliveries to an endpoint are held for what."""
        return self._count_held(deliveries.c.endpoint_id == endpoint_id)

    def _count_held(self, which: ColumnElement[bool]) -> dict[str, int]:
        statement = (
            select(deliveries.c.held_for, _NUMBER)
            .where(deliveries.c.state == State.HELD, which)
            .group_by(deliveries.c.held_for)
        )
        return {row.held_for: row.number for row in self._database.rows(statement, repeatable=True)}

    def holding(self, endpoint_id: str) -> Holding:
        """Return what an endpoint has held. Raises NotPossible for one nobody has heard of.

        That is one which is not registered, and has no delivery.
        """
        of_it = select(deliveries.c.id).where(deliveries.c.merchant_id == endpoint_id).limit(1)
        registered = select(HAS_ADDRESS, endpoints.c.paused_at).where(
            endpoints.c.id == endpoint_id, endpoints.c.removed_at.is_(None)
        )
        found = self._database.rows(registered, repeatable=True)
        if not found and not self._database.rows(of_it, repeatable=True):
            raise unknown(endpoint_id)
        number = sum(self.count_held_at(endpoint_id).values())
        if not found or not found[0][0]:
            return Holding(number, HeldFor.ADDRESS)
        return Holding(number, HeldFor.OPERATOR if found[0].paused_at else None)

    def unregistered(self) -> Sequence[str]:
        """Return the merchants that hold deliveries and are not registered, by id; each costs one index entry."""
        strangers = (
            select(HOLDING.c.endpoint_id)
            .outerjoin(endpoints, endpoints.c.id == HOLDING.c.endpoint_id)
            .where(endpoints.c.id.is_(None) | (_IS_DEFAULT & endpoints.c.removed_at.is_not(None)))
            .order_by(HOLDING.c.endpoint_id)
        )
        return [row.endpoint_id for row in self._database.rows(strangers, repeatable=True)]

    def count_let_go(self) -> dict[str, int]:
        """Return how many held deliveries are held for what is over by now: the next sweep lets them go."""
        over = case(
            (deliveries.c.held_for == HeldFor.OPERATOR, endpoints.c.paused_at.is_(None)),
            (deliveries.c.held_for == HeldFor.ADDRESS, HAS_ADDRESS & endpoints.c.paused_at.is_(None)),
            else_=False,
        )
        counted = (
            select(deliveries.c.held_for, _NUMBER)
            .join(endpoints, endpoints.c.id == deliveries.c.endpoint_id)
            .where(deliveries.c.state == State.HELD, over)
            .group_by(deliveries.c.held_for)
        )
        return {row.held_for: row.number for row in self._database.rows(counted, repeatable=True)}

    def most_overdue(self) -> tuple[str, timedelta] | None:
        """Return which pending delivery is longest past its due time, and for how long; None when none is."""
        overdue = (
            select(deliveries.c.id, (func.now() - deliveries.c.due_at).label("overdue"))
            .where(
                deliveries.c.state == State.PENDING,
                deliveries.c.sending_since.is_(None),
                deliveries.c.due_at < func.now(),
            )
            .order_by(deliveries.c.due_at)
            .limit(1)
        )
        rows = self._database.rows(overdue, repeatable=True)
        return (rows[0].id, rows[0].overdue) if rows else None
