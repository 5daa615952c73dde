"""The way to the broker: what is pushed by it, and the sign in it that beat lives."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Any

from celery import Celery
from celery.app.control import Control
from kombu.messaging import Producer
from kombu.utils.json import dumps

from webhooks.celery.app import SWEEP
from webhooks.celery.faults import told_apart
from webhooks.settings import get_settings

BELIEVED = timedelta(seconds=30)
"""How long a beat that falls silent still counts as there; by the broker's clock alone."""


_LINE = "webhooks_line"
"""Where a channel has the connection by which messages are pushed: each knows the other, and they go together."""


def note_beat(app: Celery, host: str) -> None:
    """Leave a sign that beat lives on a host; it goes by itself. Raises BrokerUnavailable."""
    with channel_to(app) as channel:
        key = _beat_of(host)
        _commands(channel).hset(key, "lives", 1).pexpire(key, BELIEVED).execute()


def has_beat(app: Celery, host: str) -> bool:
    """Whether beat has lately sent its sweep from a host, or found one waiting. Raises BrokerUnavailable."""
    with channel_to(app) as channel:
        (sign,) = _commands(channel).hget(_beat_of(host), "lives").execute()
        return sign is not None


def broadcast(app: Celery, command: str, arguments: dict[str, Any]) -> None:
    """Send a remote command to all workers. Raises BrokerUnavailable."""
    with channel_to(app) as channel:
        _mailbox(app, channel)._broadcast(command, arguments, channel=channel)  # noqa: SLF001 - as Celery does


def ask(app: Celery, command: str, names: Sequence[str], *, patience_s: float) -> Sequence[Mapping[str, Any]]:
    """Send a remote command to some workers, or all; return what they answer. Raises BrokerUnavailable.

    It ends with the last answer, or once `patience_s` seconds have passed since the one before.
    """
    with channel_to(app, fresh=True) as channel:
        limit = None if names else _Listeners(channel)
        options = {"reply": True, "timeout": patience_s, "limit": limit, "channel": channel}
        say = _mailbox(app, channel)._broadcast  # noqa: SLF001 - as Celery does
        answers: Sequence[Mapping[str, Any]] = say(command, destination=list(names) or None, **options)
        return answers


def _mailbox(app: Celery, channel: Any) -> Any:
    """Return the way to the workers by a channel: of Celery's own control, as the application's loads what they need.

    It tells them or fails; by itself it would try without end where a broker takes connections and answers nothing.
    """
    producer: Any = Producer(channel, auto_declare=False)  # type: ignore[no-untyped-call]
    publish = producer.publish
    producer.publish = lambda body, **options: publish(body, **{**options, "retry": False})
    mailbox = Control(app).mailbox(channel.connection.client)
    mailbox.producer_or_acquire = lambda *_: nullcontext(producer)
    return mailbox


class _Listeners:
    """How many have heard what a channel told all: Redis says so, and kombu, which would wait for more, does not ask.

    Kombu looks at the limit of answers once its question is out.
    """

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._number = 0
        channel._put_fanout = self._tell  # noqa: SLF001 - by which it tells all

    def _tell(self, exchange: str, message: Mapping[str, Any], routing_key: str, **_options: Any) -> None:
        text = dumps(message)  # type: ignore[no-untyped-call]
        topics = self._channel._get_publish_topics(exchange, routing_key)  # noqa: SLF001 - kombu's own names for them
        with self._channel.conn_or_acquire() as client:
            self._number = sum(client.publish(topic, text) for topic in topics)

    def __index__(self) -> int:
        return self._number


def _beat_of(host: str) -> str:
    return f"{SWEEP}.beat.{host}"


def push(app: Celery, ways: Mapping[tuple[str, int], Sequence[str]]) -> None:
    """Put messages into queues that are Redis lists, by queue and rank, in one round trip. Raises BrokerUnavailable.

    Kombu pushes on the left and workers take from the right, so that the order stays.
    """
    with channel_to(app) as channel:
        line = _line_of(channel)
        packed: list[bytes] = []
        for way, texts in ways.items():
            packed += line.pack_command("LPUSH", _list_of(channel, way), *texts)
        line.send_packed_command(packed)
        for _ in ways:
            line.read_response()  # after a failure the channel goes, and all its connections with it


def _list_of(channel: Any, way: tuple[str, int]) -> str:
    name: str = channel.global_keyprefix + channel._q_for_pri(*way)  # noqa: SLF001 - kombu's own name for a list
    return name


def _line_of(channel: Any) -> Any:
    """Return the connection by which messages are pushed while the channel is lent; it stays with it.

    It is one of redis-py's own, made as the channel's other ones are, and looked at before it is used, without a round
    trip. A pipeline around it would cost as much again as the push.
    """
    line = getattr(channel, _LINE, None)
    if line is None or line.pid != os.getpid():  # a process that was forked from this one has another
        line = channel.client.connection_pool.get_connection()
        setattr(channel, _LINE, line)
    elif _is_hung_up(line, channel):
        line.disconnect()
        line.connect()
    return line


def _is_hung_up(line: Any, channel: Any) -> bool:
    """Whether the broker has closed a connection; what can be read where nothing was asked is of no use either."""
    try:
        return bool(line.can_read())
    except channel.connection_errors:
        return True


def _commands(channel: Any) -> Any:
    """Return what sends commands together, on a connection of their own.

    The channel's own connection may have a question out already, whose answer would be taken for theirs.
    """
    return channel.client.pipeline(transaction=False)


@contextmanager
def channel_to(app: Celery, *, fresh: bool = False) -> Iterator[Any]:
    """Lend a channel to the broker, on request one that nobody else uses. Raises BrokerUnavailable."""
    with told_apart(app), app.pool.acquire(block=True, timeout=_patience_s()) as connection:
        common = connection.default_channel  # connects first, as the transport's options say
        if not fresh:
            yield common
            return
        with connection.channel() as channel:
            yield channel


def _patience_s() -> float:
    return get_settings().broker_timeout.total_seconds()
