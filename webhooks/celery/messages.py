"""Messages on the broker: each names one delivery, and holds no body (I9)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from webhooks.celery.app import DELIVER, DELIVERIES, SLOW, app
from webhooks.celery.faults import told_apart
from webhooks.errors import InvalidEvent
from webhooks.model import Limits, Message

FIRST, LATER = 0, 3
"""The ranks within a queue, kombu's priorities: what may wait comes later."""


@contextmanager
def connected() -> Iterator[Callable[[Message, timedelta], None]]:
    """Give what puts several messages on the broker by one connection; raises BrokerUnavailable."""
    with told_apart(app), app.producer_or_acquire() as producer:
        yield partial(publish, producer=producer)


def publish(message: Message, wait: timedelta, **options: Any) -> None:
    """Put a message on the broker, to be looked at after `wait`; raises BrokerUnavailable."""
    identity = {"id": message.id, "merchant_id": message.merchant_id, "type": message.type}
    headers: dict[str, Any] = {"turn": message.turn, "queued_at": message.queued_at.isoformat(), "slot": message.slot}
    if message.slow:
        headers["slow"] = True
    way = {"queue": SLOW if message.slow else DELIVERIES, "priority": LATER if message.may_wait else FIRST}
    headers |= {name: value for name, value in asdict(message.limits).items() if value is not None}
    send((identity,), message.id, wait, headers=headers, **way, **options)


def send(args: tuple[Any, ...], task_id: str, wait: timedelta, **options: Any) -> None:
    """Send a message of our task; its id is the delivery's, so that a delivery is one line in Flower."""
    countdown = wait.total_seconds() or None
    with told_apart(app):
        app.send_task(DELIVER, args, task_id=task_id, countdown=countdown, retry=False, ignore_result=True, **options)


def read(identity: Mapping[str, str], headers: Mapping[str, Any]) -> Message:
    """Return what a message of `publish` says."""
    return Message(
        id=identity["id"],
        merchant_id=identity["merchant_id"],
        type=identity["type"],
        turn=headers["turn"],
        queued_at=datetime.fromisoformat(headers["queued_at"]),
        slot=headers.get("slot"),
        limits=Limits(headers.get("lane"), headers.get("rate")),
        slow=headers.get("slow", False),
    )


def queued_at(headers: Mapping[str, Any]) -> datetime | None:
    """Return when our message was published, by the ledger's clock; None for somebody else's."""
    try:
        return datetime.fromisoformat(headers["queued_at"])
    except (ValueError, KeyError, TypeError):
        return None


def the_event(args: tuple[Any, ...] | list[Any], kwargs: Mapping[str, Any]) -> object:
    """Return a task's one argument. Raises InvalidEvent where there is none, or another."""
    values = [*args, *kwargs.values()]
    if len(values) != 1 or (kwargs and "event" not in kwargs):
        raise InvalidEvent("deliver takes one argument, the event")
    return values[0]
