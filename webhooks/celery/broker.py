"""What is known of the broker: how deep a queue is, since when its oldest message waits, and whether beat lives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from celery import Celery

from webhooks.celery.app import DELIVERIES, SWEEP
from webhooks.celery.faults import told_apart
from webhooks.sweep import Queue

_LOOKED_AT = 50  # of the oldest messages: among them there may be some that were sent by name, without a time
_SIGN_MS = 30_000  # how long a beat that falls silent is still believed; the broker's clock alone counts


def look_at_queue(app: Celery, name: str = DELIVERIES) -> Queue:
    """Return the state of a queue. Raises BrokerUnavailable."""
    depth, last = _depth_and_oldest(app, name)
    ours = filter(None, map(_queued_at, reversed(last)))
    return Queue(depth=depth, oldest=next(ours, None), next=hash(last[-1]) if last else None)


def is_waiting(app: Celery, name: str, task: str) -> bool:
    """Whether a message of a task waits in a queue, or so many of others that one more would be of no use.

    Raises BrokerUnavailable.
    """
    depth, oldest = _depth_and_oldest(app, name)
    return depth > _LOOKED_AT or task in map(_task_of, oldest)


def note_beat(app: Celery, host: str) -> None:
    """Leave a sign that beat lives on a host; it goes by itself. Raises BrokerUnavailable."""
    with _channel(app) as channel:
        key = _beat_of(host)
        channel.client.pipeline(transaction=False).hset(key, "lives", 1).pexpire(key, _SIGN_MS).execute()


def has_beat(app: Celery, host: str) -> bool:
    """Whether beat has lately sent its sweep from a host, or found one waiting. Raises BrokerUnavailable."""
    with _channel(app) as channel:
        return channel.client.hget(_beat_of(host), "lives") is not None


def _beat_of(host: str) -> str:
    return f"{SWEEP}.beat.{host}"


def _depth_and_oldest(app: Celery, name: str) -> tuple[int, list[bytes]]:
    with _channel(app) as channel:
        # Kombu's client puts its prefix before the keys of commands that kombu uses; LRANGE is none of them.
        queue = f"{channel.global_keyprefix}{name}"
        # Kombu pushes on the left and workers take from the right: the oldest message is the last.
        asked = channel.client.pipeline(transaction=False).llen(name).lrange(queue, -_LOOKED_AT, -1)
        depth, last = asked.execute()
        return int(depth), last


@contextmanager
def _channel(app: Celery) -> Iterator[Any]:
    with told_apart(app), app.pool.acquire(block=True, timeout=5) as connection:
        yield connection.default_channel


def _queued_at(message: bytes) -> datetime | None:
    """Read when our message was published, by the ledger's clock; None for somebody else's."""
    try:
        return datetime.fromisoformat(_headers(message)["queued_at"])
    except (ValueError, KeyError, TypeError):
        return None


def _task_of(message: bytes) -> str | None:
    try:
        return str(_headers(message)["task"])
    except (ValueError, KeyError, TypeError):
        return None


def _headers(message: bytes) -> dict[str, Any]:
    headers: dict[str, Any] = json.loads(message)["headers"]
    return headers
