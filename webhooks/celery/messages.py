"""Messages on the broker: each names one delivery, and holds no body (I9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from webhooks.celery import broker
from webhooks.celery.app import DELIVER, DELIVERIES, SLOW, app
from webhooks.celery.envelopes import are_ours, envelope
from webhooks.celery.faults import told_apart
from webhooks.errors import InvalidEvent
from webhooks.model import Limits, Message

FIRST, LATER = 0, 3
"""The ranks within a queue, kombu's priorities: what may wait comes later."""


def publish(message: Message, wait: timedelta) -> None:
    """Put a message on the broker, to be looked at after `wait`; raises BrokerUnavailable."""
    publish_all([message], wait)


def publish_all(messages: Sequence[Message], wait: timedelta) -> None:
    """Put messages on the broker, to be looked at after `wait`; raises BrokerUnavailable.

    It takes one round trip where the broker is a Redis. Where it fails, some of them may be there all the same.
    """
    if are_ours(app):
        _push(messages, wait)
    else:
        _send_each(messages, wait)


def _push(messages: Sequence[Message], wait: timedelta) -> None:
    eta = (datetime.now(UTC) + wait).isoformat() if wait else None
    ways: dict[tuple[str, int], list[str]] = {}
    for message in messages:
        queue, rank = way = _way_of(message)
        text = envelope(app, DELIVER, _identity_of(message), _headers_of(message), eta, queue, rank, message.retries)
        ways.setdefault(way, []).append(text)
    broker.push(app, ways)


def _send_each(messages: Sequence[Message], wait: timedelta) -> None:
    """Send by Celery's ways, all by one connection."""
    with told_apart(app), app.producer_or_acquire() as producer:
        for message in messages:
            queue, rank = _way_of(message)
            options = {"headers": _headers_of(message), "queue": queue, "priority": rank, "retries": message.retries}
            send((_identity_of(message),), message.id, wait, producer=producer, **options)


def send(args: tuple[Any, ...], task_id: str, wait: timedelta, **options: Any) -> None:
    """Send a message of our task; its id is the delivery's, so that a delivery is one line in Flower."""
    countdown = wait.total_seconds() or None
    with told_apart(app):
        app.send_task(DELIVER, args, task_id=task_id, countdown=countdown, retry=False, ignore_result=True, **options)


def _way_of(message: Message) -> tuple[str, int]:
    return SLOW if message.slow else DELIVERIES, LATER if message.may_wait else FIRST


def _identity_of(message: Message) -> dict[str, str]:
    return {"id": message.id, "merchant_id": message.merchant_id, "type": message.type}


def _headers_of(message: Message) -> dict[str, Any]:
    headers: dict[str, Any] = {"turn": message.turn, "queued_at": message.queued_at.isoformat(), "slot": message.slot}
    if message.limits.lane is not None:
        headers["lane"] = message.limits.lane
    if message.limits.rate is not None:
        headers["rate"] = message.limits.rate
    if message.slow:
        headers["slow"] = True
    return headers


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
        retries=headers.get("retries", 0),
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
