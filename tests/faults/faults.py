"""What the drill does to the system: one function for each fault, each of which ends with everything in place again."""

from __future__ import annotations

import contextlib
import json
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from signal import Signals
from typing import Any

from tests.faults.theatre import DELIVERERS, Theatre
from webhooks.stage import wait_until

COPY = "copied_by_the_drill"

# Deliveries that a worker was at when one of these came may be sent twice: the worker could not write down the answer.
DEADLY = frozenset({"worker_killed", "worker_frozen", "workers_paused", "all_workers_killed", "ended_by_itself"})

# A claim whose answer was lost with its connection is an attempt of which nobody knows.
LEDGER = frozenset({"postgres_restarted", "postgres_stopped", "postgres_connections_ended"})


@dataclass(frozen=True, slots=True)
class Fault:
    """What was done, and while when."""

    name: str
    began: datetime
    ended: datetime


class Faults:
    """The faults by name, and the record of those that were played."""

    def __init__(self, theatre: Theatre, dice: random.Random) -> None:
        self._theatre = theatre
        self._dice = dice
        self._pause = threading.Event()  # never set: a wait on it is a pause
        self._kept: list[Any] = []
        self.played: list[Fault] = []
        self.unacknowledged: list[bool] = []  # for deliveries in mid-POST: whether the broker still had their message
        self.all: dict[str, Callable[[], None]] = {
            fault.__name__: fault
            for fault in (
                self.worker_killed,
                self.worker_frozen,
                self.worker_restarted,
                self.all_workers_killed,
                self.queue_purged,
                self.redis_flushed,
                self.redis_stopped,
                self.redis_full,
                self.redis_read_only,
                self.postgres_restarted,
                self.postgres_stopped,
                self.postgres_connections_ended,
                self.beat_killed,
                self.broker_connections_cut,
                self.messages_doubled,
                self.workers_paused,
            )
        }

    def play(self, name: str) -> Fault:
        """Do it, and return the record of it."""
        began = datetime.now(UTC)
        self.all[name]()
        fault = Fault(name, began, datetime.now(UTC))
        self.played.append(fault)
        return fault

    def rest(self, least: float, most: float) -> None:
        """Let a random time pass."""
        self._pause.wait(self._dice.uniform(least, most))

    def worker_killed(self) -> None:
        """SIGKILL of a worker while a merchant is about to answer it."""
        name = self._dice.choice(DELIVERERS)
        self._wait_for_a_post()
        self._look_for_messages()
        self._theatre.end(name, Signals.SIGKILL)
        self.rest(0.5, 2)
        self._theatre.start(name)

    def all_workers_killed(self) -> None:
        """SIGKILL of both, and nobody there for a while."""
        self._wait_for_a_post()
        self._look_for_messages()
        for name in DELIVERERS:
            self._theatre.end(name, Signals.SIGKILL)
        self.rest(2, 5)
        for name in DELIVERERS:
            self._theatre.start(name)

    def worker_frozen(self) -> None:
        """SIGSTOP of a worker in mid-POST until long after its leases, then SIGCONT: its results come late."""
        program = self._theatre.programs[self._dice.choice(DELIVERERS)]
        self._wait_for_a_post()
        program.send(Signals.SIGSTOP)
        self.rest(11, 13)
        program.send(Signals.SIGCONT)

    def worker_restarted(self) -> None:
        """SIGTERM, and a new one when the old one has gone."""
        name = self._dice.choice(DELIVERERS)
        self._theatre.end(name, Signals.SIGTERM)
        self._theatre.start(name)

    def workers_paused(self) -> None:
        """SIGSTOP of both while the sweep goes on: the queue grows, and nobody takes from it."""
        for name in DELIVERERS:
            self._theatre.programs[name].send(Signals.SIGSTOP)
        self.rest(11, 13)
        for name in DELIVERERS:
            self._theatre.programs[name].send(Signals.SIGCONT)

    def queue_purged(self) -> None:
        """`celery -A webhooks purge -f`, at a moment when something is queued."""
        for name in DELIVERERS:
            self._theatre.programs[name].send(Signals.SIGSTOP)
        self.rest(0.5, 1)
        self._theatre.celery("purge", "purge", "-f", ready="urged").stop()
        for name in DELIVERERS:
            self._theatre.programs[name].send(Signals.SIGCONT)

    def redis_flushed(self) -> None:
        """FLUSHALL: messages, breakers, leases, and Celery's own bookkeeping are gone."""
        self._redis_does("FLUSHALL")

    def redis_stopped(self) -> None:
        """Redis is away for a while, and comes back with its data."""
        self._theatre.servers.redis.stop()
        self.rest(2, 6)
        self._theatre.servers.redis.start()

    def redis_full(self) -> None:
        """CONFIG SET maxmemory 1: Redis refuses every write."""
        self._redis_does("CONFIG", "SET", "maxmemory", "1")
        self.rest(3, 8)
        self._redis_does("CONFIG", "SET", "maxmemory", "0")

    def redis_read_only(self) -> None:
        """A failover made this Redis a replica of nobody for a while, with its data kept."""
        self._redis_does("REPLICAOF", "127.0.0.1", "1")
        self.rest(3, 6)
        self._redis_does("REPLICAOF", "NO", "ONE")

    def postgres_restarted(self) -> None:
        """A fast restart: every connection is gone."""
        self._theatre.servers.postgres.restart()

    def postgres_stopped(self) -> None:
        """The ledger is away for some seconds, less than a lease."""
        self._theatre.servers.postgres.control("-w", "-m", "fast", "stop")
        self.rest(1, 3)
        self._theatre.servers.postgres.restart()

    def postgres_connections_ended(self) -> None:
        """Every session of the ledger is terminated, three times in a row."""
        for _ in range(3):
            self._theatre.administer(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'webhooks'"
            )
            self.rest(0.1, 0.5)

    def beat_killed(self) -> None:
        """SIGKILL of beat, and nobody there for a while."""
        self._theatre.end("beat", Signals.SIGKILL)
        self.rest(2, 6)
        self._theatre.start("beat")

    def broker_connections_cut(self) -> None:
        """Every connection to Redis is cut, four times within three seconds."""
        for _ in range(4):
            self._theatre.proxy.cut()
            self.rest(0.3, 0.8)

    def messages_doubled(self) -> None:
        """What waits in the queue or with a worker is queued once more, and again what was copied some faults ago."""
        originals = [*self._redis_does("LRANGE", "deliveries", "0", "200"), *self._held_by_workers()]
        copies = [_marked(message) for message in originals]
        for message in [*self._kept, *copies][:400]:
            self._redis_does("RPUSH", "deliveries", message)
        self._kept = copies
        self.rest(0.5, 1.5)
        for message in copies:
            self._redis_does("RPUSH", "deliveries", message)

    def _held_by_workers(self) -> list[bytes]:
        return [json.dumps(json.loads(kept)[0]).encode() for kept in self._redis_does("HVALS", "unacked")]

    def _wait_for_a_post(self) -> None:
        with contextlib.suppress(Exception):  # with the broker or the ledger just back, there may be none for a while
            wait_until(self._theatre.cast.book.in_mid_post, "a POST is under way", timeout=10)

    def _look_for_messages(self) -> None:
        """Note whether the deliveries in mid-POST still have their message on the broker (late acknowledgement)."""
        in_mid_post = self._theatre.cast.book.in_mid_post()
        held = b"".join(self._redis_does("HVALS", "unacked"))
        self.unacknowledged += [delivery_id.encode() in held for delivery_id in in_mid_post]

    def _redis_does(self, *command: str | bytes) -> Any:
        return self._theatre.redis.execute_command(*command)


def _marked(message: bytes) -> bytes:
    """Mark a message as the drill's own copy, which is not counted among what the sweep published twice."""
    copy = json.loads(message)
    copy["headers"][COPY] = True
    return json.dumps(copy).encode()
