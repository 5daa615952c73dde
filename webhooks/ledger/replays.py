"""What operators do to deliveries: cancel them, or send them again.

A replayed delivery is held and released like any other held one: paced, oldest first, behind its merchant's breaker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, func, select, update

from webhooks.ledger.database import Database
from webhooks.ledger.statements import failed_for
from webhooks.ledger.tables import deliveries
from webhooks.ledger.views import Wanted, matching
from webhooks.model import HeldFor, Reason, State

_NOW = func.now()
_FINAL = (State.DELIVERED, State.FAILED)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one delivery that was named; `refused` says why not, in words for the operator."""

    delivery_id: str
    refused: str | None = None


class Replays:
    """Replays and cancellations. `max_age` is the fresh age limit of what is replayed."""

    def __init__(self, database: Database, *, max_age: timedelta) -> None:
        self._database = database
        self._max_age = max_age

    def now(self) -> datetime:
        """Return the moment by the ledger's clock, which is the one that says when deliveries finish."""
        moment: datetime = self._database.rows(select(_NOW.label("moment")))[0].moment
        return moment

    def count(self, wanted: Wanted, *, again: bool, finished_before: datetime) -> dict[str, int]:
        """Return how many deliveries a replay would send again, by merchant."""
        chosen = matching(select(deliveries.c.merchant_id, func.count().label("number")), wanted)
        rows = self._database.rows(
            chosen.where(_replayable(again=again), deliveries.c.finished_at < finished_before).group_by(
                deliveries.c.merchant_id
            )
        )
        return {row.merchant_id: row.number for row in rows}

    def replay_some(self, wanted: Wanted, *, again: bool, finished_before: datetime, most: int) -> int:
        """Send up to `most` matching deliveries again, the oldest first. Returns how many; call until there are none.

        With the same `finished_before` in every call none is taken twice: what is replayed finishes later, if at all.
        """
        chosen = (
            matching(select(deliveries.c.id), wanted)
            .where(_replayable(again=again), deliveries.c.finished_at < finished_before)
            .order_by(deliveries.c.accepted_at)
            .limit(most)
        )
        return len(self._replay(chosen))

    def replay(self, delivery_ids: Sequence[str], *, again: bool) -> list[Verdict]:
        """Send the named deliveries again, and say of each whether that was possible."""
        chosen = select(deliveries.c.id).where(deliveries.c.id.in_(delivery_ids), _replayable(again=again))
        replayed = self._replay(chosen)
        states = self._states([delivery_id for delivery_id in delivery_ids if delivery_id not in replayed])
        return [
            Verdict(delivery_id, None if delivery_id in replayed else _why_no_replay(states.get(delivery_id), again))
            for delivery_id in delivery_ids
        ]

    def _replay(self, chosen: Select[Any]) -> set[str]:
        rows = self._database.rows(
            update(deliveries)
            .where(deliveries.c.id.in_(chosen.with_for_update(skip_locked=True)))
            .values(
                state=State.HELD,
                held_for=HeldFor.REPLAY,
                reason=None,
                finished_at=None,
                turn=deliveries.c.turn + 1,
                fast_spent=0,
                slow_spent=0,
                slow_since=None,
                due_at=_NOW,
                expires_at=_NOW + self._max_age,
            )
            .returning(deliveries.c.id)
        )
        return {row.id for row in rows}

    def cancel(self, delivery_ids: Sequence[str]) -> list[Verdict]:
        """End the named deliveries as `failed: cancelled`; nothing of theirs is sent from here on.

        An attempt that is on its way can't be called back: the delivery is refused until it has ended.
        """
        rows = self._database.rows(
            update(deliveries)
            .where(
                deliveries.c.id.in_(delivery_ids),
                deliveries.c.state.in_([State.PENDING, State.HELD]),
                deliveries.c.sending_since.is_(None),
            )
            .values(**failed_for(Reason.CANCELLED))
            .returning(deliveries.c.id)
        )
        cancelled = {row.id for row in rows}
        states = self._states([delivery_id for delivery_id in delivery_ids if delivery_id not in cancelled])
        return [
            Verdict(delivery_id, None if delivery_id in cancelled else _why_no_cancel(states.get(delivery_id)))
            for delivery_id in delivery_ids
        ]

    def _states(self, delivery_ids: Sequence[str]) -> dict[str, Any]:
        if not delivery_ids:
            return {}
        rows = self._database.rows(
            select(
                deliveries.c.id,
                deliveries.c.state,
                deliveries.c.sending_since,
                deliveries.c.body.is_(None).label("pruned"),
            ).where(deliveries.c.id.in_(delivery_ids))
        )
        return {row.id: row for row in rows}


def _replayable(*, again: bool) -> ColumnElement[bool]:
    states = _FINAL if again else (State.FAILED,)
    return and_(deliveries.c.state.in_(states), deliveries.c.body.is_not(None))


def _why_no_replay(row: Any, again: bool) -> str:
    match row:
        case None:
            return "there is no such delivery"
        case _ if row.state not in _FINAL:
            return f"it is {row.state}, and will be sent anyway"
        case _ if row.pruned:
            return "its body has been pruned"
        case _ if row.state == State.DELIVERED and not again:
            return "it was delivered; add --again to send it once more"
        case _:  # its row was locked
            return "somebody else is at it; try again in a moment"


def _why_no_cancel(row: Any) -> str:
    match row:
        case None:
            return "there is no such delivery"
        case _ if row.state in _FINAL:
            return f"it is {row.state} already"
        case _:
            return "an attempt is on its way; try again in a moment"
