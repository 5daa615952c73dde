"""What a worker does with a message of `webhooks.deliver`: an attempt, told to Celery as Flower is to show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery.states import RETRY

from webhooks import parts
from webhooks.celery import by_name, messages
from webhooks.celery.endings import Ending, ending_of
from webhooks.errors import LedgerFault, Unavailable
from webhooks.model import Message
from webhooks.observing import facts


def work(task: by_name.ByName, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Ending:
    """Work on a message: one that this package published names a delivery, any other brings an event by name."""
    headers = task.request.headers or {}
    if "turn" not in headers:
        by_name.accept(task, args, kwargs)
    (event,) = args
    return attempt(messages.read(event, {**headers, "retries": task.request.retries}))


def attempt(message: Message) -> Ending:
    """Make one attempt; a fault of ours ends it, and the sweep sees to the row, which is still due."""
    try:
        return ending_of(parts.courier().attempt(message))
    except Unavailable as error:
        parts.observers().tell(facts.Interrupted(message.id, str(error), of_outage=error.told_once))
        return Ending(RETRY, str(error))
    except LedgerFault as error:
        parts.observers().tell(facts.Interrupted(message.id, str(error), for_good=True))
        return Ending(RETRY, str(error))
