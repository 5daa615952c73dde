"""The worker's channel to its broker: a command that fails costs neither a place of the worker nor a message.

It takes in turn from all lists of messages: those of its queues, and of each the two ranks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from importlib.resources import files
from queue import Empty
from time import monotonic
from typing import Any

from kombu.serialization import register
from kombu.transport import redis
from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import dumps, loads

from webhooks import parts
from webhooks.celery.app import DELIVERIES, SLOW
from webhooks.celery.places import FAILED, Places
from webhooks.celery.turns import Turns
from webhooks.observing.surroundings import MessageDropped

_TAKE = (files("webhooks.celery") / "take.lua").read_text()
_SOON_S = 0.01  # until what may wait may be taken again
_NO_MESSAGE = (ValueError, TypeError, AttributeError, RecursionError)


class Channel(redis.Channel):
    """Kombu's channel with such places; an answer that is an error is treated as a lost connection is."""

    QoS = Places
    _in_poll: Any
    _brpop_sent_at: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.at_hand: bytes | None = None
        """The message that was just taken, as it was in its list."""
        self._turns = Turns()
        self._asking: Any = None
        self._taking: Any = None
        self._shares_with_slow = False
        self._what_may_wait = ""  # the list of deliveries that first tries go before
        super().__init__(*args, **kwargs)
        # Kombu would write a message into the log, and drop it, where the way to its queue is answered with an error.
        self.connection_errors = FAILED
        timeout: Any = self.socket_timeout
        if timeout:  # Redis says in time that a queue is empty, so that silence means something
            self.brpop_timeout = min(self.brpop_timeout, timeout / 2)

    def conn_or_acquire(self, client: Any = None) -> Any:
        """Lend a client; where kombu makes one for each command, this is always the same, while its connections are."""
        if client is None:
            pool = self.pool  # a new one after a fork, and when the channel was closed
            if self._asking is None or self._asking.connection_pool is not pool:
                self._asking = self._create_client()
            client = self._asking
        return nullcontext(client)

    def take(self, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Book the message at hand, and take several; see `take.lua`."""
        with self.conn_or_acquire() as client:
            if self._taking is None:
                self._taking = client.register_script(_TAKE)
            return self._taking(keys=keys, args=args, client=client)

    def drop_connections(self) -> None:
        """Connect anew for the next command: where one has failed, nobody knows what its connection would answer."""
        self.pool.disconnect(inuse_connections=False)

    def close(self) -> None:
        """Close the channel, once the broker knows what is done."""
        if self._qos is not None and not self.closed:
            self._qos.tell_what_is_done()
        super().close()

    def lists_to_take_several_from(self) -> Sequence[str]:
        """Return the lists from which several messages may be taken at once, the next first."""
        may_wait = not self.qos.first_tries_come
        return self._turns.order(
            lambda name: (
                (may_wait or name != self._what_may_wait)
                and (not self._shares_with_slow or self._queue_of(name) != SLOW)
            )
        )

    def _update_queue_cycle(self) -> None:
        super()._update_queue_cycle()
        queues = self.active_queues
        self._shares_with_slow = SLOW in queues and len(queues) > 1
        self._what_may_wait = self._q_for_pri(DELIVERIES, self.priority_steps[-1])
        self._turns.among([self._q_for_pri(queue, rank) for rank in self.priority_steps for queue in queues])

    def _queue_of(self, name: str) -> str:
        return name.rsplit(self.sep, 1)[0]

    def _brpop_start(self, timeout: float | None = None) -> None:
        """Ask for a message from the lists in their turns, without those that have enough."""
        full = self._shares_with_slow and not self.qos.has_room_for_slow()
        busy = not self.qos.has_room_for_what_may_wait()
        lists = self._turns.order(
            lambda name: not (full and self._queue_of(name) == SLOW) and not (busy and name == self._what_may_wait)
        )
        if not lists:
            return
        if busy:
            timeout = _SOON_S
        self._in_poll = self.client.connection
        self._brpop_sent_at = monotonic()
        keys = [self.global_keyprefix + name for name in lists]
        self.client.connection.send_command("BRPOP", *keys, timeout or self.brpop_timeout or 0)

    def _brpop_read(self, **options: Any) -> bool:
        """Read what was taken from a list, and take more if several may be."""
        try:
            try:
                taken = self.client.parse_response(self.client.connection, "BRPOP", **options)
            except self.connection_errors:
                self.client.connection.disconnect()  # the next turn of the loop connects anew
                raise
        finally:
            self._in_poll = None
            self._flush_brpop_reauth()
        if not taken:
            raise Empty
        name, item = taken
        self.at_hand = None if self._closing else item
        try:
            self._pass_on(bytes_to_str(name), item)
        finally:
            self.at_hand = None
            while self.qos.taken:
                self._pass_on(*self.qos.taken.popleft())
        return True

    def _pass_on(self, name: str, item: bytes, tag: str = "") -> None:
        """Hand a message to who consumes it; what isn't a message at all is dropped, and ends no worker."""
        self._turns.took(name)
        try:
            self.connection._deliver(_envelope(item), self._queue_of(name))  # noqa: SLF001
        except _NO_MESSAGE as error:
            parts.observers().tell(MessageDropped(type(error).__name__))
            if tag:
                self.qos.ack(tag)


def _envelope(item: bytes) -> Any:
    """Read a message with what kombu takes for granted. Raises ValueError where that is missing."""
    message = loads(bytes_to_str(item))
    try:
        told = message["properties"]
        _ = told["delivery_tag"], told["delivery_info"]["exchange"], told["delivery_info"]["routing_key"]
    except KeyError as missing:
        raise ValueError(f"an envelope without {missing}") from None
    return message


def use() -> None:
    """Have this process's connections to the broker use such channels, and read JSON as it is.

    Kombu's own JSON changes, or chokes on, whatever in an event looks like its notation for dates and decimals.
    """
    redis.Transport.Channel = Channel
    register("json", dumps, _plain_json, content_type="application/json", content_encoding="utf-8")


def _plain_json(text: Any) -> Any:
    return json.loads(text if isinstance(text, str) else bytes(text).decode())
