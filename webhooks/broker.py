"""Looking into the broker's queue: how deep it is, and since when its oldest message waits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from celery import Celery
from kombu.exceptions import KombuError

from webhooks.app import DELIVERIES
from webhooks.errors import BrokerUnavailable
from webhooks.sweep import Queue

_LOOKED_AT = 50  # of the oldest messages: among them there may be some that were sent by name, without a time


def look_at_queue(app: Celery) -> Queue:
    """Return the state of the deliveries' queue. Raises BrokerUnavailable."""
    with told_apart(app), app.pool.acquire(block=True, timeout=5) as connection:
        channel = connection.default_channel
        # Kombu's client puts its prefix before the keys of commands that kombu uses; LRANGE is none of them.
        queue = f"{channel.global_keyprefix}{DELIVERIES}"
        # Kombu pushes on the left and workers take from the right: the oldest message is the last.
        asked = channel.client.pipeline(transaction=False).llen(DELIVERIES).lrange(queue, -_LOOKED_AT, -1)
        depth, last = asked.execute()
        ours = filter(None, map(_queued_at, reversed(last)))
        return Queue(depth=int(depth), oldest=next(ours, None))


@contextmanager
def told_apart(app: Celery) -> Iterator[None]:
    """Name every fault of the way to the broker BrokerUnavailable."""
    connection = app.connection_for_write()
    try:
        yield
    except (KombuError, OSError, *connection.connection_errors, *connection.channel_errors) as error:
        first_line = str(error).strip().partition("\n")[0]  # such as: certificate verify failed
        raise BrokerUnavailable(f"the broker cannot be reached: {first_line or type(error).__name__}") from error


def _queued_at(message: bytes) -> datetime | None:
    """Read when our message was published, by the ledger's clock; None for somebody else's."""
    try:
        headers: dict[str, Any] = json.loads(message).get("headers", {})
        return datetime.fromisoformat(headers["queued_at"])
    except (ValueError, KeyError, TypeError):
        return None
