"""The sweep's statements about who has died, what has expired and what is due, built once.

Each reads one partial index and takes a bounded batch. `SKIP LOCKED` keeps out of the workers' way.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    DateTime,
    Integer,
    Interval,
    Select,
    case,
    delete,
    exists,
    func,
    literal,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert

from webhooks.ledger import transitions
from webhooks.ledger.statements import LIMITS, ends_claim_of
from webhooks.ledger.tables import attempts, claims, deliveries, endpoints
from webhooks.ledger.transitions import NOW, Transition, the
from webhooks.model import Outcome

LAST_CHANCE = timedelta(seconds=5)  # more than a worker waits between two tries to write down an answer
REST, LONGEST_REST = timedelta(seconds=2), timedelta(minutes=5)  # times the attempts whose outcome nobody knows

MOST = the("most", Integer)

# What a message of the sweep's says.
MESSAGE = (
    *deliveries.c["id", "merchant_id", "type", "turn", "queued_at", "attempts"],
    *(
        select(each).where(endpoints.c.id == deliveries.c.endpoint_id).scalar_subquery().label(each.name)
        for each in LIMITS
    ),
)


def _first(transition: Transition, *which: ColumnElement[bool], by: Sequence[ColumnElement[Any]]) -> Select[Any]:
    """Lock the first deliveries that may go a way, up to `the_most`; what somebody else has locked is passed over."""
    found = select(deliveries.c.id).where(transition.may, *which).order_by(*by)
    return found.limit(MOST).with_for_update(skip_locked=True)


_EXPIRED = transitions.expired()
EXPIRE = _EXPIRED.of_locked(
    deliveries.c.id.in_(_first(_EXPIRED, deliveries.c.expires_at <= NOW, by=[deliveries.c.expires_at]))
).returning(*deliveries.c["id", "money"])

_PAST_LEASE = claims.c.ends_at <= NOW

# Whether anybody has to be suspected or buried: most often nobody, and then two statements can be left out.
SOMEBODY_IS_SILENT = exists(select(claims.c.delivery_id).where(_PAST_LEASE))

SUSPECT = (
    update(claims)
    .where(
        claims.c.delivery_id.in_(
            select(claims.c.delivery_id)
            .where(_PAST_LEASE, claims.c.silent_since.is_(None))
            .order_by(claims.c.ends_at)
            .limit(MOST)
            .with_for_update(skip_locked=True)
        )
    )
    .values(silent_since=NOW, ends_at=NOW + LAST_CHANCE)
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
    .limit(MOST)
    .with_for_update(skip_locked=True, of=[claims, deliveries])
    .cte("dead")
)

# At once after the first time; a delivery over which workers die again and again gives its merchant a rest.
_RISEN_AT = NOW + case((_DEAD.c.before == 0, timedelta()), else_=func.least(REST * _DEAD.c.before, LONGEST_REST))

# Nobody sends what has a claim and no moment: its attempt came to an end too late.
_BURIED = (
    transitions.buried(_RISEN_AT)
    .of(deliveries.c.id == _DEAD.c.id)
    .returning(*_DEAD.c["id", "attempts", "sending_since"], deliveries.c.endpoint_id)
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

BURY = (
    insert(attempts)
    .from_select(
        ["delivery_id", "number", "started_at", "endpoint_id", "outcome"],
        select(*_BURIED.c["id", "attempts", "sending_since", "endpoint_id"], literal(Outcome.UNKNOWN.value)),
    )
    .on_conflict_do_nothing()
    .returning(attempts.c.delivery_id)
    .add_cte(ends_claim_of(_DEAD), _FREED_OF_NOTHING)
)

# Whatever was published since the oldest message in the queue still waits there.
_STILL_QUEUED = func.coalesce(deliveries.c.queued_at >= the("still_queued_from", DateTime(timezone=True)), False)
_PUBLISHED = transitions.published(_STILL_QUEUED)
DUE = _PUBLISHED.of_locked(
    deliveries.c.id.in_(
        _first(_PUBLISHED, deliveries.c.sweep_at <= NOW + the("ahead", Interval), by=[deliveries.c.sweep_at])
    )
).returning(
    *MESSAGE,
    (deliveries.c.due_at - NOW).label("wait"),
    (deliveries.c.queued_at == NOW).label("taken"),  # what was left to its message keeps the time of that message
)
