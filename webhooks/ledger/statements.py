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


# A caller's transaction may have begun long ago: the statement's time counts. Events come as one array a column, so
# that one statement takes one event or hundreds. Which endpoints want one is said here, in the same round trip; a
# merchant without any has it held for its address.
RECORD = text("""
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(CAST(:the_ids AS text[]), CAST(:the_merchant_ids AS text[]), CAST(:the_types AS text[]),
        CAST(:the_money AS boolean[]), CAST(:the_bodies AS bytea[]), CAST(:the_digests AS bytea[]))
        AS given (id, merchant_id, type, money, body, body_sha256)
), clashing AS (
    SELECT FROM given JOIN events USING (id) WHERE events.body_sha256 <> given.body_sha256
), wanted AS MATERIALIZED (
    SELECT given.id AS event_id, endpoints.id AS endpoint_id, endpoints.lane
    FROM given JOIN endpoints ON endpoints.merchant_id = given.merchant_id AND endpoints.removed_at IS NULL
    WHERE endpoints.types IS NULL OR EXISTS (
        SELECT FROM unnest(endpoints.types) AS wanted
        WHERE given.type = wanted OR right(wanted, 2) = '.*' AND starts_with(given.type, left(wanted, -1)))
    UNION ALL
    SELECT given.id, given.merchant_id, NULL FROM given WHERE NOT EXISTS (
        SELECT FROM endpoints
        WHERE endpoints.merchant_id = given.merchant_id AND endpoints.removed_at IS NULL)
), accepted AS (
    INSERT INTO events (id, merchant_id, type, money, body, body_sha256, accepted_at, unmatched)
    SELECT id, merchant_id, type, money, body, body_sha256, statement_timestamp(),
        NOT EXISTS (SELECT FROM wanted WHERE wanted.event_id = given.id)
    FROM given WHERE NOT EXISTS (SELECT FROM clashing)
    ON CONFLICT (id) DO NOTHING
    RETURNING id, merchant_id, type, money, accepted_at
), begun AS (
    INSERT INTO deliveries (id, event_id, merchant_id, endpoint_id, type, money, due_at, sweep_at, queued_at,
        accepted_at, expires_at)
    SELECT CASE WHEN endpoint_id = merchant_id THEN id ELSE id || '~' || endpoint_id END, id, merchant_id, endpoint_id,
        type, money, accepted_at + CAST(:the_wait AS interval),
        accepted_at + CAST(:the_wait AS interval) + CAST(:the_recover_after AS interval),
        CASE WHEN :the_queued THEN accepted_at END, accepted_at, accepted_at + CAST(:the_max_age AS interval)
    FROM accepted JOIN wanted ON wanted.event_id = accepted.id
    ON CONFLICT (id) DO NOTHING
)
SELECT accepted.id AS event_id, accepted.merchant_id, wanted.endpoint_id, accepted.type, accepted.accepted_at,
    wanted.lane
FROM accepted LEFT JOIN wanted ON wanted.event_id = accepted.id
""")

# What was accepted just now, by a statement whose answer was lost.
RECORDED = text("""
SELECT deliveries.event_id, deliveries.merchant_id, deliveries.endpoint_id, deliveries.type, deliveries.accepted_at,
    endpoints.lane
FROM unnest(CAST(:the_ids AS text[]), CAST(:the_digests AS bytea[])) AS given (id, body_sha256)
JOIN events ON events.id = given.id AND events.body_sha256 = given.body_sha256
JOIN deliveries ON deliveries.event_id = events.id
LEFT JOIN endpoints ON endpoints.id = deliveries.endpoint_id
WHERE deliveries.turn = 0 AND deliveries.queued_at = deliveries.accepted_at
""")

CONFLICTS = text("""
SELECT given.id FROM unnest(CAST(:the_ids AS text[]), CAST(:the_digests AS bytea[])) AS given (id, body_sha256)
JOIN events ON events.id = given.id AND events.body_sha256 <> given.body_sha256
""")

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
