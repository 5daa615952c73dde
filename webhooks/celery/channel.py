"""The worker's channel to its broker: a command that fails costs neither a place of the worker nor a message.

The broker keeps a book of the messages that a worker has taken, and a worker takes only as many as it has places for.
Kombu's own channel keeps a place for ever when the book can't be told that its message is done.
"""

from __future__ import annotations

import json
from queue import Empty
from typing import Any

from kombu.serialization import register
from kombu.transport import redis, virtual
from kombu.utils.json import dumps

from webhooks import parts
from webhooks.observing.surroundings import MessageDropped, MessageUnacknowledged, MessageUnbooked

_FAILED = (*redis.Transport.connection_errors, *redis.Transport.channel_errors)


class Places(redis.QoS):
    """A worker's places, each with the message that it has taken."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._unbooked: set[str] = set()

    def append(self, message: Any, delivery_tag: str) -> None:
        """Book a message that has been taken; where that fails it is worked on all the same, for nobody else has it."""
        try:
            super().append(message, delivery_tag)
        except _FAILED as error:
            parts.observers().tell(MessageUnbooked(_in_short(error)))
            self._unbooked.add(delivery_tag)
            virtual.QoS.append(self, message, delivery_tag)

    def ack(self, delivery_tag: str) -> None:
        """Give the place back, also where the broker can't be told: its copy comes again, and is known by its turn."""
        self._done(delivery_tag, super().ack)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Give the place back as `ack` does; one that can't be put back into its queue makes the worker connect anew.

        Losing a channel puts back whatever it has taken.
        """
        if not requeue:
            self._done(delivery_tag, super().reject)
            return
        try:
            super().reject(delivery_tag, requeue=True)
        except _FAILED as error:  # this kind of error is the one that Celery's own handler does not keep to itself
            raise self.channel.ResponseError(f"a message could not be put back: {_in_short(error)}") from error

    def restore_by_tag(self, tag: str, client: Any = None, leftmost: bool = False) -> None:
        """Put a message back into its queue, also one that the broker has no copy of."""
        super().restore_by_tag(tag, client, leftmost)
        if tag in self._unbooked:
            message = self._delivered[tag]
            way = message.delivery_info["exchange"], message.delivery_info["routing_key"]
            with self.channel.conn_or_acquire(client) as broker:
                self.channel._do_restore_message(message._raw, *way, broker, leftmost)  # noqa: SLF001
            self._unbooked.discard(tag)

    def _done(self, delivery_tag: str, tell: Any) -> None:
        try:
            tell(delivery_tag)
        except _FAILED as error:
            parts.observers().tell(MessageUnacknowledged(_in_short(error), lost_connection=False))
            self._quick_ack(delivery_tag)
        self._unbooked.discard(delivery_tag)


def _in_short(error: BaseException) -> str:
    """Say what was wrong without the command, which may hold a message's body (I9)."""
    return str(error).rpartition("caused error: ")[2]


class Channel(redis.Channel):
    """Kombu's channel with such places; an answer that is an error is treated as a lost connection is."""

    QoS = Places

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Kombu would write a message into the log, and drop it, where the way to its queue is answered with an error.
        self.connection_errors = _FAILED
        timeout: Any = self.socket_timeout
        if timeout:  # Redis says in time that a queue is empty, so that silence means something
            self.brpop_timeout = min(self.brpop_timeout, timeout / 2)

    def _brpop_read(self, **options: Any) -> Any:
        """Read what was taken from a queue; what isn't a message at all is dropped, and ends no worker."""
        try:
            return super()._brpop_read(**options)
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            parts.observers().tell(MessageDropped(type(error).__name__))
            raise Empty from None


def use() -> None:
    """Have this process's connections to the broker use such channels, and read JSON as it is.

    Kombu's own JSON changes, or chokes on, whatever in an event looks like its notation for dates and decimals.
    """
    redis.Transport.Channel = Channel
    register("json", dumps, _plain_json, content_type="application/json", content_encoding="utf-8")


def _plain_json(text: Any) -> Any:
    return json.loads(text if isinstance(text, str) else bytes(text).decode())
