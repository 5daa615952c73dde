"""What a worker does with a message of `webhooks.deliver`: an attempt, told to Celery as Flower is to show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

from celery.exceptions import Ignore

from webhooks import parts
from webhooks.celery import by_name, messages
from webhooks.celery.endings import DeliveryFailed, waiting
from webhooks.delivery import Moved, SetAside
from webhooks.errors import LedgerFault, Unavailable
from webhooks.model import Message
from webhooks.observing import facts
from webhooks.policy.decisions import Decision, Delivered, Failed, RetryAt


def work(task: by_name.ByName, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Work on a message: one that this package published names a delivery, any other brings an event by name."""
    headers = task.request.headers or {}
    if "turn" not in headers:
        by_name.accept(task, args, kwargs)
    (event,) = args
    match attempt(messages.read(event, headers)):
        case Delivered():
            return
        case RetryAt(due_at=due_at, ladder=ladder):
            on = f"on the {ladder} ladder" if ladder else "after a fault of ours"
            raise waiting(f"{on} until {due_at:%Y-%m-%d %H:%M:%S} UTC")
        case Failed(reason=reason):
            raise DeliveryFailed(reason.value)
        case Moved():
            raise waiting("in the queue of the slow endpoints")
        case SetAside(held_for=None):
            raise Ignore
        case SetAside(held_for=held_for):
            raise waiting(f"held for {held_for}")
        case never:
            assert_never(never)


def attempt(message: Message) -> Decision | SetAside | Moved:
    """Make one attempt; a fault of ours ends it, and the sweep sees to the row, which is still due."""
    try:
        return parts.courier().attempt(message)
    except Unavailable as error:
        parts.observers().tell(facts.Interrupted(message.id, str(error), of_outage=error.told_once))
        raise waiting(str(error)) from None
    except LedgerFault as error:
        parts.observers().tell(facts.Interrupted(message.id, str(error), for_good=True))
        raise waiting(str(error)) from None
