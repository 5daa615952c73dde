"""What those hear who watch Celery's tasks, such as Flower: how one ended, also where no worker worked on it.

What the sweep ends is told by its own worker. A command is no worker, and must not look like one: it asks whoever
sweeps to tell. All of it is best effort: the ledger knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from celery.states import FAILURE, RETRY, SUCCESS

from webhooks.celery import broker
from webhooks.celery.app import DELIVER, app
from webhooks.errors import BrokerUnavailable
from webhooks.observing import many
from webhooks.observing.facts import Fact
from webhooks.observing.outage import Outage

COMMAND = "tell_ended"
"""The remote command by which a worker is asked to tell."""

TOGETHER = 500  # deliveries in one command; whoever ends or resends more does so in as many steps

_EVENTS = {SUCCESS: "task-succeeded", RETRY: "task-retried", FAILURE: "task-failed"}

_send: list[Callable[..., None]] = []  # how this process sends events; it is a worker's, or there is none
_outage = Outage()


def event_of(state: str, words: str) -> tuple[str, dict[str, Any]]:
    """Return the event that tells an ending. What is still known of the task's earlier ones goes."""
    exception = None if state == SUCCESS else words
    return _EVENTS[state], {"result": words, "exception": exception, "traceback": None}


def send_by(send: Callable[..., None] | None) -> None:
    """Have this process's events sent so from now on: it is a worker. None: it is one no more."""
    _send[:] = [send] if send else []


def hear(fact: Fact) -> None:
    """Tell watchers what became of deliveries without an attempt; a sink."""
    match fact:
        case many.EndedApart(delivery_ids=ids, reason=reason):
            _tell(ids, FAILURE, reason.value)
        case many.WaitingAgain(delivery_ids=ids, why=why):
            _tell(ids, RETRY, why)
        case _:
            pass  # an attempt's task tells it itself


def tell(delivery_ids: Sequence[str], state: str, words: str) -> bool:
    """Tell watchers of an ending, by the worker that this process is. Returns whether it is one."""
    event, told = event_of(state, words)
    for send in _send:
        for delivery_id in delivery_ids:
            send(event, uuid=delivery_id, name=DELIVER, **told)
    return bool(_send)


def _tell(delivery_ids: Sequence[str], state: str, words: str) -> None:
    if tell(delivery_ids, state, words):
        return
    for first in range(0, len(delivery_ids), TOGETHER):
        some = list(delivery_ids[first : first + TOGETHER])
        if _outage.may_try():
            _ask_to_tell({"delivery_ids": some, "ending": state, "words": words})


def _ask_to_tell(arguments: dict[str, Any]) -> None:
    try:
        broker.broadcast(app, COMMAND, arguments)
    except BrokerUnavailable:
        _outage.failed()
    else:
        _outage.worked()
