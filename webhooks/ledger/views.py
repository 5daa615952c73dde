"""What operators read from the ledger: deliveries with all their attempts, and how things stand. No body, no secret."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVarTuple

from sqlalchemy import ColumnElement, Row, Select, case, func, select, true

from webhooks.errors import NotPossible
from webhooks.ledger.database import Database
from webhooks.ledger.endpoints import unknown
from webhooks.ledger.statements import HAS_ADDRESS, HOLDING
from webhooks.ledger.tables import attempts, deliveries, endpoints
from webhooks.model import HeldFor, Outcome, Reason, State

_SHOWN = deliveries.c[
    "id",
    "event_id",
    "merchant_id",
    "endpoint_id",
    "type",
    "money",
    "state",
    "reason",
    "held_for",
    "due_at",
    "sending_since",
    "attempts",
    "fast_spent",
    "slow_spent",
    "slow_since",
    "accepted_at",
    "expires_at",
    "finished_at",
]


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


def _note(found: Row[Any], journey: Sequence[Row[Any]]) -> str | None:
    """Say what state and attempts do not agree about: an answer that came too late changes no final state (I8)."""
    had = [step.number for step in journey if step.outcome == Outcome.DELIVERED]
    return answered(had[-1]) if had and found.state == State.FAILED else None


def answered(attempt: int) -> str:
    """Say what it means that a failed delivery has an attempt that was answered 2xx."""
    return f"its attempt {attempt} was answered 2xx: the merchant has it"


class Views:
    """The ledger as operators see it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def deliveries(self, wanted: Wanted, limit: int) -> Sequence[Mapping[str, Any]]:
        """Return deliveries, the newest first."""
        chosen = matching(select(*_SHOWN), wanted)
        newest = chosen.order_by(deliveries.c.accepted_at.desc(), deliveries.c.id).limit(limit)
        return [row._asdict() for row in self._database.rows(newest, repeatable=True)]

    def delivery(self, delivery_id: str) -> dict[str, Any]:
        """Return one delivery, with its attempts under `journey`. Raises NotPossible when there is none."""
        found = self._database.rows(select(*_SHOWN).where(deliveries.c.id == delivery_id), repeatable=True)
        if not found:
            raise NotPossible(f"no delivery {delivery_id}; see: webhooks delivery list")
        journey = self._database.rows(
            select(attempts).where(attempts.c.delivery_id == delivery_id).order_by(attempts.c.number),
            repeatable=True,
        )
        return {**found[0]._asdict(), "note": _note(found[0], journey), "journey": [row._asdict() for row in journey]}

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
