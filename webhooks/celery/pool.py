"""A worker's threads, more than it has places; a place whose attempt only waits is given to another message."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from celery.concurrency.thread import TaskPool

from webhooks import parts
from webhooks.celery.places import Places

MOST_WAITING = 400
"""Attempts of one process whose places are given away; each keeps a thread."""

_SILENT_FOR_S = 0.5
_EVERY_S = 0.1


class Pool(TaskPool):  # type: ignore[misc]
    """Celery's threads, and as many more as there may be attempts that wait for their merchants."""

    limit: int

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # It starts a thread only where none is idle.
        self.executor = ThreadPoolExecutor(max_workers=self.limit + MOST_WAITING)

    def grow(self, n: int = 1) -> None:
        """Have so many places more, as `control pool_grow` and `--autoscale` ask for."""
        self.limit += n
        self.executor._max_workers += n  # noqa: SLF001

    def shrink(self, n: int = 1) -> None:
        """Have so many places fewer, and one at least; whoever works goes on."""
        self.limit = max(1, self.limit - n)


class Lending:
    """Gives the places of attempts that wait for long to other messages, and takes them back.

    It moves the consumer's prefetch count, as Celery does for messages that count down. Where the pool was chosen by
    hand there is no thread to give.
    """

    every_s = _EVERY_S

    def __init__(self, consumer: Any, places: Any) -> None:
        self._consumer = consumer
        self._places = places
        self._given = 0

    def settle(self) -> None:
        """Give as many places as there are attempts that wait, and no more than there are threads for."""
        places = self._consumer.max_prefetch_count
        if isinstance(self._places, Places):
            self._places.kept = places // 2
        if isinstance(self._consumer.pool, Pool):
            self._give(min(parts.waits().longer_than(_SILENT_FOR_S), MOST_WAITING) - self._given)

    def _give(self, more: int) -> None:
        qos = self._consumer.qos
        before = qos.value
        if more > 0:
            qos.increment_eventually(more)
        elif more < 0:
            qos.decrement_eventually(-more)
        self._given += qos.value - before  # a deployment may have set a limit (worker_eta_task_limit)
