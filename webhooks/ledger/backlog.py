"""What the sweep asks of the ledger: who has died, what has expired, what is due, and who is held.

Each statement reads one partial index and takes a bounded batch, so that an idle tick costs the same whatever the
number of deliveries. `SKIP LOCKED` keeps out of the workers' way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    DateTime,
    Executable,
    Integer,
    Interval,
    Row,
    Select,
    bindparam,
    case,
    delete,
    exists,
    func,
    literal,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.dialects.postgresql import insert

from webhooks.ledger import transitions
from webhooks.ledger.database import Database
from webhooks.ledger.statements import HAS_ADDRESS, HOLDING, LIMITS, UNQUEUE_ALL, ends_claim_of, turns_of
from webhooks.ledger.tables import attempts, claims, deliveries, endpoints
from webhooks.ledger.transitions import HELD, NOW, Transition, the
from webhooks.model import Limits, Message, Outcome

_LAST_CHANCE = timedelta(seconds=5)  # more than a worker waits between two tries to write down an answer
_REST, _LONGEST_REST = timedelta(seconds=2), timedelta(minutes=5)  # times the attempts whose outcome nobody knows

_REMOVED_AT = endpoints.c.removed_at

_BATCH = 500
_MOST = the("most", Integer)

_MESSAGE = (
    *deliveries.c["id", "merchant_id", "type", "turn", "queued_at"],
    *(
        select(each).where(endpoints.c.id == deliveries.c.endpoint_id).scalar_subquery().label(each.name)
        for each in LIMITS
    ),
)


def _first(transition: Transition, *which: ColumnElement[bool], by: Sequence[ColumnElement[Any]]) -> Select[Any]:
    """Lock the first deliveries that may go a way, up to `the_most`; what somebody else has locked is passed over."""
    found = select(deliveries.c.id).where(transition.may, *which).order_by(*by)
    return found.limit(_MOST).with_for_update(skip_locked=True)


_EXPIRED = transitions.expired()
_EXPIRE = _EXPIRED.of_locked(
    deliveries.c.id.in_(_first(_EXPIRED, deliveries.c.expires_at <= NOW, by=[deliveries.c.expires_at]))
).returning(deliveries.c.id)

_PAST_LEASE = claims.c.ends_at <= NOW

# Whether anybody has to be suspected or buried: most often nobody, and then two statements can be left out.
SOMEBODY_IS_SILENT = exists(select(claims.c.delivery_id).where(_PAST_LEASE))

_SUSPECT = (
    update(claims)
    .where(
        claims.c.delivery_id.in_(
            select(claims.c.delivery_id)
            .where(_PAST_LEASE, claims.c.silent_since.is_(None))
            .order_by(claims.c.ends_at)
            .limit(_MOST)
            .with_for_update(skip_locked=True)
        )
    )
    .values(silent_since=NOW, ends_at=NOW + _LAST_CHANCE)
    .returning(claims.c.delivery_id)
)

_UNKNOWN_BEFORE = (
    select(func.count())
    .where(attempts.c.delivery_id == deliveries.c.id, attempts.c.outcome == Outcome.UNKNOWN)
    .scalar_subquery()
    .label("before")
)

_DEAD = (
    select(deliveries.c.id, deliveries.c.attempts, deliveries.c.sending_since, _UNKNOWN_BEFORE)
    .join_from(claims, deliveries, deliveries.c.id == claims.c.delivery_id)
    .where(_PAST_LEASE, claims.c.silent_since.is_not(None))
    .order_by(claims.c.ends_at)
    .limit(_MOST)
    .with_for_update(skip_locked=True, of=[claims, deliveries])
    .cte("dead")
)

# At once after the first time; a delivery over which workers die again and again gives its merchant a rest.
_RISEN_AT = NOW + case((_DEAD.c.before == 0, timedelta()), else_=func.least(_REST * _DEAD.c.before, _LONGEST_REST))

# Nobody sends what has a claim and no moment: its attempt came to an end too late.
_BURIED = (
    transitions.buried(_RISEN_AT)
    .of(deliveries.c.id == _DEAD.c.id)
    .returning(*_DEAD.c["id", "attempts", "sending_since"])
    .cte("taken")
)

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

_BURY = (
    insert(attempts)
    .from_select(
        ["delivery_id", "number", "started_at", "outcome"],
        select(*_BURIED.c["id", "attempts", "sending_since"], literal(Outcome.UNKNOWN.value)),
    )
    .on_conflict_do_nothing()
    .returning(attempts.c.number)
    .add_cte(ends_claim_of(_DEAD), _FREED_OF_NOTHING)
)

# Whatever was published since the oldest message in the queue still waits there.
_STILL_QUEUED = func.coalesce(deliveries.c.queued_at >= the("still_queued_from", DateTime(timezone=True)), False)
_PUBLISHED = transitions.published(_STILL_QUEUED)
_DUE = _PUBLISHED.of_locked(
    deliveries.c.id.in_(
        _first(_PUBLISHED, deliveries.c.sweep_at <= NOW + the("ahead", Interval), by=[deliveries.c.sweep_at])
    )
).returning(
    *_MESSAGE,
    (deliveries.c.due_at - NOW).label("wait"),
    (deliveries.c.queued_at == NOW).label("taken"),  # what was left to its message keeps the time of that message
)

# What a removed endpoint holds and will not get, said so that the scan of an index by endpoint and time ends there:
# what a merchant's default endpoint that is gone holds since then waits for another, and may be very much.
_GOES_UNTIL = case(
    (endpoints.c.id != endpoints.c.merchant_id, literal("infinity", DateTime(timezone=True))), else_=_REMOVED_AT
)
_OLDEST_HELD = (
    select(deliveries.c.accepted_at)
    .where(deliveries.c.endpoint_id == endpoints.c.id, HELD)
    .order_by(deliveries.c.accepted_at)
    .limit(1)
    .correlate(endpoints)
    .scalar_subquery()
)

_HELD_ENDPOINTS = (
    select(HOLDING.c.endpoint_id, *LIMITS, _REMOVED_AT.is_not(None).label("removed"))
    .join(endpoints, endpoints.c.id == HOLDING.c.endpoint_id)
    .where(
        or_(
            HAS_ADDRESS & endpoints.c.paused_at.is_(None),
            _REMOVED_AT.is_not(None) & (_OLDEST_HELD <= _GOES_UNTIL),
        )
    )
)

_GONE = (
    select(deliveries.c.id)
    .where(deliveries.c.endpoint_id == endpoints.c.id, HELD, deliveries.c.accepted_at <= _GOES_UNTIL)
    .order_by(deliveries.c.accepted_at)
    .limit(_MOST)
    .with_for_update(skip_locked=True)
    .correlate(endpoints)
    .lateral("gone")
)

_END_REMOVED = (
    transitions.cancelled()
    .of_locked(
        deliveries.c.id.in_(
            select(_GONE.c.id)
            .select_from(endpoints.join(_GONE, true()))
            .where(endpoints.c.id.in_(bindparam("the_endpoint_ids", expanding=True)), _REMOVED_AT.is_not(None))
        )
    )
    .returning(deliveries.c.id)
)

_RELEASED = transitions.released()


def _release(*by: ColumnElement[Any]) -> Executable:
    first = _first(_RELEASED, deliveries.c.endpoint_id == the("endpoint_id"), by=by)
    return _RELEASED.of_locked(deliveries.c.id.in_(first)).returning(*_MESSAGE)


_RELEASE = _release(deliveries.c.accepted_at, deliveries.c.id)
_RELEASE_PROBE = _release(deliveries.c.fast_spent, deliveries.c.accepted_at, deliveries.c.id)


@dataclass(frozen=True, slots=True)
class Due:
    """A message to publish, and how long it has yet to wait."""

    message: Message
    wait: timedelta


@dataclass(frozen=True, slots=True)
class HeldEndpoints:
    """Which endpoints have held deliveries: those whose may go, with their own limits, and those that were removed."""

    limits: dict[str, Limits]
    removed: Sequence[str]


class Backlog:
    """The ledger as the sweep sees it; every batch is at most 500 rows."""

    def __init__(self, database: Database, *, recover_after: timedelta) -> None:
        self._database = database
        self._recover_after = recover_after

    def expire(self) -> int:
        """Fail what is past its age, held or not; what is being sent right now may finish. Returns how many."""
        return len(self._database.rows(_EXPIRE, {"the_most": _BATCH}, repeatable=True))

    def suspect(self) -> int:
        """Mark the attempts whose lease has run out; returns how many.

        The worker gets a little longer: it may be alive with an answer that it could not write down while the
        database was away, and that answer must win over another POST.
        """
        return len(self._database.rows(_SUSPECT, {"the_most": _BATCH}, repeatable=True))

    def bury(self) -> int:
        """Take deliveries back from workers that died over them: an attempt of unknown outcome, due again at once.

        Returns how many.
        """
        return len(self._database.rows(_BURY, {"the_most": _BATCH}, repeatable=True))

    def due(self, most: int, *, ahead: timedelta, still_queued_from: datetime | None) -> Sequence[Due]:
        """Take up to `most` deliveries that are due within `ahead` and have no live message.

        `still_queued_from` is when the oldest message in the broker's queue was published: whatever was published
        since then still waits there, and is left to its message (I7).
        """
        values = {"the_most": most, "the_ahead": ahead, "the_still_queued_from": still_queued_from}
        taken = self._database.rows(_DUE, {**values, "the_recover_after": self._recover_after})
        return [Due(_message(row), max(row.wait, timedelta())) for row in taken if row.taken]

    def leave(self, messages: Sequence[Message]) -> None:
        """Note that these were not published after all: the next tick takes them again."""
        self._database.rows(UNQUEUE_ALL, turns_of(messages), repeatable=True)

    def held_endpoints(self) -> HeldEndpoints:
        """Return the endpoints whose held deliveries may go, by address and operator, or end, since it was removed.

        Each costs one index entry.
        """
        rows = self._database.rows(_HELD_ENDPOINTS, repeatable=True)
        return HeldEndpoints(
            limits={row.endpoint_id: Limits(row.lane, row.rate) for row in rows if not row.removed},
            removed=[row.endpoint_id for row in rows if row.removed],
        )

    def end_removed(self, endpoint_ids: Sequence[str]) -> int:
        """End the held deliveries of endpoints that were removed after they were accepted. Returns how many."""
        values = {"the_endpoint_ids": endpoint_ids, "the_most": _BATCH}
        return len(self._database.rows(_END_REMOVED, values, repeatable=True))

    def release_probe(self, endpoint_id: str) -> Sequence[Message]:
        """Take the held delivery that has spent the fewest fast attempts, the oldest among equals."""
        return self._released(_RELEASE_PROBE, endpoint_id, 1)

    def release(self, endpoint_id: str, most: int) -> Sequence[Message]:
        """Take up to `most` held deliveries of an endpoint, oldest first."""
        return self._released(_RELEASE, endpoint_id, most)

    def _released(self, release: Executable, endpoint_id: str, most: int) -> Sequence[Message]:
        values = {"the_endpoint_id": endpoint_id, "the_most": most, "the_recover_after": self._recover_after}
        return [_message(row) for row in self._database.rows(release, values)]


def _message(row: Row[Any]) -> Message:
    limits = Limits(row.lane, row.rate)
    return Message(row.id, row.merchant_id, row.type, turn=row.turn, queued_at=row.queued_at, limits=limits)
