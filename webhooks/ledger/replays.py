"""What operators do to deliveries: cancel them, or send them again.

A replayed delivery is held and released like any other held one: paced, oldest first, behind its merchant's breaker.
What an operator has cancelled is sent again only when that is asked for in so many words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, exists, func, not_, select, true, update

from webhooks.ledger import routing
from webhooks.ledger.acts import Rows
from webhooks.ledger.statements import REMOVED, failed_for
from webhooks.ledger.tables import attempts, deliveries, endpoints, events
from webhooks.ledger.views import Wanted, answered, matching
from webhooks.model import HeldFor, Outcome, Reason, State

_NOW = func.now()
_FINAL = (State.DELIVERED, State.FAILED)

_REMOVED = exists().where(endpoints.c.id == deliveries.c.endpoint_id, REMOVED).correlate(deliveries)

_HAS_BODY = exists().where(events.c.id == deliveries.c.event_id, events.c.body.is_not(None)).correlate(deliveries)

# The last attempt that was answered 2xx, of a delivery that failed all the same: its answer came too late.
_ANSWERED = (
    select(func.max(attempts.c.number))
    .where(
        attempts.c.delivery_id == deliveries.c.id,
        attempts.c.outcome == Outcome.DELIVERED,
        deliveries.c.state != State.DELIVERED,
    )
    .correlate(deliveries)
    .scalar_subquery()
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one delivery that was named.

    `refused` says why not, in words for the operator; `note` what else is to be known.
    """

    delivery_id: str
    refused: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a replay would send again, by merchant.

    Of those `answered` were answered 2xx by an attempt; `left_out` match as well, but an operator cancelled them.
    """

    by_merchant: Mapping[str, int]
    answered: int
    left_out: int

    @property
    def number(self) -> int:
        """How many there are in all."""
        return sum(self.by_merchant.values())


class Replays:
    """Replays and cancellations. `max_age` is the fresh age limit of what is replayed."""

    def __init__(self, database: Rows, *, max_age: timedelta) -> None:
        self._database = database
        self._max_age = max_age

    def within(self, act: Rows) -> Replays:
        """Return the same, with every change a part of an operator's act."""
        return Replays(act, max_age=self._max_age)

    def now(self) -> datetime:
        """Return the moment by the ledger's clock, which is the one that says when deliveries finish."""
        moment: datetime = self._database.rows(select(_NOW.label("moment")), repeatable=True)[0].moment
        return moment

    def count(self, wanted: Wanted, *, again: bool, finished_before: datetime) -> Chosen:
        """Return how many deliveries a replay would send again, by merchant."""
        goes = _unless_cancelled(cancelled=_by_reason(wanted))
        numbers = (
            func.count().filter(goes).label("going"),
            func.count().filter(goes, _ANSWERED.is_not(None)).label("answered"),
            func.count().filter(not_(goes)).label("left_out"),
        )
        rows = self._database.rows(
            matching(select(deliveries.c.merchant_id, *numbers), wanted)
            .where(_replayable(again=again, cancelled=True), deliveries.c.finished_at < finished_before)
            .group_by(deliveries.c.merchant_id),
            repeatable=True,
        )
        return Chosen(
            {row.merchant_id: row.going for row in rows if row.going},
            answered=sum(row.answered for row in rows),
            left_out=sum(row.left_out for row in rows),
        )

    def replay_some(self, wanted: Wanted, *, again: bool, finished_before: datetime, most: int) -> Sequence[str]:
        """Send up to `most` matching deliveries again, the oldest first. Returns which; call until there are none.

        With the same `finished_before` in every call none is taken twice: what is replayed finishes later, if at all.
        """
        chosen = (
            matching(select(deliveries.c.id), wanted)
            .where(_replayable(again=again, cancelled=_by_reason(wanted)), deliveries.c.finished_at < finished_before)
            .order_by(deliveries.c.accepted_at)
            .limit(most)
        )
        return sorted(self._replay(chosen))

    def replay(self, delivery_ids: Iterable[str], *, again: bool, cancelled: bool = False) -> list[Verdict]:
        """Send the named deliveries again, and say of each whether that was possible."""
        named = list(dict.fromkeys(delivery_ids))
        chosen = select(deliveries.c.id).where(
            deliveries.c.id.in_(named), _replayable(again=again, cancelled=cancelled)
        )
        replayed = self._replay(chosen)
        refused = {
            verdict.delivery_id: verdict.refused
            or "somebody else is at it; try again in a moment"  # its row was locked
            for verdict in self.judge([one for one in named if one not in replayed], again=again, cancelled=cancelled)
        }
        return [Verdict(one, refused.get(one), _note(replayed.get(one))) for one in named]

    def judge(self, delivery_ids: Iterable[str], *, again: bool, cancelled: bool = False) -> list[Verdict]:
        """Say of each named delivery whether it could be sent again, and change nothing."""
        named = list(dict.fromkeys(delivery_ids))
        found = self._found(named)
        verdicts = []
        for one in named:
            refused = _why_no_replay(found.get(one), again=again, cancelled=cancelled)
            verdicts.append(Verdict(one, refused, None if refused else _note(found[one].answered)))
        return verdicts

    def _replay(self, chosen: Select[Any]) -> dict[str, int | None]:
        """Send what is chosen again; returns each, with its attempt that was answered 2xx, if there is one."""
        taken = chosen.add_columns(_ANSWERED.label("answered")).with_for_update(skip_locked=True).cte("taken")
        rows = self._database.rows(
            update(deliveries)
            .where(deliveries.c.id == taken.c.id)
            .values(
                state=State.HELD,
                held_for=HeldFor.REPLAY,
                reason=None,
                finished_at=None,
                turn=deliveries.c.turn + 1,
                fast_spent=0,
                slow_spent=0,
                slow_since=None,
                pruned=False,
                due_at=_NOW,
                expires_at=_NOW + self._max_age,  # which also tells the resend from what was before: Ledger.finish
            )
            .returning(taken.c.id, taken.c.answered)
        )
        return {row.id: row.answered for row in rows}

    def route(self, event_id: str) -> Sequence[str]:
        """Have an event go also to the endpoints that want it by now and have not had it; paced, like a replay.

        Returns the deliveries that begin with it; none where its body was pruned.
        """
        begun = self._database.rows(routing.ROUTE, {"the_id": event_id, "the_max_age": self._max_age})
        return sorted(row.id for row in begun)

    def cancel(self, delivery_ids: Iterable[str]) -> list[Verdict]:
        """End the named deliveries as `failed: cancelled`; nothing of theirs is sent from here on.

        An attempt that is on its way can't be called back: the delivery is refused until it has ended.
        """
        named = list(dict.fromkeys(delivery_ids))
        rows = self._database.rows(
            update(deliveries)
            .where(
                deliveries.c.id.in_(named),
                deliveries.c.state.in_([State.PENDING, State.HELD]),
                deliveries.c.sending_since.is_(None),
            )
            .values(**failed_for(Reason.CANCELLED))
            .returning(deliveries.c.id)
        )
        cancelled = {row.id for row in rows}
        found = self._found([one for one in named if one not in cancelled])
        return [Verdict(one, None if one in cancelled else _why_no_cancel(found.get(one))) for one in named]

    def _found(self, delivery_ids: Sequence[str]) -> dict[str, Any]:
        if not delivery_ids:
            return {}
        facts = deliveries.c["id", "state", "reason", "sending_since"]
        rows = self._database.rows(
            select(
                *facts, not_(_HAS_BODY).label("pruned"), _REMOVED.label("removed"), _ANSWERED.label("answered")
            ).where(deliveries.c.id.in_(delivery_ids)),
            repeatable=True,
        )
        return {row.id: row for row in rows}


def _replayable(*, again: bool, cancelled: bool) -> ColumnElement[bool]:
    states = _FINAL if again else (State.FAILED,)
    return and_(deliveries.c.state.in_(states), _HAS_BODY, not_(_REMOVED), _unless_cancelled(cancelled=cancelled))


def _unless_cancelled(*, cancelled: bool) -> ColumnElement[bool]:
    return true() if cancelled else deliveries.c.reason.is_distinct_from(Reason.CANCELLED)


def _by_reason(wanted: Wanted) -> bool:
    return wanted.reason is Reason.CANCELLED


def _note(attempt: int | None) -> str | None:
    return None if attempt is None else answered(attempt)


def _why_no_replay(row: Any, *, again: bool, cancelled: bool) -> str | None:  # noqa: PLR0911 - one line for each
    match row:
        case None:
            return "there is no such delivery"
        case _ if row.state not in _FINAL:
            return f"it is {row.state}, and will be sent anyway"
        case _ if row.pruned:
            return "its body has been pruned"
        case _ if row.removed:
            return "its endpoint was removed"
        case _ if row.state == State.DELIVERED and not again:
            return "it was delivered; add --again to send it once more"
        case _ if row.reason == Reason.CANCELLED and not cancelled:
            return "an operator cancelled it; add --cancelled to send it all the same"
        case _:
            return None


def _why_no_cancel(row: Any) -> str:
    match row:
        case None:
            return "there is no such delivery"
        case _ if row.state in _FINAL:
            return f"it is {row.state} already"
        case _:
            return "an attempt is on its way; try again in a moment"
