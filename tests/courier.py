"""Attempts made in the test's own process, through the real ledger and gate: quicker than a worker for each example."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import func, update

from webhooks import parts
from webhooks.accepting import reading
from webhooks.celery import messages
from webhooks.celery.app import DELIVERIES
from webhooks.delivery import Moved, SetAside
from webhooks.ledger.tables import deliveries
from webhooks.model import Message
from webhooks.parts import courier
from webhooks.policy.decisions import Decision
from webhooks.settings import get_settings


def accept(event: object) -> Message:
    """Accept an event that one endpoint wants, and return the message of its first attempt; nothing is published."""
    (message,) = accept_all(event).values()
    return message


def accept_all(event: object) -> dict[str, Message]:
    """Accept an event, and return the message of each first attempt, by endpoint; nothing is published."""
    messages = parts.ledger().record(reading.read(event, get_settings().keys), queued=False)
    return {message.endpoint_id: message for message in messages}


def attempt(message: Message) -> Decision | SetAside | Moved:
    """Make the attempt that a message asks for."""
    return courier().attempt(message)


def attempt_again(message: Message) -> Decision | SetAside | Moved:
    """Make the next attempt of a pending delivery, which becomes due now."""
    due_now = update(deliveries).where(deliveries.c.id == message.id).values(due_at=func.now())
    (row,) = parts.database().rows(due_now.returning(deliveries.c.turn))
    return attempt(Message(message.id, message.merchant_id, message.type, row.turn, datetime.now(UTC)))


LISTS = (DELIVERIES, f"{DELIVERIES}\x06\x163")  # a queue's, by what goes first; the second is of what may wait


def waiting(redis: Any) -> list[bytes]:
    """Return the messages that wait on the broker, the latest first."""
    return [message for name in LISTS for message in redis.lrange(name, 0, -1)]


def forget(redis: Any) -> None:
    """Lose the messages that wait on the broker."""
    redis.delete(*LISTS)


def take(redis: Any) -> Message | None:
    """Take the message that has waited longest on the broker, as a worker does; None where there is none."""
    raw = next(filter(None, (redis.rpop(name) for name in LISTS)), None)
    if raw is None:
        return None
    envelope = json.loads(raw)
    (identity,), *_ = json.loads(base64.b64decode(envelope["body"]))
    return messages.read(identity, envelope["headers"])


def send(event: object) -> Decision | SetAside | Moved:
    """Accept an event and make its first attempt."""
    return attempt(accept(event))
