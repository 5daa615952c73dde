"""An event that came complete, by task name: recorded first. Until that is done its message is the only copy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from typing import Any, NoReturn, Protocol

from celery.exceptions import Ignore, Reject

from webhooks import parts
from webhooks.accepting import reading
from webhooks.celery import messages
from webhooks.celery.endings import waiting
from webhooks.errors import BrokerUnavailable, InvalidEvent, LedgerFault, LedgerUnavailable, Refused
from webhooks.observing.surroundings import EventRefused, EventWaits
from webhooks.policy.decisions import AFTER_OUR_FAULT

_NOTATION = frozenset({"date", "datetime", "decimal", "time", "uuid"})  # what kombu's own JSON writes in an object
_LONGEST_WHERE = 200


class ByName(Protocol):
    """What is needed of the task at hand."""

    @property
    def request(self) -> Any:
        """Its message, as Celery knows it."""

    def put_back(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], wait: timedelta) -> None:
        """Send the message at hand once more, as it came; raises BrokerUnavailable."""


def accept(task: ByName, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NoReturn:
    """Record a complete event that came without this package; until that is done the message is its only copy."""
    try:
        _record(task, args, kwargs)
    except (LedgerUnavailable, LedgerFault) as error:
        parts.observers().tell(
            EventWaits(str(error), of_outage=isinstance(error, LedgerUnavailable) and error.told_once)
        )
        _keep(task, args, kwargs)
        raise waiting(str(error)) from None
    raise Ignore


def _record(task: ByName, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Record an event by name, or note why not: its producer hears nothing."""
    event: object = None
    task_id = str(task.request.id)  # whoever sent it may have counted
    try:
        event = messages.the_event(args, kwargs)
        _refuse_notation(event, "event")
        parts.accepting().accept_by_name(event, task_id)
    except Refused as refusal:
        refused = reading.RefusedEvent.of(event, task_id, str(refusal))
        parts.refusals().note(refused)
        parts.observers().tell(EventRefused(**asdict(refused)))
        raise


def _refuse_notation(value: object, where: str, depth: int = 0) -> None:
    """Refuse what Celery at the sender made of a date or an amount: nobody can tell it from data that looks like it."""
    if depth > reading.MAX_DEPTH:
        return  # refused where it is read
    match value:
        case {"__type__": str(kind), "__value__": _, **rest} if kind in _NOTATION and not rest:
            raise InvalidEvent(f"{where}: Celery's notation for a {kind}; write it as text before sending")
        case dict():
            for key, item in value.items():
                _refuse_notation(item, f"{where}.{key}"[:_LONGEST_WHERE], depth + 1)
        case list():
            for index, item in enumerate(value):
                _refuse_notation(item, f"{where}[{index}]"[:_LONGEST_WHERE], depth + 1)
        case _:
            pass


def _keep(task: ByName, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    try:
        task.put_back(args, kwargs, AFTER_OUR_FAULT)
    except BrokerUnavailable as error:
        raise Reject(str(error), requeue=True) from None
