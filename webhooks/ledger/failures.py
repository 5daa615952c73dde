"""The statements of the desk, built once: what of the failed deliveries is on it, and what people do there.

A delivery is on the desk while it is failed, unless it was dismissed since, an operator had cancelled it (which is
dealing with it), or it was pruned (nothing can be done about it any more). When it failed is what a look and a
dismissal are compared with: one that was replayed and fails again is back, unseen, and nobody has to put it there.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    ColumnElement,
    DateTime,
    FromClause,
    Integer,
    Select,
    Text,
    and_,
    bindparam,
    func,
    insert,
    not_,
    or_,
    select,
    true,
    tuple_,
    update,
)

from webhooks.ledger.side_tables import notes
from webhooks.ledger.tables import attempts, deliveries
from webhooks.ledger.transitions import NOW, the
from webhooks.model import Reason, State

ON_RECORD = and_(deliveries.c.state == State.FAILED, not_(deliveries.c.pruned))
DISMISSED = func.coalesce(deliveries.c.dismissed_at >= deliveries.c.finished_at, False)
SEEN = func.coalesce(deliveries.c.seen_at >= deliveries.c.finished_at, False)
# In the words of the index, which holds these and no others.
OPEN = and_(
    ON_RECORD,
    deliveries.c.reason != Reason.CANCELLED,
    or_(deliveries.c.dismissed_at.is_(None), deliveries.c.dismissed_at < deliveries.c.finished_at),
)

_NUMBERS = (
    func.count().label("number"),
    func.count().filter(deliveries.c.money).label("money"),
    func.count().filter(not_(SEEN)).label("unseen"),
    func.min(deliveries.c.finished_at).label("oldest"),
)

BY_REASON = (
    select(deliveries.c.reason, *_NUMBERS, func.count().filter(deliveries.c.money, not_(SEEN)).label("money_unseen"))
    .where(OPEN)
    .group_by(deliveries.c.reason)
)

_MOST = the("most", Integer)
_MERCHANT_AND_REASON = (*deliveries.c["merchant_id", "reason"],)
_ALL_GROUPS = (
    select(*_MERCHANT_AND_REASON, *_NUMBERS, func.max(deliveries.c.finished_at).label("newest"))
    .where(OPEN)
    .group_by(*_MERCHANT_AND_REASON)
    .cte("all_groups")
)


def _first(groups: Any) -> tuple[ColumnElement[Any], ...]:
    """Order groups: money before anything else, then what nobody has seen, the oldest first."""
    return groups.c.money == 0, groups.c.unseen == 0, groups.c.oldest, groups.c.merchant_id, groups.c.reason


_GROUPS = (
    select(_ALL_GROUPS, func.count().over().label("groups"))
    .order_by(*_first(_ALL_GROUPS))
    .limit(_MOST)
    .subquery("groups")
)

# Money first, then the newest: as the index goes, from behind.
_ORDER = (deliveries.c.money, deliveries.c.finished_at, deliveries.c.id)
NEWEST = tuple(each.desc() for each in _ORDER)

_EXAMPLE = (
    select(deliveries.c.id)
    .where(OPEN, deliveries.c.merchant_id == _GROUPS.c.merchant_id, deliveries.c.reason == _GROUPS.c.reason)
    .order_by(*NEWEST)
    .limit(1)
    .lateral("example")
)


def _last_attempt(delivery_id: ColumnElement[str]) -> FromClause:
    of_it = select(*attempts.c["status", "cause", "excerpt"]).where(attempts.c.delivery_id == delivery_id)
    return of_it.order_by(attempts.c.number.desc()).limit(1).lateral("last_attempt")


_LAST_OF_EXAMPLE = _last_attempt(_EXAMPLE.c.id)

GROUPS = (
    select(_GROUPS, _EXAMPLE.c.id.label("example_id"), *_LAST_OF_EXAMPLE.c)
    .select_from(_GROUPS.join(_EXAMPLE, true()).outerjoin(_LAST_OF_EXAMPLE, true()))
    .order_by(*_first(_GROUPS))
)

_LAST = _last_attempt(deliveries.c.id)
_LAST_NOTE = (
    select(notes.c.text)
    .where(notes.c.delivery_id == deliveries.c.id)
    .order_by(notes.c.id.desc())
    .limit(1)
    .scalar_subquery()
)

_LISTED = select(
    *deliveries.c["id", "event_id", "merchant_id", "endpoint_id", "type", "money", "reason", "attempts", "accepted_at"],
    deliveries.c.finished_at.label("failed_at"),
    SEEN.label("seen"),
    DISMISSED.label("dismissed"),
    *_LAST.c,
    _LAST_NOTE.label("note"),
)


def listed(*which: ColumnElement[bool]) -> Select[Any]:
    """Return what lists the first `the_most` of these; the index says which they are, and only they are looked up."""
    places = select(deliveries.c.id).where(*which).order_by(*NEWEST).limit(_MOST).subquery("places")
    of_them = places.join(deliveries, deliveries.c.id == places.c.id).outerjoin(_LAST, true())
    return _LISTED.select_from(of_them).order_by(*NEWEST)


COUNT_ON_DESK = select(func.count(deliveries.c.id).label("number"))

# Behind a place in that order.
BEHIND = tuple_(*_ORDER) < tuple_(the("money"), the("finished_at", DateTime(timezone=True)), the("id"))

_NAMED = deliveries.c.id.in_(bindparam("the_ids", expanding=True))
FOUND = select(*deliveries.c["id", "state", "reason", "pruned"], DISMISSED.label("dismissed")).where(_NAMED)

STANDS = select(SEEN.label("seen"), DISMISSED.label("dismissed")).where(deliveries.c.id == the("id"))
NOTES = select(*notes.c["at", "who", "text"]).where(notes.c.delivery_id == the("id")).order_by(notes.c.id)

# The transaction may be older than the failure that it sees.
_SINCE_IT_FAILED = func.greatest(NOW, deliveries.c.finished_at)

SEE = (
    update(deliveries)
    .where(_NAMED, deliveries.c.state == State.FAILED)
    .values(seen_at=_SINCE_IT_FAILED)
    .returning(deliveries.c.id)
)

DISMISS = (
    update(deliveries)
    .where(_NAMED, OPEN)
    .values(dismissed_at=_SINCE_IT_FAILED, seen_at=_SINCE_IT_FAILED)
    .returning(deliveries.c.id)
)

REOPEN = update(deliveries).where(_NAMED, ON_RECORD, DISMISSED).values(dismissed_at=None).returning(deliveries.c.id)

_OF_EACH = select(deliveries.c.id, the("who", Text), the("text", Text)).where(_NAMED)
WRITE = insert(notes).from_select(["delivery_id", "who", "text"], _OF_EACH).returning(notes.c.delivery_id)
