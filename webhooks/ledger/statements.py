"""The statements of a delivery's life, built once: building one anew takes longer than running it.

Each compares the turn, so that a stale message or a late worker changes nothing (I3, I8). Values are named
`the_…` to keep apart from columns.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import (
    CTE,
    Boolean,
    Interval,
    Update,
    Uuid,
    and_,
    bindparam,
    case,
    delete,
    func,
    null,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import insert

from webhooks.ledger.tables import attempts, claims, deliveries, endpoints, events
from webhooks.model import Outcome, Reason, State

NOW = func.now()


def _the(name: str, kind: Any = None) -> Any:
    return bindparam(f"the_{name}", type_=kind if kind is not None else deliveries.c[name].type)


def of_this_turn() -> Update:
    """Start an update of a pending delivery that nobody is sending, if it is still the turn that the message says."""
    return update(deliveries).where(
        deliveries.c.id == _the("id"),
        deliveries.c.turn == _the("turn"),
        deliveries.c.state == State.PENDING,
        deliveries.c.sending_since.is_(None),
    )


def of_this_attempt() -> Update:
    """Start an update of a delivery that this worker is still sending."""
    return update(deliveries).where(
        deliveries.c.id == _the("id"), deliveries.c.turn == _the("turn"), deliveries.c.sending_since.is_not(None)
    )


def failed_for(reason: Reason) -> dict[str, Any]:
    """Return what changes in a delivery that nobody is sending when it ends as failed."""
    return {
        "state": State.FAILED,
        "reason": reason,
        "finished_at": NOW,
        "turn": deliveries.c.turn + 1,
        **dict.fromkeys(("held_for", "sweep_at", "queued_at")),
    }


# A delivery that does not have its event's id has an entry in an index by event.
ELSEWHERE = deliveries.c.event_id != deliveries.c.id

# Every POST is signed, so that an address alone is none: by hand, the table's own check can be taken away.
HAS_ADDRESS = and_(endpoints.c.url.is_not(None), endpoints.c.secret.is_not(None))

# A countdown ends by some worker's wall clock. Where that is ahead, the ladder's wait would be cut short.
_TOO_EARLY = deliveries.c.due_at > NOW + timedelta(seconds=0.2)

# Whether the endpoint was taken away; nothing is sent any more then. What a merchant whose default endpoint is gone
# gets from then on waits for another, as that of any merchant without one.
REMOVED = endpoints.c.removed_at.is_not(None) & (
    (endpoints.c.id != endpoints.c.merchant_id) | (endpoints.c.removed_at >= deliveries.c.accepted_at)
)

_CLAIMED = (
    *deliveries.c["id", "event_id", "merchant_id", "endpoint_id", "type", "turn", "money"],
    *deliveries.c["expires_at", "fast_spent", "slow_spent", "slow_since"],
    events.c.body,
    deliveries.c.attempts.label("number"),
    deliveries.c.sending_since.label("started_at"),
    *endpoints.c["url", "secret", "standard_headers", "headers", "lane"],
    case((endpoints.c.previous_until > NOW, endpoints.c.previous_secret)).label("previous_secret"),
)

_TAKEN = (
    of_this_turn()
    .where(
        ~_TOO_EARLY,
        deliveries.c.expires_at > NOW,
        events.c.id == deliveries.c.event_id,
        endpoints.c.id == deliveries.c.endpoint_id,
        HAS_ADDRESS,
        endpoints.c.paused_at.is_(None),
        ~REMOVED,
    )
    .values(turn=deliveries.c.turn + 1, attempts=deliveries.c.attempts + 1, sending_since=NOW)
    .returning(*_CLAIMED)
    .cte("taken")
)

_CLAIM = {"name": _the("claim", Uuid), "ends_at": NOW + _the("lease", Interval), "silent_since": null()}

CLAIM = select(_TAKEN).add_cte(
    insert(claims)
    .from_select(["delivery_id", *_CLAIM], select(_TAKEN.c.id, *_CLAIM.values()))
    .on_conflict_do_update(index_elements=["delivery_id"], set_=_CLAIM)  # what is there is of an attempt that has ended
    .cte("noted")
)

# The claim whose answer was lost, if it was done.
CLAIMED = (
    select(*_CLAIMED)
    .join(claims, claims.c.delivery_id == deliveries.c.id)
    .join(events, events.c.id == deliveries.c.event_id)
    .join(endpoints, endpoints.c.id == deliveries.c.endpoint_id)
    .where(deliveries.c.id == _the("id"), claims.c.name == _the("claim", Uuid), deliveries.c.sending_since.is_not(None))
)

# Why a claim found nothing; what is past its age is the sweep's to fail.
UNCLAIMED = (
    select(
        case((HAS_ADDRESS, endpoints.c.url)).label("url"),
        endpoints.c.paused_at,
        REMOVED.label("removed"),
        _TOO_EARLY.label("too_early"),
    )
    .select_from(deliveries.outerjoin(endpoints, endpoints.c.id == deliveries.c.endpoint_id))
    .where(
        deliveries.c.id == _the("id"),
        deliveries.c.turn == _the("turn"),
        deliveries.c.state == State.PENDING,
        deliveries.c.sending_since.is_(None),
        deliveries.c.expires_at > NOW,
    )
)

# The endpoints with held deliveries. One index entry is read for each, however many deliveries it has held: the scan
# leaps from name to name.
HOLDING = (
    text("""
    WITH RECURSIVE leap AS (
        (SELECT endpoint_id FROM deliveries WHERE state = 'held' ORDER BY endpoint_id LIMIT 1)
        UNION ALL
        SELECT (SELECT d.endpoint_id FROM deliveries d
                WHERE d.state = 'held' AND d.endpoint_id > leap.endpoint_id ORDER BY d.endpoint_id LIMIT 1)
        FROM leap WHERE leap.endpoint_id IS NOT NULL
    )
    SELECT endpoint_id FROM leap WHERE endpoint_id IS NOT NULL
    """)
    .columns(deliveries.c.endpoint_id)
    .cte("holding")
)

HOLD = (
    of_this_turn()
    .values(state=State.HELD, held_for=_the("held_for"), turn=deliveries.c.turn + 1, sweep_at=None, queued_at=None)
    .returning(deliveries.c.id)
)

NOT_QUEUED = {"sweep_at": deliveries.c.due_at, "queued_at": None}

UNQUEUE = of_this_turn().values(**NOT_QUEUED)

_FINISHED = (
    of_this_attempt()
    .values(
        state=_the("state"),
        reason=_the("reason"),
        due_at=func.coalesce(_the("due_at"), deliveries.c.due_at),
        sweep_at=_the("sweep_at"),
        queued_at=case((_the("queued", Boolean), NOW)),
        finished_at=case((_the("final", Boolean), NOW)),
        sending_since=None,
        fast_spent=_the("fast_spent"),
        slow_spent=_the("slow_spent"),
        slow_since=_the("slow_since"),
    )
    .returning(deliveries.c.id)
    .cte("finished")
)

# Whether this very attempt has been written down, and nobody has touched the delivery since.
WRITTEN = (
    select(deliveries.c.id)
    .join(attempts, attempts.c.delivery_id == deliveries.c.id)
    .where(
        deliveries.c.id == _the("id"),
        deliveries.c.turn == _the("turn"),
        deliveries.c.sending_since.is_(None),
        attempts.c.number == _the("number", attempts.c.number.type),
        attempts.c.started_at == _the("started_at", attempts.c.started_at.type),
        attempts.c.outcome != Outcome.UNKNOWN,
    )
)

ATTEMPT = ("number", "started_at", "duration_ms", "outcome", "status", "cause", "excerpt", "ladder", "probe")


def ends_claim_of(ended: CTE) -> CTE:
    """Return what forgets who is sending the deliveries of `ended`."""
    return delete(claims).where(claims.c.delivery_id == ended.c.id).cte("freed")


FINISH = (
    insert(attempts)
    .from_select(
        ["delivery_id", *ATTEMPT],
        select(_FINISHED.c.id, *(_the(name, attempts.c[name].type) for name in ATTEMPT)),
    )
    .on_conflict_do_nothing()
    .returning(attempts.c.number)
    .add_cte(ends_claim_of(_FINISHED))
)

_HANDED_BACK = (
    of_this_attempt()
    .values(
        attempts=deliveries.c.attempts - 1,
        turn=deliveries.c.turn + 1,
        sending_since=None,
        due_at=NOW + _the("wait", Interval),
        sweep_at=NOW + _the("wait", Interval),
        queued_at=None,
    )
    .returning(deliveries.c.id)
    .cte("handed_back")
)

HAND_BACK = select(_HANDED_BACK.c.id).add_cte(ends_claim_of(_HANDED_BACK))

END_REMOVED = (
    of_this_turn()
    .values(**failed_for(Reason.CANCELLED))
    .where(endpoints.c.id == deliveries.c.endpoint_id, REMOVED)
    .returning(deliveries.c.id)
)
