"""The life of a delivery: its states, and every way from one to another.

                     claimed                  finished
    accepted ─► waiting ─────────────► being sent ─────────────► delivered
                 │   ▲  ◄───────────────────┘ └────────────────► failed
            held │   │   finished (a retry), handed_back, buried
                 ▼   │ released
                 held ◄──────────────── replayed ─── delivered, failed

Waiting and being sent are both `pending`: somebody is at it, or nobody. A waiting delivery that is `published` or
`unqueued` goes on waiting. What is waiting or held and has no attempt under way may be `expired` or `cancelled`, which
is failed; an answer that comes late may have it be `delivered_late`. Only `replayed` leads away from an end (I8).

The turn moves whenever somebody takes the delivery, which makes every message from before stale (I3). The table's own
checks hold: what is pending has a time for the sweep, what is held a cause, what failed a reason, an end its time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import Boolean, ColumnElement, Interval, Update, and_, bindparam, case, func, update

from webhooks.ledger.tables import deliveries
from webhooks.model import HeldFor, Reason, State
from webhooks.policy.decisions import Decision, Delivered, Failed, RetryAt

NOW = func.now()


def the(name: str, kind: Any = None) -> Any:
    """Return what a statement is given under `the_…`, so that it keeps apart from columns; a column's by default."""
    return bindparam(f"the_{name}", type_=kind if kind is not None else deliveries.c[name].type)


WAITING = and_(deliveries.c.state == State.PENDING, deliveries.c.sending_since.is_(None))
BEING_SENT = deliveries.c.sending_since.is_not(None)
HELD = deliveries.c.state == State.HELD
UNFINISHED = deliveries.c.state.in_([State.PENDING, State.HELD])
IDLE = and_(UNFINISHED, deliveries.c.sending_since.is_(None))
ENDED = deliveries.c.state.in_([State.DELIVERED, State.FAILED])

_NEXT_TURN = deliveries.c.turn + 1
_NO_MESSAGE = {"queued_at": None}
_NOT_SWEPT = {"sweep_at": None, **_NO_MESSAGE}


@dataclass(frozen=True, slots=True)
class Transition:
    """A way from one state to another: which deliveries may go it, and what changes in the row of one that does."""

    may: ColumnElement[bool]
    values: Mapping[str, Any]

    def of(self, *which: ColumnElement[bool]) -> Update:
        """Return the statement by which those of the chosen deliveries go this way that may."""
        return self.of_locked(*which, self.may)

    def of_locked(self, *which: ColumnElement[bool]) -> Update:
        """Return it for deliveries that are locked, and of which is known that they may."""
        return update(deliveries).where(*which).values(**self.values)


def claimed() -> Transition:
    """From waiting to being sent: a worker takes it for one attempt."""
    return Transition(WAITING, {"turn": _NEXT_TURN, "attempts": deliveries.c.attempts + 1, "sending_since": NOW})


def held() -> Transition:
    """From waiting to held, for `the_held_for`: it is put aside without an attempt and without a message."""
    return Transition(WAITING, {"state": State.HELD, "held_for": the("held_for"), "turn": _NEXT_TURN, **_NOT_SWEPT})


def released() -> Transition:
    """From held to waiting: what it waited for is over, and its message is published right away."""
    return Transition(
        HELD,
        {
            "state": State.PENDING,
            "held_for": None,
            "turn": _NEXT_TURN,
            "due_at": func.least(deliveries.c.due_at, NOW),
            "queued_at": NOW,
            "sweep_at": NOW + the("recover_after", Interval),
        },
    )


def published(is_queued: ColumnElement[bool]) -> Transition:
    """From waiting to waiting: the sweep publishes a message, of the same turn; one that still waits keeps its time."""
    return Transition(
        WAITING,
        {
            "queued_at": case((is_queued, deliveries.c.queued_at), else_=NOW),
            "sweep_at": func.greatest(deliveries.c.due_at, NOW) + the("recover_after", Interval),
        },
    )


def unqueued() -> Transition:
    """From waiting to waiting: no message is on its way after all; the sweep publishes one as soon as it is due."""
    return Transition(WAITING, {"sweep_at": deliveries.c.due_at, **_NO_MESSAGE})


def finished(given: Callable[..., Any] = the) -> Transition:
    """From being sent to delivered, failed or waiting, as `after` says: its attempt has come to an end.

    `given` says where the values come from.
    """
    return Transition(
        BEING_SENT,
        {
            "state": given("state"),
            "reason": given("reason"),
            "due_at": func.coalesce(given("due_at"), deliveries.c.due_at),
            "sweep_at": given("sweep_at"),
            "queued_at": case((given("queued", Boolean), NOW)),
            "finished_at": case((given("final", Boolean), NOW)),
            "sending_since": None,
            "fast_spent": given("fast_spent"),
            "slow_spent": given("slow_spent"),
            "slow_since": given("slow_since"),
        },
    )


def after(decision: Decision, *, recover_after: timedelta) -> dict[str, Any]:
    """Return where `finished` leads. A retry that has a message is left to it until so long after its due time."""
    end = {"the_reason": None, "the_due_at": None, "the_sweep_at": None}
    match decision:
        case Delivered():
            return {**end, "the_state": State.DELIVERED, "the_final": True}
        case Failed(reason=reason):
            return {**end, "the_state": State.FAILED, "the_final": True, "the_reason": reason}
        case RetryAt(due_at=due_at):
            times = {"the_due_at": due_at, "the_sweep_at": due_at + recover_after}
            return {"the_reason": None, "the_state": State.PENDING, "the_final": False, **times}


def handed_back() -> Transition:
    """From being sent to waiting, for `the_wait`: nothing was sent, so there was no attempt; nothing is spent (I10)."""
    due_at = NOW + the("wait", Interval)
    return _taken_back(due_at, {"attempts": deliveries.c.attempts - 1})


def buried(due_at: ColumnElement[Any]) -> Transition:
    """From being sent to waiting: its worker died. The attempt counts, of unknown outcome (I4), and spends nothing."""
    return _taken_back(due_at, {})


def _taken_back(due_at: ColumnElement[Any], more: Mapping[str, Any]) -> Transition:
    waits = {"due_at": due_at, "sweep_at": due_at, "sending_since": None, **_NO_MESSAGE}
    return Transition(BEING_SENT, {**more, "turn": _NEXT_TURN, **waits})


def expired() -> Transition:
    """From waiting or held to failed: it is past its age."""
    return _failed_for(Reason.EXPIRED)


def cancelled() -> Transition:
    """From waiting or held to failed: an operator wants it, or has removed its endpoint."""
    return _failed_for(Reason.CANCELLED)


def _failed_for(reason: Reason) -> Transition:
    end = {"state": State.FAILED, "reason": reason, "finished_at": NOW}
    return Transition(IDLE, {**end, "turn": _NEXT_TURN, "held_for": None, **_NOT_SWEPT})


def delivered_late() -> Transition:
    """From waiting, held or being sent again to delivered: an attempt that was given up was answered 2xx after all."""
    end = {"state": State.DELIVERED, "finished_at": NOW, "sending_since": None}
    return Transition(UNFINISHED, {**end, "turn": _NEXT_TURN, "held_for": None, **_NOT_SWEPT})


def replayed() -> Transition:
    """From delivered or failed to held: an operator sends it again, with fresh budgets and a fresh age, `the_max_age`.

    It is released like any other held one. The age also tells the resend from what was before; see `Ledger.finish`.
    """
    return Transition(
        ENDED,
        {
            "state": State.HELD,
            "held_for": HeldFor.REPLAY,
            "reason": None,
            "finished_at": None,
            "turn": _NEXT_TURN,
            **dict.fromkeys(("fast_spent", "slow_spent"), 0),
            "slow_since": None,
            "pruned": False,
            "due_at": NOW,
            "expires_at": NOW + the("max_age", Interval),
        },
    )
