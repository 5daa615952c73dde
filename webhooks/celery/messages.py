"""Messages on the broker: each names one delivery, and holds no body (I9)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from celery.worker import state as worker_state

from webhooks.celery import broker
from webhooks.celery.app import DELIVER, app
from webhooks.model import Message

_COUNTDOWNS = 2000  # waiting messages in one worker's memory (I7); what is more waits in the ledger


def publish(message: Message, wait: timedelta) -> None:
    """Put a message on the broker, to be looked at after `wait`; raises BrokerUnavailable."""
    identity = {"id": message.id, "merchant_id": message.merchant_id, "type": message.type}
    headers: dict[str, Any] = {"turn": message.turn, "queued_at": message.queued_at.isoformat(), "slot": message.slot}
    if message.lane is not None:
        headers["lane"] = message.lane
    send((identity,), message.id, wait, headers=headers)


def send(args: tuple[Any, ...], task_id: str, wait: timedelta, **options: Any) -> None:
    """Send a message of our task; its id is the delivery's, so that a delivery is one line in Flower."""
    countdown = wait.total_seconds() or None
    with broker.told_apart(app):
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
        lane=headers.get("lane"),
    )


def queued_at(headers: Mapping[str, Any]) -> datetime | None:
    """Return when our message was published, by the ledger's clock; None for somebody else's."""
    try:
        return datetime.fromisoformat(headers["queued_at"])
    except (ValueError, KeyError, TypeError):
        return None


def may_count_down() -> bool:
    """Whether this process has room in its memory for one more message that waits."""
    return len(worker_state.scheduled_requests) < _COUNTDOWNS
