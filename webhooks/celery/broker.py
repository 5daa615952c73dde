"""The way to the broker: what is pushed by it, and the sign in it that beat lives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from celery import Celery

from webhooks.celery.app import SWEEP
from webhooks.celery.faults import told_apart
from webhooks.settings import get_settings

BELIEVED = timedelta(seconds=30)
"""How long a beat that falls silent still counts as there; by the broker's clock alone."""


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


def _beat_of(host: str) -> str:
    return f"{SWEEP}.beat.{host}"


def push(app: Celery, ways: Mapping[tuple[str, int], Sequence[str]]) -> None:
    """Put messages into queues that are Redis lists, by queue and rank, in one round trip. Raises BrokerUnavailable.

    Kombu pushes on the left and workers take from the right, so that the order stays.
    """
    with channel_to(app) as channel:
        pushed = _commands(channel)
        for way, texts in ways.items():
            pushed.lpush(channel._q_for_pri(*way), *texts)  # noqa: SLF001 - kombu's own name for a list
        pushed.execute()


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
