"""Looking at the broker's queues: how many messages wait, and since when. One way peeks, one serves where none may."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol
from urllib.parse import urlsplit

from celery import Celery
from kombu.exceptions import ChannelError

from webhooks.celery import broker, messages
from webhooks.errors import LedgerFault, LedgerUnavailable
from webhooks.ledger.taken import Taken
from webhooks.sweep import Sighting

_LOOKED_AT = 50  # of the oldest messages: among them there may be some that were sent by name, without a time
_FEW = 10  # messages of beat's: where so many wait, one more would be of no use
_OUT_OF_ORDER = timedelta(seconds=5)  # by which a message may reach its queue behind one that was published later
_A_TAKING = timedelta(seconds=1)  # between two takings that one worker notes
_NOT_FOUND = "404"
_EVER = datetime.fromtimestamp(0, UTC)
_NEVER = datetime.max.replace(tzinfo=UTC)


class Lookout(Protocol):
    """What sees how a queue stands. It raises BrokerUnavailable, and LedgerUnavailable where it asks the ledger."""

    def look(self, queue: str) -> Sighting:
        """Return how a queue stands."""

    def is_waiting(self, queue: str, task: str) -> bool:
        """Whether a message of a task waits in a queue, or so many messages that one more would be of no use."""

    def took(self, queue: str, queued_at: datetime) -> None:
        """Hear that this worker has taken a message from a queue; costs its loop no round trip."""


def choose(url: str, app: Celery, taken: Taken) -> Lookout:
    """Return what looks at the queues of the broker at a URL: a Redis shows a queue's messages, others count them."""
    return Peeking(app) if urlsplit(url).scheme in {"redis", "rediss"} else Counting(app, taken)


class Peeking:
    """Reads the oldest messages of the lists that a queue is in Redis: one for each rank."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    def look(self, queue: str) -> Sighting:
        """Return how a queue stands. Since workers take from its lists in turn, the oldest of all comes soon."""
        depth, lists = self._depth_and_oldest(queue)
        found = [(_oldest_of(waiting), hash(waiting[-1])) for waiting in lists if waiting]
        if not found:
            return Sighting(depth, waits_from=None)
        oldest, coming = min(found, key=lambda each: each[0] or _NEVER)
        return Sighting(depth, waits_from=oldest, oldest=oldest, next=coming)

    def is_waiting(self, queue: str, task: str) -> bool:
        """Whether one of the task's messages is among the oldest."""
        depth, lists = self._depth_and_oldest(queue)
        return depth > _LOOKED_AT or any(_headers(message).get("task") == task for list_ in lists for message in list_)

    def took(self, queue: str, queued_at: datetime) -> None:
        """Need no note: what was taken is not in the lists any more."""

    def _depth_and_oldest(self, queue: str) -> tuple[int, list[list[bytes]]]:
        with broker.channel_to(self._app) as channel:
            asked = channel.client.pipeline(transaction=False)
            for rank in channel.priority_steps:
                name = channel._q_for_pri(queue, rank)  # noqa: SLF001
                # Kombu's client puts its prefix before the keys of commands that kombu uses; LRANGE is none of them.
                # Kombu pushes on the left and workers take from the right: the oldest message is the last.
                asked.llen(name).lrange(f"{channel.global_keyprefix}{name}", -_LOOKED_AT, -1)
            answers = asked.execute()
            return sum(answers[::2]), answers[1::2]


class Counting:
    """Asks for a queue's depth, as AMQP answers it, and knows from what workers take how far the queue has moved on.

    What was published before a message that has just been taken waits no more. Workers note that in the ledger, each
    at most once a `pause`. While nobody takes anything, all that was published may still wait.
    """

    def __init__(
        self,
        app: Celery,
        taken: Taken,
        *,
        pause: timedelta = _A_TAKING,
        soon: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        self._app = app
        self._taken = taken
        self._pause_s = pause.total_seconds()
        self._next_note_s = float("-inf")
        self._soon = soon or ThreadPoolExecutor(1, "takings").submit
        self._noting = False

    def look(self, queue: str) -> Sighting:
        """Return how a queue stands; which message comes next is told by the last that was taken."""
        depth = self._depth(queue)
        if not depth:
            return Sighting(depth=0, waits_from=None)
        last = self._taken.last(queue)
        moves = last is not None and last.lately
        waits_from = last.queued_at - _OUT_OF_ORDER if last and moves else _EVER
        return Sighting(depth, waits_from=waits_from, next=hash(last.queued_at) if last else None)

    def is_waiting(self, queue: str, task: str) -> bool:  # noqa: ARG002 - which task's they are cannot be seen
        """Whether more than a few messages wait."""
        return self._depth(queue) > _FEW

    def took(self, queue: str, queued_at: datetime) -> None:
        """Note it in a thread of its own, unless one was noted a moment ago or the ledger has yet to take the last."""
        now_s = time.monotonic()
        if self._noting or now_s < self._next_note_s:
            return
        self._noting, self._next_note_s = True, now_s + self._pause_s
        self._soon(lambda: self._note(queue, queued_at))

    def _note(self, queue: str, queued_at: datetime) -> None:
        try:
            self._taken.note(queue, queued_at)
        except (LedgerUnavailable, LedgerFault):
            pass  # what is lost waits for the next note, and the ledger's outage is told by others
        finally:
            self._noting = False

    def _depth(self, name: str) -> int:
        # On a channel of its own: AMQP closes one on which a queue was asked for that is not there.
        with broker.channel_to(self._app, fresh=True) as channel:
            try:
                return int(channel.queue_declare(name, passive=True).message_count)
            except ChannelError as error:
                if str(error.reply_code) != _NOT_FOUND:
                    raise
                return 0


def _oldest_of(last: list[bytes]) -> datetime | None:
    return next(filter(None, (messages.queued_at(_headers(message)) for message in reversed(last))), None)


def _headers(message: bytes) -> Mapping[str, Any]:
    """Read a message's headers; of somebody else's that cannot be read there are none."""
    try:
        headers = json.loads(message)["headers"]
    except (ValueError, KeyError, TypeError):
        return {}
    return headers if isinstance(headers, Mapping) else {}
