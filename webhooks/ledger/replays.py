"""What operators do to deliveries: cancel them, or send them again.

A replayed delivery is held and released like any other held one: paced, oldest first, behind its merchant's breaker.
What an operator has cancelled is sent again only when that is asked for in so many words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Boolean, Executable, Row, Select, and_, bindparam, exists, func, not_, or_, select

from webhooks.ledger import routing, transitions
from webhooks.ledger.acts import Rows
from webhooks.ledger.statements import REMOVED
from webhooks.ledger.tables import attempts, deliveries, endpoints, events
from webhooks.ledger.transitions import NOW, the
from webhooks.ledger.views import Wanted, answered, matching
from webhooks.model import Outcome, Reason, State

_NAMED = deliveries.c.id.in_(bindparam("the_ids", expanding=True))

_HAS_BODY = exists().where(events.c.id == deliveries.c.event_id, events.c.body.is_not(None)).correlate(deliveries)
_IS_REMOVED = exists().where(endpoints.c.id == deliveries.c.endpoint_id, REMOVED).correlate(deliveries)

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

_REPLAYED = transitions.replayed()
_MAY_GO_AGAIN = and_(
    _REPLAYED.may, or_(the("again", Boolean), deliveries.c.state == State.FAILED), _HAS_BODY, not_(_IS_REMOVED)
)
_UNLESS_CANCELLED = or_(the("cancelled", Boolean), deliveries.c.reason.is_distinct_from(Reason.CANCELLED))


def _replay(chosen: Select[Any]) -> Executable:
    """Return what sends the chosen deliveries again; what somebody else has locked is passed over."""
    taken = chosen.add_columns(_ANSWERED.label("answered")).with_for_update(skip_locked=True, of=deliveries)
    locked = taken.cte("taken")
    return _REPLAYED.of_locked(deliveries.c.id == locked.c.id).returning(*locked.c)


_REPLAY = _replay(select(deliveries.c.id).where(_NAMED, _MAY_GO_AGAIN, _UNLESS_CANCELLED))

_CANCEL = transitions.cancelled().of(_NAMED).returning(deliveries.c.id)

_FOUND = select(
    *deliveries.c["id", "state", "reason"],
    not_(_HAS_BODY).label("pruned"),
    _IS_REMOVED.label("removed"),
    _ANSWERED.label("answered"),
).where(_NAMED)


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


@dataclass(frozen=True, slots=True)
class Resent:
    """Some deliveries that are sent again; `reached` is when the last of them was accepted, None where there is none.

    Those before it need not be looked through once more.
    """

    ids: Sequence[str]
    reached: datetime | None


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
        moment: datetime = self._database.rows(select(NOW.label("moment")), repeatable=True)[0].moment
        return moment

    def count(self, wanted: Wanted, *, again: bool, finished_before: datetime) -> Chosen:
        """Return how many deliveries a replay would send again, by merchant."""
        numbers = (
            func.count().filter(_UNLESS_CANCELLED).label("going"),
            func.count().filter(_UNLESS_CANCELLED, _ANSWERED.is_not(None)).label("answered"),
            func.count().filter(not_(_UNLESS_CANCELLED)).label("left_out"),
        )
        rows = self._database.rows(
            matching(select(deliveries.c.merchant_id, *numbers), wanted)
            .where(_MAY_GO_AGAIN, deliveries.c.finished_at < finished_before)
            .group_by(deliveries.c.merchant_id),
            {"the_again": again, "the_cancelled": _by_reason(wanted)},
            repeatable=True,
        )
        return Chosen(
            {row.merchant_id: row.going for row in rows if row.going},
            answered=sum(row.answered for row in rows),
            left_out=sum(row.left_out for row in rows),
        )

    def replay_some(
        self, wanted: Wanted, *, again: bool, finished_before: datetime, most: int, reached: datetime | None = None
    ) -> Resent:
        """Send up to `most` matching deliveries again, the oldest first, from where another batch has `reached` on.

        With the same `finished_before` in every call none is taken twice: what is replayed finishes later, if at all.
        """
        chosen = (
            matching(select(*deliveries.c["id", "accepted_at"]), wanted)
            .where(*([] if reached is None else [deliveries.c.accepted_at >= reached]))
            .where(_MAY_GO_AGAIN, _UNLESS_CANCELLED, deliveries.c.finished_at < finished_before)
            .order_by(deliveries.c.accepted_at)
            .limit(most)
        )
        values = {"the_again": again, "the_cancelled": _by_reason(wanted), "the_max_age": self._max_age}
        rows = self._database.rows(_replay(chosen), values)
        return Resent(sorted(row.id for row in rows), max((row.accepted_at for row in rows), default=None))

    def replay(self, delivery_ids: Iterable[str], *, again: bool, cancelled: bool = False) -> list[Verdict]:
        """Send the named deliveries again, and say of each whether that was possible."""
        named = list(dict.fromkeys(delivery_ids))
        values = {"the_ids": named, "the_again": again, "the_cancelled": cancelled, "the_max_age": self._max_age}
        replayed = {row.id: row.answered for row in self._database.rows(_REPLAY, values)}
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

    def route(self, event_id: str, endpoint_id: str | None = None) -> Sequence[str]:
        """Have an event go also to the endpoints that want it by now and have not had it, or to one; paced as a replay.

        Returns the deliveries that begin with it; none where its body was pruned.
        """
        values = {"the_id": event_id, "the_endpoint_id": endpoint_id, "the_max_age": self._max_age}
        begun = self._database.rows(routing.ROUTE, values)
        return sorted(row.id for row in begun)

    def cancel(self, delivery_ids: Iterable[str]) -> list[Verdict]:
        """End the named deliveries as `failed: cancelled`; nothing of theirs is sent from here on.

        An attempt that is on its way can't be called back: the delivery is refused until it has ended.
        """
        named = list(dict.fromkeys(delivery_ids))
        cancelled = {row.id for row in self._database.rows(_CANCEL, {"the_ids": named})}
        found = self._found([one for one in named if one not in cancelled])
        return [Verdict(one, None if one in cancelled else _why_no_cancel(found.get(one))) for one in named]

    def _found(self, delivery_ids: Sequence[str]) -> Mapping[str, Row[Any]]:
        if not delivery_ids:
            return {}
        return {row.id: row for row in self._database.rows(_FOUND, {"the_ids": delivery_ids}, repeatable=True)}


def _by_reason(wanted: Wanted) -> bool:
    return wanted.reason is Reason.CANCELLED


def _note(attempt: int | None) -> str | None:
    return None if attempt is None else answered(attempt)


def _why_no_replay(row: Any, *, again: bool, cancelled: bool) -> str | None:
    if row is None:
        return "there is no such delivery"
    reasons = {
        f"it is {row.state}, and will be sent anyway": row.state not in {State.DELIVERED, State.FAILED},
        "its body has been pruned": row.pruned,
        "its endpoint was removed": row.removed,
        "it was delivered; add --again to send it once more": row.state == State.DELIVERED and not again,
        "an operator cancelled it; add --cancelled to send it all the same": row.reason == Reason.CANCELLED
        and not cancelled,
    }
    return next((why for why, holds in reasons.items() if holds), None)


def _why_no_cancel(row: Any) -> str:
    match row:
        case None:
            return "there is no such delivery"
        case _ if row.state in {State.DELIVERED, State.FAILED}:
            return f"it is {row.state} already"
        case _:
            return "an attempt is on its way; try again in a moment"
