"""A worker's places, each with the message that it has taken, and what the broker's book says of them.

The broker keeps a book of the messages that a worker has taken, and a worker takes only as many as it has places for.
Kombu's own channel keeps a place for ever when the book can't be told that its message is done.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from kombu.transport import redis, virtual

from webhooks import parts
from webhooks.celery.app import DELIVERIES, SLOW
from webhooks.observing.surroundings import MessageUnacknowledged, MessageUnbooked

FAILED = (*redis.Transport.connection_errors, *redis.Transport.channel_errors)
"""What a command to the broker may raise."""

_TOLD_WITHIN_S = 0.01  # that a message is done: late costs a stale copy where the worker dies meanwhile, and no more
_MOST_UNTOLD = 100
_NO_LIMIT = 2**31
_LATELY_S = 1.0  # that a first try has come: then there may be another one at any moment
_BESIDE_FIRST_TRIES = 2  # messages that may wait, and that one process works on at once; more would take its time
_AT_ONCE = 10  # messages that one process takes: what it has taken cannot be taken by one that is idle


class Places(redis.QoS):
    """The places of one channel."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.taken: deque[tuple[str, bytes, str]] = deque()
        """Messages that were taken and booked beside another one, each with its list and its tag, or none."""
        self.kept = 0
        """So many places are kept for each of the two, quick work and slow."""
        self._call_later: Callable[[float, Callable[[], None]], object] | None = None
        self._booked: set[str] = set()  # before kombu sees them
        self._unbooked: set[str] = set()
        self._slow: set[str] = set()
        self._later: set[str] = set()  # what may wait
        self._first_try_s = float("-inf")  # when the last one came
        self._untold: list[str] = []  # done, and the book doesn't know it yet

    def serve(self, later: Callable[[float, Callable[[], None]], object]) -> None:
        """Work for a loop, which calls later: from now on messages are taken, and ended, several at a time."""
        self._call_later = later

    def free(self) -> int:
        """Return how many messages may be taken; a large number where there is no limit."""
        if not self.prefetch_count:
            return _NO_LIMIT
        return max(0, self.prefetch_count - len(self._delivered) + len(self._dirty))

    def has_room_for_slow(self) -> bool:
        """Whether a message of a slow endpoint may be taken, where quick ones are taken as well.

        Slow ones may have half of the places, and of the other half what is free beyond as many as are kept for quick
        ones: so neither ever waits for the other. Places that were given for silent merchants count as free.
        """
        return len(self._slow) < self.kept or self.free() > self.kept

    @property
    def first_tries_come(self) -> bool:
        """Whether there may be another first try at any moment."""
        return time.monotonic() - self._first_try_s < _LATELY_S

    def has_room_for_what_may_wait(self) -> bool:
        """Whether a delivery that may wait may be taken.

        As long as first tries come, such deliveries get a small part of the process's time: there are few that it
        works on, those apart whose merchants it waits for. When none come, they may have all of it.
        """
        return not self.first_tries_come or len(self._later) - parts.waits().longer_than(0) < _BESIDE_FIRST_TRIES

    def begins(self, delivery_tag: str, message: Any) -> None:
        """Hear that a message has waited for its time, and needs a place from now on."""
        if delivery_tag in self._delivered:
            self._count(delivery_tag, message)

    def append(self, message: Any, delivery_tag: str) -> None:
        """Book a message that has been taken; where that fails it is worked on all the same, for nobody else has it."""
        if not (message.headers or {}).get("eta"):
            self._count(delivery_tag, message)
        if delivery_tag in self._booked:
            self._booked.discard(delivery_tag)
            virtual.QoS.append(self, message, delivery_tag)
            return
        try:
            self._book(message, delivery_tag)
        except FAILED as error:
            self.channel.drop_connections()
            parts.observers().tell(MessageUnbooked(_in_short(error)))
            self._unbooked.add(delivery_tag)
            virtual.QoS.append(self, message, delivery_tag)

    def _book(self, message: Any, delivery_tag: str) -> None:
        most = min(self.free() - 1, _AT_ONCE - 1) if self._call_later and self.channel.at_hand else 0
        lists = self.channel.lists_to_take_several_from() if most > 0 else []
        if not lists:
            super().append(message, delivery_tag)
            return
        prefix = self.channel.global_keyprefix
        # The prefixed client prefixes only the first key of an EVALSHA.
        keys = [self.unacked_key, prefix + self.unacked_index_key, *(prefix + name for name in lists)]
        booked, *more = self.channel.take(keys, [time.time(), most, self.channel.at_hand])
        virtual.QoS.append(self, message, delivery_tag)
        if not booked:
            self._unbooked.add(delivery_tag)
        for number, item, tag in zip(*[iter(more)] * 3, strict=True):
            self.taken.append((lists[number], item, tag.decode()))
            if tag:
                self._booked.add(tag.decode())

    def ack(self, delivery_tag: str) -> None:
        """Give the place back, also where the broker can't be told: its copy comes again, and is known by its turn.

        The book hears of several at once, a moment later: late, and never early.
        """
        if self._call_later is None or self.channel.closed:
            self._end(delivery_tag, super().ack)
            return
        self._quick_ack(delivery_tag)
        self._forget(delivery_tag)
        self._untold.append(delivery_tag)
        if len(self._untold) == 1:
            self._call_later(_TOLD_WITHIN_S, self.tell_what_is_done)
        elif len(self._untold) >= _MOST_UNTOLD:
            self.tell_what_is_done()

    def tell_what_is_done(self) -> None:
        """Have the book know of all that is done."""
        done, self._untold = self._untold, []
        if not done:
            return
        try:
            with self.pipe_or_acquire() as pipe:
                pipe.zrem(self.unacked_index_key, *done).hdel(self.unacked_key, *done).execute()
        except FAILED as error:
            self.channel.drop_connections()
            parts.observers().tell(MessageUnacknowledged(_in_short(error), lost_connection=False))

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Give the place back as `ack` does; one that can't be put back into its queue makes the worker connect anew.

        Losing a channel puts back whatever it has taken.
        """
        if not requeue:
            self.ack(delivery_tag)
            return
        try:
            super().reject(delivery_tag, requeue=True)
        except FAILED as error:  # this kind of error is the one that Celery's own handler does not keep to itself
            raise self.channel.ResponseError(f"a message could not be put back: {_in_short(error)}") from error
        self._forget(delivery_tag)

    def restore_by_tag(self, tag: str, client: Any = None, leftmost: bool = False) -> None:
        """Put a message back into its queue, also one that the broker has no copy of."""
        super().restore_by_tag(tag, client, leftmost)
        if tag in self._unbooked:
            message = self._delivered[tag]
            way = message.delivery_info["exchange"], message.delivery_info["routing_key"]
            with self.channel.conn_or_acquire(client) as broker:
                self.channel._do_restore_message(message._raw, *way, broker, leftmost)  # noqa: SLF001
            self._unbooked.discard(tag)

    def _end(self, delivery_tag: str, tell: Any) -> None:
        try:
            tell(delivery_tag)
        except FAILED as error:
            parts.observers().tell(MessageUnacknowledged(_in_short(error), lost_connection=False))
            self._quick_ack(delivery_tag)
        self._forget(delivery_tag)

    def _count(self, delivery_tag: str, message: Any) -> None:
        queue = message.delivery_info.get("routing_key")
        if queue == SLOW:
            self._slow.add(delivery_tag)
        elif message.properties.get("priority"):
            self._later.add(delivery_tag)
        elif queue == DELIVERIES:
            self._first_try_s = time.monotonic()

    def _forget(self, delivery_tag: str) -> None:
        self._unbooked.discard(delivery_tag)
        self._slow.discard(delivery_tag)
        self._later.discard(delivery_tag)


def _in_short(error: BaseException) -> str:
    """Say what was wrong without the command, which may hold a message's body (I9)."""
    return str(error).rpartition("caused error: ")[2]
