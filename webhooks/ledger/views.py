"""What operators read from the ledger: deliveries with all their attempts, and how things stand. No body, no secret."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVarTuple

from sqlalchemy import ColumnElement, Integer, Select, SmallInteger, and_, cast, func, literal, or_, select

from webhooks.accepting.reading import is_of_an_endpoint
from webhooks.errors import NotPossible
from webhooks.ledger.answering import Performances
from webhooks.ledger.counting import Counts
from webhooks.ledger.finding import Finds
from webhooks.ledger.pacing import Paces
from webhooks.ledger.rows import AttemptRow, DeliveryRow, EventRow, History, Page
from webhooks.ledger.shown import SHOWN, SHOWN_OF_ATTEMPT, THE_ID, attempt_of, delivery_of
from webhooks.ledger.statements import ELSEWHERE
from webhooks.ledger.tables import attempts, deliveries, events
from webhooks.ledger.transitions import BEING_SENT, HELD, UNFINISHED
from webhooks.model import Answer, HeldFor, Outcome, Reason, State, event_of
from webhooks.policy.answers import meaning

_EVENT = select(
    *events.c["id", "merchant_id", "type", "money", "accepted_at"],
    func.encode(events.c.body_sha256, "hex").label("body_sha256"),
    func.octet_length(events.c.body).label("body_bytes"),
    events.c.unmatched,
).where(events.c.id == THE_ID)

_ONE = select(*SHOWN).where(deliveries.c.id == THE_ID)
_JOURNEY = select(*SHOWN_OF_ATTEMPT).where(attempts.c.delivery_id == THE_ID).order_by(attempts.c.number)
_OF_EVENT = (
    select(*SHOWN)
    .where(or_(deliveries.c.id == THE_ID, and_(deliveries.c.event_id == THE_ID, ELSEWHERE)))
    .order_by(deliveries.c.endpoint_id)
)
_BODY = select(events.c.body).where(events.c.id == THE_ID)

_Ts = TypeVarTuple("_Ts")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which deliveries to list; what is None does not narrow the list.

    `answer` is the status of the latest attempt that was written down, a 2xx that of any: what is delivered was
    answered so, whatever came beside it. `since` and `until` are of the acceptance.
    """

    merchant_id: str | None = None
    endpoint_id: str | None = None
    state: State | None = None
    held_for: HeldFor | None = None
    reason: Reason | None = None
    type: str | None = None
    money: bool | None = None
    answer: int | None = None
    since: datetime | None = None
    until: datetime | None = None


_EQUAL = ("merchant_id", "endpoint_id", "state", "held_for", "reason", "type", "money")

# An attempt that is under way has a number and nothing else yet.
_LATEST = and_(
    attempts.c.delivery_id == deliveries.c.id, attempts.c.number == deliveries.c.attempts - cast(BEING_SENT, Integer)
)


def matching(statement: Select[*_Ts], wanted: Wanted) -> Select[*_Ts]:
    """Narrow a statement to the wanted deliveries."""
    given = {name: getattr(wanted, name) for name in _EQUAL}
    equal = [deliveries.c[name] == value for name, value in given.items() if value is not None]
    return statement.where(*equal, *_known_to_indexes(wanted), *_answered(wanted.answer), *_within(wanted))


def _known_to_indexes(wanted: Wanted) -> Iterator[ColumnElement[bool]]:
    """Say what follows from what is wanted in the words of the indexes that know it."""
    if wanted.held_for is not None:
        yield HELD
    if wanted.reason is not None:
        yield deliveries.c.state == State.FAILED
    if wanted.endpoint_id is not None:
        # One of them knows the endpoints that are no merchant's default one, the other merchants.
        is_named = is_of_an_endpoint(wanted.endpoint_id)
        other = deliveries.c.endpoint_id != deliveries.c.merchant_id
        yield other if is_named else deliveries.c.merchant_id == wanted.endpoint_id


def _answered(status: int | None) -> Iterator[ColumnElement[bool]]:
    if status is None:
        return
    asked = attempts.c.status == literal(status, SmallInteger)
    if meaning(Answer(status)) is Outcome.DELIVERED:
        yield _exists(attempts.c.delivery_id == deliveries.c.id, asked)
    else:
        # Nearly all are delivered, and an index knows each of the others: no look at the attempts of a whole merchant.
        yield or_(UNFINISHED, deliveries.c.state == State.FAILED)
        yield _exists(_LATEST, asked, attempts.c.outcome != Outcome.DELIVERED)  # which an index knows


def _exists(*attempt: ColumnElement[bool]) -> ColumnElement[bool]:
    return select(attempts.c.number).where(*attempt).exists()


def _within(wanted: Wanted) -> Iterator[ColumnElement[bool]]:
    if wanted.since is not None:
        yield deliveries.c.accepted_at >= wanted.since
    if wanted.until is not None:
        yield deliveries.c.accepted_at < wanted.until


def _note(found: DeliveryRow, made: Sequence[AttemptRow]) -> str | None:
    """Say what state and attempts do not agree about: an answer that came too late changes no final state (I8)."""
    had = [attempt.number for attempt in made if attempt.outcome == Outcome.DELIVERED]
    return answered(had[-1]) if had and found.state == State.FAILED else None


def answered(attempt: int) -> str:
    """Say what it means that a failed delivery has an attempt that was answered 2xx."""
    return f"its attempt {attempt} was answered 2xx: the merchant has it"


class Views(Counts, Performances, Paces, Finds):
    """The ledger as operators see it."""

    def deliveries(self, wanted: Wanted, limit: int, after: str | None = None) -> Page[DeliveryRow, str]:
        """Return deliveries, the newest first, from the one on that comes behind `after`.

        Raises NotPossible where that is none.
        """
        chosen = matching(select(*SHOWN), wanted)
        if after is not None:
            last = self._one(after)
            older = deliveries.c.accepted_at < last.accepted_at
            # The first of the two is what an index can begin with.
            chosen = chosen.where(deliveries.c.accepted_at <= last.accepted_at, or_(older, deliveries.c.id > last.id))
        newest = chosen.order_by(deliveries.c.accepted_at.desc(), deliveries.c.id).limit(limit + 1)
        found = [delivery_of(row) for row in self._rows(newest)]
        return Page(found[:limit], found[limit - 1].id if len(found) > limit else None)

    def delivery(self, delivery_id: str) -> History:
        """Return one delivery, with its attempts. Raises NotPossible when there is none."""
        found = self._one(delivery_id)
        made = [attempt_of(row) for row in self._of(_JOURNEY, delivery_id)]
        return History(found, _note(found, made), made)

    def _one(self, delivery_id: str) -> DeliveryRow:
        found = self._of(_ONE, delivery_id)
        if not found:
            raise NotPossible(f"no delivery {delivery_id}; see: webhooks delivery list")
        return delivery_of(found[0])

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
        return [delivery_of(row) for row in self._of(_OF_EVENT, event_id)]
