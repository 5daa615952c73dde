"""Forgetting what is long finished: bodies, attempts and notes go after a time, the row with its outcome stays.

The digest of the body stays too, so that the same event sent again is still known (rules, "Accepting events").
"""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import Integer, Interval, and_, delete, exists, func, not_, or_, select, update

from webhooks.ledger.database import Database
from webhooks.ledger.refusals import Refusals
from webhooks.ledger.side_tables import notes
from webhooks.ledger.tables import attempts, deliveries, events
from webhooks.ledger.transitions import NOW, the
from webhooks.model import State

_RIPE = (
    select(deliveries.c.id)
    .where(
        deliveries.c.state == the("state"),
        deliveries.c.finished_at <= NOW - the("keep", Interval),
        not_(deliveries.c.pruned),
    )
    .order_by(deliveries.c.finished_at)
    .limit(the("most", Integer))
    .with_for_update(skip_locked=True)
)

_PRUNED = (
    update(deliveries)
    .where(deliveries.c.id.in_(_RIPE))
    .values(pruned=True)
    .returning(deliveries.c.id, deliveries.c.event_id)
    .cte("pruned")
)

_OTHERS = deliveries.alias("others")

_EMPTIED = (
    update(events)
    .where(
        events.c.id.in_(select(_PRUNED.c.event_id)),
        # Of one event, as long as any delivery may be sent again.
        ~exists().where(
            or_(
                _OTHERS.c.id == events.c.id,
                and_(_OTHERS.c.event_id == events.c.id, _OTHERS.c.event_id != _OTHERS.c.id),
            ),
            not_(_OTHERS.c.pruned),
            _OTHERS.c.id.not_in(select(_PRUNED.c.id)),
        ),
    )
    .values(body=None)
    .returning(events.c.id)
    .cte("emptied")
)

_FORGOTTEN = (
    delete(attempts)
    .where(attempts.c.delivery_id.in_(select(_PRUNED.c.id)))
    .returning(attempts.c.number)
    .cte("forgotten")
)

_FORGOTTEN_NOTES = delete(notes).where(notes.c.delivery_id.in_(select(_PRUNED.c.id))).returning(notes.c.id)

_PRUNE = (
    select(func.count().label("number"))
    .select_from(_PRUNED)
    .add_cte(_FORGOTTEN, _FORGOTTEN_NOTES.cte("forgotten_notes"), _EMPTIED)
)

_UNMATCHED = (
    select(events.c.id)
    .where(events.c.unmatched, events.c.body.is_not(None), events.c.accepted_at <= NOW - the("keep", Interval))
    .order_by(events.c.accepted_at)
    .limit(the("most", Integer))
    .with_for_update(skip_locked=True)
)

_PRUNE_UNMATCHED = update(events).where(events.c.id.in_(_UNMATCHED)).values(body=None).returning(events.c.id)


class Pruning:
    """Prunes in small batches, the oldest first; `keep_failed` is longer, since failed deliveries may be replayed."""

    def __init__(self, database: Database, *, keep_delivered: timedelta, keep_failed: timedelta) -> None:
        self._database = database
        self._keep_delivered = keep_delivered
        self._keep_failed = keep_failed

    def prune(self, batch: int = 200) -> int:
        """Prune up to `batch` delivered and as many failed deliveries and refused events. Returns how many in all."""
        return (
            self._prune(State.DELIVERED, self._keep_delivered, batch)
            + self._prune(State.FAILED, self._keep_failed, batch)
            + self._prune_unmatched(batch)
            + Refusals(self._database).prune(self._keep_failed, batch)
        )

    def _prune(self, state: State, keep: timedelta, batch: int) -> int:
        values = {"the_state": state, "the_keep": keep, "the_most": batch}
        return int(self._database.rows(_PRUNE, values)[0].number)

    def _prune_unmatched(self, batch: int) -> int:
        return len(self._database.rows(_PRUNE_UNMATCHED, {"the_keep": self._keep_failed, "the_most": batch}))
