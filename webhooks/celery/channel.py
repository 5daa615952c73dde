"""The worker's channel to its broker: a command that fails costs neither a place of the worker nor a message.

The broker keeps a book of the messages that a worker has taken, and a worker takes only as many as it has places for.
Kombu's own channel keeps a place for ever when the book can't be told that its message is done. It also asks for each
message by itself, books it in a second command, and acknowledges it in a third, each on a client made for it: here as
many as there are places are taken and booked in one, and what has ended meanwhile is told in one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Sequence
from importlib.resources import files
from queue import Empty
from typing import Any

from kombu.serialization import register
from kombu.transport import redis, virtual
from kombu.utils.json import dumps

from webhooks import parts
from webhooks.celery.app import SLOW
from webhooks.observing.surroundings import MessageDropped, MessageUnacknowledged, MessageUnbooked

_FAILED = (*redis.Transport.connection_errors, *redis.Transport.channel_errors)


_TAKE = files(__package__).joinpath("take.lua").read_text("utf-8")
_TAKE_SHA = hashlib.sha1(_TAKE.encode(), usedforsecurity=False).hexdigest()  # it only names the text
_AT_ONCE = 100  # messages at most in one taking
_UNTOLD = 50  # messages that have ended, and of which the broker is to hear at the latest


class Places(redis.QoS):
    """A worker's places, each with the message that it has taken.

    `kept_for_quick` of them are never taken by messages of slow endpoints.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.kept_for_quick = 0
        self.booked = False  # the message at hand, in the moment in which it was taken
        self._unbooked: set[str] = set()
        self._slow: set[str] = set()
        self._ended: list[str] = []

    @property
    def free(self) -> int:
        """How many more messages may be taken now."""
        free = self.can_consume_max_estimate()
        return _AT_ONCE if free is None else min(free, _AT_ONCE)

    @property
    def free_for_slow(self) -> int:
        """How many of these may be of slow endpoints."""
        return max(self.prefetch_count - self.kept_for_quick - len(self._slow), 0) if self.kept_for_quick else _AT_ONCE

    def append(self, message: Any, delivery_tag: str) -> None:
        """Book a message that has been taken; where that fails it is worked on all the same, for nobody else has it."""
        if message.delivery_info.get("routing_key") == SLOW:
            self._slow.add(delivery_tag)
        if self.booked:
            virtual.QoS.append(self, message, delivery_tag)
            return
        try:
            super().append(message, delivery_tag)
        except _FAILED as error:
            parts.observers().tell(MessageUnbooked(_in_short(error)))
            self._unbooked.add(delivery_tag)
            virtual.QoS.append(self, message, delivery_tag)

    def ack(self, delivery_tag: str) -> None:
        """Give the place back; the broker hears of it a moment later, together with others."""
        self._quick_ack(delivery_tag)
        self._slow.discard(delivery_tag)
        self._unbooked.discard(delivery_tag)
        self._ended.append(delivery_tag)
        if len(self._ended) >= _UNTOLD:
            self.tell_ended()

    def tell_ended(self) -> None:
        """Tell the broker what has ended; where it can't be told, a copy comes again, and is known by its turn."""
        ended, self._ended = self._ended, []
        if not ended:
            return
        try:
            with self.channel.conn_or_acquire() as broker:
                told = broker.pipeline(transaction=False)
                told.zrem(self.unacked_index_key, *ended).hdel(self.unacked_key, *ended).execute()
        except _FAILED as error:
            parts.observers().tell(MessageUnacknowledged(_in_short(error), lost_connection=False))

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Give the place back as `ack` does; one that can't be put back into its queue makes the worker connect anew.

        Losing a channel puts back whatever it has taken.
        """
        self._slow.discard(delivery_tag)
        if not requeue:
            self.ack(delivery_tag)
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


def _in_short(error: BaseException) -> str:
    """Say what was wrong without the command, which may hold a message's body (I9)."""
    return str(error).rpartition("caused error: ")[2]


class Channel(redis.Channel):
    """Kombu's channel with such places; an answer that is an error is treated as a lost connection is.

    While a queue has messages, as many are taken at once as there are places; when it has none, the channel waits for
    the next one. First tries and what may wait are taken in turn, and so are the queues.
    """

    QoS = Places

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Kombu would write a message into the log, and drop it, where the way to its queue is answered with an error.
        self.connection_errors = _FAILED
        self._commands: Any = None
        self._more = False  # messages may be waiting
        self._in_poll: Any = None
        self._taking: Sequence[str] | None = None  # the queues, by the lists of the taking that is under way
        self._script_is_known = True
        self._asked = 0
        timeout: Any = self.socket_timeout
        if timeout:  # Redis says in time that a queue is empty, so that silence means something
            self.brpop_timeout = min(self.brpop_timeout, timeout / 2)

    def close(self) -> None:
        """Close it, once the broker has heard what has ended."""
        if not self.closed and self._qos is not None:
            with contextlib.suppress(*_FAILED):
                self._qos.tell_ended()
        super().close()

    def _create_client(self, asynchronous: bool = False) -> Any:
        """Return the one client of this channel; making one costs as much as a command."""
        if asynchronous:
            return super()._create_client(asynchronous=True)
        if self._commands is None or self._commands.connection_pool is not self.pool:
            self._commands = super()._create_client()
        return self._commands

    def _brpop_start(self, timeout: float | None = None) -> None:
        """Take what waits, or wait for something to take."""
        lists = self._lists()
        if not lists:
            return
        connection = self._in_poll = self.client.connection
        self._brpop_sent_at: Any = time.monotonic()
        keys = [f"{self.global_keyprefix}{self._q_for_pri(queue, rank)}" for queue, rank in lists]
        if not self._more:
            connection.send_command("BRPOP", *keys, timeout or self.brpop_timeout or 0)
            return
        self._taking = [queue for queue, _ in lists]
        script = ("EVALSHA", _TAKE_SHA) if self._script_is_known else ("EVAL", _TAKE)
        book = [f"{self.global_keyprefix}{key}" for key in (self.unacked_index_key, self.unacked_key)]
        most = [self.qos.free_for_slow if queue == SLOW else _AT_ONCE for queue in self._taking]
        connection.send_command(*script, len(book) + len(keys), *book, *keys, self.qos.free, time.time(), *most)

    def _lists(self) -> list[tuple[str, int]]:
        """Return each queue's ranks, in the order in which they are asked now; none of one that has no place."""
        queues = self._queue_cycle.consume(len(self.active_queues))
        self._asked += 1
        ranks = self.priority_steps[:: -1 if self._asked % 2 else 1]
        open_queues = [queue for queue in queues if queue != SLOW or self.qos.free_for_slow]
        return [(queue, rank) for rank in ranks for queue in open_queues]

    def _brpop_read(self, **options: Any) -> Any:
        """Read what was taken from a queue; what isn't a message at all is dropped, and ends no worker."""
        taking, self._taking = self._taking, None
        if taking is not None:
            return self._read_taken(taking)
        self._more = False
        try:
            self._more = super()._brpop_read(**options)
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            self._drop(error)
            raise Empty from None
        return self._more

    def _read_taken(self, queues: Sequence[str]) -> bool:
        """Read what a taking came to, and hand each message to its consumer."""
        taken = self._answer()
        self._more = bool(taken)
        failed: list[BaseException] = []
        for number, booked, message in zip(taken[::3], taken[1::3], taken[2::3], strict=True):
            queue = queues[int(number) - 1]
            self._queue_cycle.rotate(queue)
            self.qos.booked = bool(booked)
            try:
                self.connection._deliver(json.loads(message), queue)  # noqa: SLF001
            except (ValueError, TypeError, AttributeError, RecursionError) as error:
                self._drop(error)
            except BaseException as error:  # the others are taken, too, and nobody else has them
                failed.append(error)
            finally:
                self.qos.booked = False
        if failed:
            raise failed[0]
        if not taken:
            raise Empty
        return True

    def _answer(self) -> Sequence[Any]:
        try:
            taken: Sequence[Any] = self.client.parse_response(self.client.connection, "EVALSHA")
        except self.ResponseError:
            if not self._script_is_known:
                self._more = False
                raise
            self._script_is_known = False  # most likely the server has forgotten it: it is told the text
            raise Empty from None
        except self.connection_errors:
            self.client.connection.disconnect()
            raise
        finally:
            self._in_poll = None
        self._script_is_known = True
        return taken

    def _drop(self, error: Exception) -> None:
        parts.observers().tell(MessageDropped(type(error).__name__))


def use() -> None:
    """Have this process's connections to the broker use such channels, and read JSON as it is.

    Kombu's own JSON changes, or chokes on, whatever in an event looks like its notation for dates and decimals.
    """
    redis.Transport.Channel = Channel
    register("json", dumps, _plain_json, content_type="application/json", content_encoding="utf-8")


def _plain_json(text: Any) -> Any:
    return json.loads(text if isinstance(text, str) else bytes(text).decode())
