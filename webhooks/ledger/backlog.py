"""What the sweep asks of the ledger: who has died, what has expired, what is due, and who is held.

Each statement reads one partial index and takes a bounded batch, so that an idle tick costs the same whatever the
number of deliveries. `SKIP LOCKED` keeps out of the workers' way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, and_, case, delete, exists, func, literal, or_, select, update
from sqlalchemy.dialects.postgresql import insert

from webhooks.ledger.database import Database
from webhooks.ledger.statements import HAS_ADDRESS, HOLDING, REMOVED, ends_claim_of, failed_for
from webhooks.ledger.tables import attempts, claims, deliveries, endpoints
from webhooks.ledger.unpublished import unpublished
from webhooks.model import Message, Outcome, Reason, State

_NOW = func.now()
_MESSAGE = (
    *deliveries.c["id", "merchant_id", "type", "turn", "queued_at"],
    select(endpoints.c.lane).where(endpoints.c.id == deliveries.c.endpoint_id).scalar_subquery().label("lane"),
)
_LAST_CHANCE = timedelta(seconds=5)  # more than a worker waits between two tries to write down an answer

_PAST_LEASE = claims.c.ends_at <= _NOW

_UNKNOWN_BEFORE = (
    select(func.count())
    .where(attempts.c.delivery_id == deliveries.c.id, attempts.c.outcome == Outcome.UNKNOWN)
    .scalar_subquery()
    .label("before")
)
_REST, _LONGEST_REST = timedelta(seconds=2), timedelta(minutes=5)  # times the attempts whose outcome nobody knows

# Whether anybody has to be suspected or buried: most often nobody, and then two statements can be left out.
SOMEBODY_IS_SILENT = exists(select(claims.c.delivery_id).where(_PAST_LEASE))

# A delivery that was deleted by hand while it was sent has left its claim behind.
_FREED_OF_NOTHING = (
    delete(claims)
    .where(
        _PAST_LEASE,
        claims.c.silent_since.is_not(None),
        ~exists().where(deliveries.c.id == claims.c.delivery_id).correlate(claims),
    )
    .cte("freed_of_nothing")
)

_HELD_ENDPOINTS = (
    select(HOLDING.c.endpoint_id, endpoints.c.lane, endpoints.c.removed_at.is_not(None).label("removed"))
    .join(endpoints, endpoints.c.id == HOLDING.c.endpoint_id)
    .where(or_(HAS_ADDRESS & endpoints.c.paused_at.is_(None), endpoints.c.removed_at.is_not(None)))
)


@dataclass(frozen=True, slots=True)
class Due:
    """A message to publish, and how long it has yet to wait."""

    message: Message
    wait: timedelta


@dataclass(frozen=True, slots=True)
class HeldEndpoints:
    """Which endpoints have held deliveries: those whose may go, with their own lanes, and those that were removed."""

    lanes: dict[str, int | None]
    removed: Sequence[str]


class Backlog:
    """The ledger as the sweep sees it; every batch is at most `batch` rows."""

    def __init__(self, database: Database, *, recover_after: timedelta, batch: int = 500) -> None:
        self._database = database
        self._recover_after = recover_after
        self._batch = batch

    def expire(self) -> int:
        """Fail what is past its age, held or not; what is being sent right now may finish. Returns how many."""
        old = self._some(
            and_(
                deliveries.c.state.in_([State.PENDING, State.HELD]),
                deliveries.c.expires_at <= _NOW,
                deliveries.c.sending_since.is_(None),
            ),
            deliveries.c.expires_at,
            self._batch,
        )
        failed = self._database.rows(
            update(deliveries)
            .where(deliveries.c.id.in_(old))
            .values(**failed_for(Reason.EXPIRED))
            .returning(deliveries.c.id),
            repeatable=True,
        )
        return len(failed)

    def suspect(self) -> int:
        """Mark the attempts whose lease has run out; returns how many.

        The worker gets a little longer: it may be alive with an answer that it could not write down while the
        database was away, and that answer must win over another POST.
        """
        silent = (
            select(claims.c.delivery_id)
            .where(_PAST_LEASE, claims.c.silent_since.is_(None))
            .order_by(claims.c.ends_at)
            .limit(self._batch)
            .with_for_update(skip_locked=True)
        )
        marked = self._database.rows(
            update(claims)
            .where(claims.c.delivery_id.in_(silent))
            .values(silent_since=_NOW, ends_at=_NOW + _LAST_CHANCE)
            .returning(claims.c.delivery_id),
            repeatable=True,
        )
        return len(marked)

    def bury(self) -> int:
        """Take deliveries back from workers that died over them: an attempt of unknown outcome, due again at once.

        Returns how many.
        """
        dead = (
            select(deliveries.c.id, deliveries.c.attempts, deliveries.c.sending_since, _UNKNOWN_BEFORE)
            .join_from(claims, deliveries, deliveries.c.id == claims.c.delivery_id)
            .where(_PAST_LEASE, claims.c.silent_since.is_not(None))
            .order_by(claims.c.ends_at)
            .limit(self._batch)
            .with_for_update(skip_locked=True, of=[claims, deliveries])
            .cte("dead")
        )
        # At once after the first time; a delivery over which workers die again and again gives its merchant a rest.
        due_at = _NOW + case((dead.c.before == 0, timedelta()), else_=func.least(_REST * dead.c.before, _LONGEST_REST))
        taken = (
            update(deliveries)
            # Nobody sends what has a claim and no moment: its attempt came to an end too late.
            .where(deliveries.c.id == dead.c.id, deliveries.c.sending_since.is_not(None))
            .values(
                turn=deliveries.c.turn + 1,
                sending_since=None,
                due_at=due_at,
                sweep_at=due_at,
                queued_at=None,
            )
            .returning(dead.c.id, dead.c.attempts, dead.c.sending_since)
            .cte("taken")
        )
        row = select(taken.c.id, taken.c.attempts, taken.c.sending_since, literal(Outcome.UNKNOWN.value))
        written = self._database.rows(
            insert(attempts)
            .from_select(["delivery_id", "number", "started_at", "outcome"], row)
            .on_conflict_do_nothing()
            .returning(attempts.c.number)
            .add_cte(ends_claim_of(dead), _FREED_OF_NOTHING),
            repeatable=True,
        )
        return len(written)

    def due(self, most: int, *, ahead: timedelta, still_queued_from: datetime | None) -> Sequence[Due]:
        """Take up to `most` deliveries that are due within `ahead` and have no live message.

        `still_queued_from` is when the oldest message in the broker's queue was published: whatever was published
        since then still waits there, and is left to its message (I7).
        """
        waits = self._some(
            and_(
                deliveries.c.state == State.PENDING,
                deliveries.c.sweep_at <= _NOW + ahead,
                deliveries.c.sending_since.is_(None),
            ),
            deliveries.c.sweep_at,
            most,
        )
        queued = (
            literal(False)
            if still_queued_from is None
            else func.coalesce(deliveries.c.queued_at >= still_queued_from, False)
        )
        taken = self._database.rows(
            update(deliveries)
            .where(deliveries.c.id.in_(waits))
            .values(
                queued_at=case((queued, deliveries.c.queued_at), else_=_NOW),
                sweep_at=func.greatest(deliveries.c.due_at, _NOW) + self._recover_after,
            )
            # What was left to its message keeps the time of that message.
            .returning(
                *_MESSAGE,
                (deliveries.c.due_at - _NOW).label("wait"),
                (deliveries.c.queued_at == _NOW).label("taken"),
            )
        )
        return [Due(_message(row), max(row.wait, timedelta())) for row in taken if row.taken]

    def leave(self, messages: Sequence[Message]) -> None:
        """Note that these were not published after all: the next tick takes them again."""
        self._database.rows(unpublished(messages), repeatable=True)

    def held_endpoints(self) -> HeldEndpoints:
        """Return the endpoints whose held deliveries may go, by address and operator, or end, since it was removed.

        Each costs one index entry.
        """
        rows = self._database.rows(_HELD_ENDPOINTS, repeatable=True)
        return HeldEndpoints(
            lanes={row.endpoint_id: row.lane for row in rows if not row.removed},
            removed=[row.endpoint_id for row in rows if row.removed],
        )

    def end_removed(self, endpoint_ids: Sequence[str]) -> int:
        """End the held deliveries of endpoints that were removed after they were accepted. Returns how many."""
        gone = (
            select(deliveries.c.id)
            .join(endpoints, endpoints.c.id == deliveries.c.endpoint_id)
            .where(deliveries.c.endpoint_id.in_(endpoint_ids), deliveries.c.state == State.HELD, REMOVED)
            .limit(self._batch)
            .with_for_update(skip_locked=True, of=deliveries)
        )
        ended = self._database.rows(
            update(deliveries)
            .where(deliveries.c.id.in_(gone))
            .values(**failed_for(Reason.CANCELLED))
            .returning(deliveries.c.id),
            repeatable=True,
        )
        return len(ended)

    def release_probe(self, endpoint_id: str) -> Sequence[Message]:
        """Take the held delivery that has spent the fewest fast attempts, the oldest among equals."""
        return self._release(endpoint_id, 1, deliveries.c.fast_spent, deliveries.c.accepted_at, deliveries.c.id)

    def release(self, endpoint_id: str, most: int) -> Sequence[Message]:
        """Take up to `most` held deliveries of an endpoint, oldest first."""
        return self._release(endpoint_id, most, deliveries.c.accepted_at, deliveries.c.id)

    def _release(self, endpoint_id: str, most: int, *order: ColumnElement[Any]) -> Sequence[Message]:
        first = (
            select(deliveries.c.id)
            .where(deliveries.c.endpoint_id == endpoint_id, deliveries.c.state == State.HELD)
            .order_by(*order)
            .limit(most)
            .with_for_update(skip_locked=True)
        )
        released = self._database.rows(
            update(deliveries)
            .where(deliveries.c.id.in_(first))
            .values(
                state=State.PENDING,
                held_for=None,
                turn=deliveries.c.turn + 1,
                due_at=func.least(deliveries.c.due_at, _NOW),
                queued_at=_NOW,
                sweep_at=_NOW + self._recover_after,
            )
            .returning(*_MESSAGE)
        )
        return [_message(row) for row in released]

    def _some(self, wanted: ColumnElement[bool], order: ColumnElement[Any], most: int) -> Select[Any]:
        return select(deliveries.c.id).where(wanted).order_by(order).limit(most).with_for_update(skip_locked=True)


def _message(row: Row[Any]) -> Message:
    return Message(row.id, row.merchant_id, row.type, turn=row.turn, queued_at=row.queued_at, lane=row.lane)
