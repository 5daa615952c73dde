"""The statements of a delivery's life, built once: building one anew takes longer than running it.

Each compares the turn, so that a stale message or a late worker changes nothing (I3, I8). Values are named
`the_…` to keep apart from columns.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import Boolean, Interval, Update, and_, bindparam, case, func, not_, select, text, update
from sqlalchemy.dialects.postgresql import insert

from webhooks.ledger.tables import attempts, deliveries, merchants
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
# that one statement takes one event or hundreds.
RECORD = text("""
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(CAST(:the_ids AS text[]), CAST(:the_merchant_ids AS text[]), CAST(:the_types AS text[]),
        CAST(:the_money AS boolean[]), CAST(:the_bodies AS bytea[]), CAST(:the_digests AS bytea[]))
        AS given (id, merchant_id, type, money, body, body_sha256)
), clashing AS (
    SELECT FROM given JOIN deliveries USING (id) WHERE deliveries.body_sha256 <> given.body_sha256
)
INSERT INTO deliveries (id, merchant_id, type, money, body, body_sha256, due_at, sweep_at, queued_at, accepted_at,
    expires_at)
SELECT id, merchant_id, type, money, body, body_sha256, statement_timestamp() + CAST(:the_wait AS interval),
    statement_timestamp() + CAST(:the_wait AS interval) + CAST(:the_recover_after AS interval),
    CASE WHEN :the_queued THEN statement_timestamp() END, statement_timestamp(),
    statement_timestamp() + CAST(:the_max_age AS interval)
FROM given WHERE NOT EXISTS (SELECT FROM clashing)
ON CONFLICT (id) DO NOTHING
RETURNING id AS event_id, merchant_id, type, accepted_at
""")

# What was accepted just now, by a statement whose answer was lost.
RECORDED = text("""
SELECT deliveries.id AS event_id, deliveries.merchant_id, deliveries.type, deliveries.accepted_at
FROM unnest(CAST(:the_ids AS text[]), CAST(:the_digests AS bytea[])) AS given (id, body_sha256)
JOIN deliveries ON deliveries.id = given.id AND deliveries.body_sha256 = given.body_sha256
WHERE deliveries.turn = 0 AND deliveries.queued_at = deliveries.accepted_at
""")

CONFLICTS = text("""
SELECT given.id FROM unnest(CAST(:the_ids AS text[]), CAST(:the_digests AS bytea[])) AS given (id, body_sha256)
JOIN deliveries ON deliveries.id = given.id AND deliveries.body_sha256 <> given.body_sha256
""")

# Every POST is signed, so that an address alone is none: by hand, the table's own check can be taken away.
HAS_ADDRESS = and_(merchants.c.url.is_not(None), merchants.c.secret.is_not(None))

# A countdown ends by some worker's wall clock. Where that is ahead, the ladder's wait would be cut short.
_TOO_EARLY = deliveries.c.due_at > NOW + timedelta(seconds=0.2)

_CLAIMED = (
    *deliveries.c[
        "id", "merchant_id", "type", "turn", "money", "expires_at", "fast_spent", "slow_spent", "slow_since", "body"
    ],
    deliveries.c.attempts.label("number"),
    deliveries.c.sending_since.label("started_at"),
    *merchants.c["url", "secret", "standard_headers"],
    case((merchants.c.previous_until > NOW, merchants.c.previous_secret)).label("previous_secret"),
)

CLAIM = (
    of_this_turn()
    .where(
        not_(_TOO_EARLY),
        deliveries.c.expires_at > NOW,
        merchants.c.id == deliveries.c.merchant_id,
        HAS_ADDRESS,
        merchants.c.paused_at.is_(None),
    )
    .values(
        turn=deliveries.c.turn + 1,
        attempts=deliveries.c.attempts + 1,
        sending_since=NOW,
        sweep_at=NOW + _the("lease", Interval),
        claimed_by=_the("claimed_by"),
    )
    .returning(*_CLAIMED)
)

# The claim whose answer was lost, if it was done.
CLAIMED = select(*_CLAIMED).where(
    deliveries.c.id == _the("id"),
    deliveries.c.claimed_by == _the("claimed_by"),
    deliveries.c.sending_since.is_not(None),
    merchants.c.id == deliveries.c.merchant_id,
)

# Why a claim found nothing; what is past its age is the sweep's to fail.
UNCLAIMED = (
    select(case((HAS_ADDRESS, merchants.c.url)).label("url"), merchants.c.paused_at, _TOO_EARLY.label("too_early"))
    .select_from(deliveries.outerjoin(merchants, merchants.c.id == deliveries.c.merchant_id))
    .where(
        deliveries.c.id == _the("id"),
        deliveries.c.turn == _the("turn"),
        deliveries.c.state == State.PENDING,
        deliveries.c.sending_since.is_(None),
        deliveries.c.expires_at > NOW,
    )
)

# The merchants with held deliveries. One index entry is read for each, however many deliveries it has held: the scan
# leaps from name to name.
HOLDING = (
    text("""
    WITH RECURSIVE leap AS (
        (SELECT merchant_id FROM deliveries WHERE state = 'held' ORDER BY merchant_id LIMIT 1)
        UNION ALL
        SELECT (SELECT d.merchant_id FROM deliveries d
                WHERE d.state = 'held' AND d.merchant_id > leap.merchant_id ORDER BY d.merchant_id LIMIT 1)
        FROM leap WHERE leap.merchant_id IS NOT NULL
    )
    SELECT merchant_id FROM leap WHERE merchant_id IS NOT NULL
    """)
    .columns(deliveries.c.merchant_id)
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
        silent_since=None,
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

FINISH = (
    insert(attempts)
    .from_select(
        ["delivery_id", *ATTEMPT],
        select(_FINISHED.c.id, *(_the(name, attempts.c[name].type) for name in ATTEMPT)),
    )
    .on_conflict_do_nothing()
    .returning(attempts.c.number)
)

HAND_BACK = of_this_attempt().values(
    attempts=deliveries.c.attempts - 1,
    turn=deliveries.c.turn + 1,
    sending_since=None,
    silent_since=None,
    due_at=NOW + _the("wait", Interval),
    sweep_at=NOW + _the("wait", Interval),
    queued_at=None,
)
