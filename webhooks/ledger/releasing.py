"""The sweep's statements about the endpoints that hold deliveries, built once: whose may go, and letting them go.

Endpoints are asked for by pages, and one statement takes the deliveries of several.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    DateTime,
    Integer,
    Text,
    Update,
    any_,
    bindparam,
    case,
    column,
    false,
    func,
    literal,
    or_,
    select,
    text,
    true,
)
from sqlalchemy.dialects.postgresql import insert

from webhooks.ledger import transitions
from webhooks.ledger.statements import HAS_ADDRESS, LIMITS
from webhooks.ledger.sweeping import MESSAGE, MOST
from webhooks.ledger.tables import deliveries, endpoints, leases
from webhooks.ledger.transitions import HELD, NOW, the

_PLACE = "sweep has come to"  # also below
_AFTER = the("after", Text)

# A page of the endpoints with held deliveries, from `the_after` on, or where the sweep has come to. One index entry is
# read for each, however many deliveries it has held: the scan leaps from name to name. Its first column is where it
# began, and is there where nobody holds anything.
_HOLDING = (
    text("""
    WITH RECURSIVE start AS (
        SELECT coalesce(:the_after, (SELECT holder FROM leases WHERE name = 'sweep has come to'), '') AS began
    ), leap AS (
        (SELECT endpoint_id FROM deliveries
         WHERE state = 'held' AND endpoint_id > (SELECT began FROM start) ORDER BY endpoint_id LIMIT 1)
        UNION ALL
        SELECT (SELECT d.endpoint_id FROM deliveries d
                WHERE d.state = 'held' AND d.endpoint_id > leap.endpoint_id ORDER BY d.endpoint_id LIMIT 1)
        FROM leap WHERE leap.endpoint_id IS NOT NULL
    )
    SELECT start.began, page.endpoint_id FROM start
    LEFT JOIN (SELECT endpoint_id FROM leap WHERE endpoint_id IS NOT NULL LIMIT :the_most) AS page ON true
    """)
    .bindparams(_AFTER, MOST)
    .columns(column("began", Text), deliveries.c.endpoint_id)
    .cte("holding")
)

_REMOVED_AT = endpoints.c.removed_at

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
_MAY_GO = HAS_ADDRESS & endpoints.c.paused_at.is_(None)
_ENDS = _REMOVED_AT.is_not(None) & (_OLDEST_HELD <= _GOES_UNTIL)

HELD_ENDPOINTS = (
    select(
        *_HOLDING.c["began", "endpoint_id"],
        *LIMITS,
        func.coalesce(or_(_MAY_GO, _ENDS), false()).label("concerned"),
        _REMOVED_AT.is_not(None).label("removed"),
    )
    .select_from(_HOLDING.outerjoin(endpoints, endpoints.c.id == _HOLDING.c.endpoint_id))
    .order_by(_HOLDING.c.endpoint_id)
)

_KEPT = {"holder": _AFTER, "ends_at": NOW}

# Where the next tick goes on, whichever process does it: a row beside the sweep's lease.
KEEP_PLACE = (
    insert(leases)
    .values(name=_PLACE, **_KEPT)
    .on_conflict_do_update(index_elements=["name"], set_=_KEPT)
    .returning(leases.c.name)
)

_GONE = (
    select(deliveries.c.id)
    .where(deliveries.c.endpoint_id == endpoints.c.id, HELD, deliveries.c.accepted_at <= _GOES_UNTIL)
    .order_by(deliveries.c.accepted_at)
    .limit(MOST)
    .with_for_update(skip_locked=True)
    .correlate(endpoints)
    .lateral("gone")
)

END_ALL_REMOVED = (
    transitions.cancelled()
    .of_locked(
        deliveries.c.id.in_(
            select(_GONE.c.id)
            .select_from(endpoints.join(_GONE, true()))
            .where(endpoints.c.id.in_(bindparam("the_endpoint_ids", expanding=True)), _REMOVED_AT.is_not(None))
            .limit(MOST)
        )
    )
    .returning(*deliveries.c["id", "money"])
)

_RELEASED = transitions.released()

_ASKED = (
    func.unnest(the("endpoint_ids", ARRAY(Text)), the("numbers", ARRAY(Integer)))
    .table_valued(column("endpoint_id", Text), column("number", Integer), name="asked")
    .render_derived()
)


def _release(*by: ColumnElement[Any]) -> Update:
    """Return what takes of each of `the_endpoint_ids` its first deliveries, so many as stand beside it."""
    first = (
        select(deliveries.c.id)
        .where(_RELEASED.may, deliveries.c.endpoint_id == _ASKED.c.endpoint_id)
        .order_by(*by)
        .limit(_ASKED.c.number)
        .with_for_update(skip_locked=True)
        .correlate(_ASKED)
        .lateral("first")
    )
    chosen = select(first.c.id).select_from(_ASKED.join(first, true())).correlate(None).scalar_subquery()
    # An array is made before anything else is looked at, so that no estimate of how many there are turns this into a
    # scan of the whole table.
    which = deliveries.c.id == any_(func.array(chosen, type_=ARRAY(Text)))
    return _RELEASED.of_locked(which).returning(*MESSAGE, *deliveries.c["endpoint_id", "accepted_at"])


RELEASE = _release(deliveries.c.accepted_at, deliveries.c.id)
RELEASE_PROBES = _release(deliveries.c.fast_spent, deliveries.c.accepted_at, deliveries.c.id)
