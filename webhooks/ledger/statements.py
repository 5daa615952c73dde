"""The statements of a delivery's life, built once: building one anew takes longer than running it.

Each compares the turn, so that a stale message or a late worker changes nothing (I3, I8). What changes is said in
`webhooks.ledger.transitions`; values are named `the_…` to keep apart from columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import (
    CTE,
    Interval,
    Update,
    Uuid,
    and_,
    bindparam,
    case,
    delete,
    null,
    select,
    text,
    tuple_,
)
from sqlalchemy.dialects.postgresql import insert

from webhooks.ledger import transitions
from webhooks.ledger.tables import attempts, claims, deliveries, endpoints, events
from webhooks.ledger.transitions import BEING_SENT, NOW, WAITING, Transition, the
from webhooks.model import Message, Outcome

_OF_THIS_TURN = (deliveries.c.id == the("id"), deliveries.c.turn == the("turn"))


def _of_this_turn(transition: Transition) -> Update:
    return transition.of(*_OF_THIS_TURN)


# Every POST is signed, so that an address alone is none: by hand, the table's own check can be taken away.
HAS_ADDRESS = and_(endpoints.c.url.is_not(None), endpoints.c.secret.is_not(None))

# A countdown ends by some worker's wall clock. Where that is ahead, the ladder's wait would be cut short.
_TOO_EARLY = deliveries.c.due_at > NOW + timedelta(seconds=0.2)

# Whether the endpoint was taken away; nothing is sent any more then. What a merchant whose default endpoint is gone
# gets from then on waits for another, as that of any merchant without one.
REMOVED = endpoints.c.removed_at.is_not(None) & (
    (endpoints.c.id != endpoints.c.merchant_id) | (endpoints.c.removed_at >= deliveries.c.accepted_at)
)

LIMITS = (*endpoints.c["lane", "rate"],)  # as in model.Limits

# A delivery that does not have its event's id has an entry in an index by event.
ELSEWHERE = deliveries.c.event_id != deliveries.c.id

CLAIMED_COLUMNS = (
    *deliveries.c["id", "event_id", "merchant_id", "endpoint_id", "type", "turn", "money"],
    *deliveries.c["due_at", "expires_at", "fast_spent", "slow_spent", "slow_since"],
    events.c.body,
    deliveries.c.attempts.label("number"),
    deliveries.c.sending_since.label("started_at"),
    *endpoints.c["url", "secret", "standard_headers", "headers"],
    *LIMITS,
    case((endpoints.c.previous_until > NOW, endpoints.c.previous_secret)).label("previous_secret"),
)

MAY_BE_SENT = (
    ~_TOO_EARLY,
    deliveries.c.expires_at > NOW,
    events.c.id == deliveries.c.event_id,
    endpoints.c.id == deliveries.c.endpoint_id,
    HAS_ADDRESS,
    endpoints.c.paused_at.is_(None),
    ~REMOVED,
)

_TAKEN = _of_this_turn(transitions.claimed()).where(*MAY_BE_SENT).returning(*CLAIMED_COLUMNS).cte("taken")

_CLAIM = {"name": the("claim", Uuid), "ends_at": NOW + the("lease", Interval), "silent_since": null()}

CLAIM = select(_TAKEN).add_cte(
    insert(claims)
    .from_select(["delivery_id", *_CLAIM], select(_TAKEN.c.id, *_CLAIM.values()))
    .on_conflict_do_update(index_elements=["delivery_id"], set_=_CLAIM)  # what is there is of an attempt that has ended
    .cte("noted")
)

# The claim whose answer was lost, if it was done.
CLAIMED = (
    select(*CLAIMED_COLUMNS)
    .join(claims, claims.c.delivery_id == deliveries.c.id)
    .join(events, events.c.id == deliveries.c.event_id)
    .join(endpoints, endpoints.c.id == deliveries.c.endpoint_id)
    .where(deliveries.c.id == the("id"), claims.c.name == the("claim", Uuid), BEING_SENT)
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
    .where(*_OF_THIS_TURN, WAITING, deliveries.c.expires_at > NOW)
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

HOLD = _of_this_turn(transitions.held()).returning(deliveries.c.id)

UNQUEUE = _of_this_turn(transitions.unqueued())

# The same for messages by `the_turns`, pairs of id and turn, however many they are.
UNQUEUE_ALL = transitions.unqueued().of(
    tuple_(deliveries.c.id, deliveries.c.turn).in_(bindparam("the_turns", expanding=True))
)

_FINISHED = _of_this_turn(transitions.finished()).returning(*deliveries.c["id", "endpoint_id"]).cte("finished")

# Whether this very attempt has been written down, and nobody has touched the delivery since.
WRITTEN = (
    select(deliveries.c.id)
    .join(attempts, attempts.c.delivery_id == deliveries.c.id)
    .where(
        *_OF_THIS_TURN,
        deliveries.c.sending_since.is_(None),
        attempts.c.number == the("number", attempts.c.number.type),
        attempts.c.started_at == the("started_at", attempts.c.started_at.type),
        attempts.c.outcome != Outcome.UNKNOWN,
    )
)

ATTEMPT = ("number", "started_at", "duration_ms", "outcome", "status", "cause", "excerpt", "ladder", "probe")


def turns_of(messages: Sequence[Message]) -> dict[str, list[tuple[str, int]]]:
    """Return what UNQUEUE_ALL is given."""
    return {"the_turns": [(message.id, message.turn) for message in messages]}


def ends_claim_of(ended: CTE) -> CTE:
    """Return what forgets who is sending the deliveries of `ended`."""
    return delete(claims).where(claims.c.delivery_id == ended.c.id).cte("freed")


FINISH = (
    insert(attempts)
    .from_select(
        ["delivery_id", "endpoint_id", *ATTEMPT],
        select(_FINISHED.c.id, _FINISHED.c.endpoint_id, *(the(name, attempts.c[name].type) for name in ATTEMPT)),
    )
    .on_conflict_do_nothing()
    .returning(attempts.c.number)
    .add_cte(ends_claim_of(_FINISHED))
)

_HANDED_BACK = _of_this_turn(transitions.handed_back()).returning(deliveries.c.id).cte("handed_back")

HAND_BACK = select(_HANDED_BACK.c.id).add_cte(ends_claim_of(_HANDED_BACK))

# An attempt that was given up meanwhile: what is unknown of it is filled in.
_LATE = {name: the(name, attempts.c[name].type) for name in ATTEMPT}

FINISH_LATE = (
    insert(attempts)
    .values(delivery_id=the("id"), endpoint_id=the("endpoint_id"), **_LATE)
    .on_conflict_do_update(
        index_elements=["delivery_id", "number"], set_=_LATE, where=attempts.c.outcome == Outcome.UNKNOWN
    )
)

# The merchant has it: another attempt would be a second copy for nothing. But where an operator wants a second copy,
# that stays: a replay gives a fresh age, and nothing else does.
DELIVER_LATE = (
    transitions.delivered_late()
    .of(deliveries.c.id == the("id"), deliveries.c.expires_at == the("expires_at"))
    .returning(deliveries.c.id)
)

END_REMOVED = (
    _of_this_turn(transitions.cancelled())
    .where(endpoints.c.id == deliveries.c.endpoint_id, REMOVED)
    .returning(deliveries.c.money)
)

# Whether an event was ever accepted.
IS_KNOWN = select(events.c.id).where(events.c.id == the("event_id"))

# Whether it was this merchant's, of this type.
IS_OF = select(events.c.id).where(*(events.c[name] == the(name) for name in ("id", "merchant_id", "type")))
