"""Forgetting what is long finished: bodies and attempts go after a time, the row with its outcome stays.

The digest of the body stays too, so that the same event sent again is still known (rules, "Accepting events").
"""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import and_, delete, exists, func, not_, or_, select, update

from webhooks.ledger.database import Database
from webhooks.ledger.refusals import Refusals
from webhooks.ledger.tables import attempts, deliveries, events
from webhooks.model import State


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
        ripe = (
            select(deliveries.c.id)
            .where(
                deliveries.c.state == state,
                deliveries.c.finished_at <= func.now() - keep,
                not_(deliveries.c.pruned),
            )
            .order_by(deliveries.c.finished_at)
            .limit(batch)
            .with_for_update(skip_locked=True)
        )
        pruned = (
            update(deliveries)
            .where(deliveries.c.id.in_(ripe))
            .values(pruned=True)
            .returning(deliveries.c.id, deliveries.c.event_id)
            .cte("pruned")
        )
        others = deliveries.alias("others")
        emptied = (
            update(events)
            .where(
                events.c.id.in_(select(pruned.c.event_id)),
                # Of one event, as long as any delivery may be sent again.
                ~exists().where(
                    or_(
                        others.c.id == events.c.id,
                        and_(others.c.event_id == events.c.id, others.c.event_id != others.c.id),
                    ),
                    not_(others.c.pruned),
                    others.c.id.not_in(select(pruned.c.id)),
                ),
            )
            .values(body=None)
            .returning(events.c.id)
            .cte("emptied")
        )
        forgotten = (
            delete(attempts)
            .where(attempts.c.delivery_id.in_(select(pruned.c.id)))
            .returning(attempts.c.number)
            .cte("forgotten")
        )
        counted = select(func.count().label("number")).select_from(pruned).add_cte(forgotten, emptied)
        return int(self._database.rows(counted)[0].number)

    def _prune_unmatched(self, batch: int) -> int:
        ripe = (
            select(events.c.id)
            .where(
                events.c.unmatched, events.c.body.is_not(None), events.c.accepted_at <= func.now() - self._keep_failed
            )
            .order_by(events.c.accepted_at)
            .limit(batch)
            .with_for_update(skip_locked=True)
        )
        emptied = update(events).where(events.c.id.in_(ripe)).values(body=None).returning(events.c.id)
        return len(self._database.rows(emptied))
