"""What the drill does to the system: one function for each fault, each of which ends with everything in place again."""

from __future__ import annotations

import contextlib
import json
import random
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from signal import Signals
from typing import Any

from tests.faults.cast import DOOMED
from tests.faults.commands import How
from tests.faults.frozen import frozen
from tests.faults.kinds import Fault
from tests.faults.theatre import DELIVERERS, RANKS, Theatre
from webhooks import deliver
from webhooks.demo.stage import wait_until
from webhooks.errors import NotPossible

COPY = "copied_by_the_drill"

_REFUSE_ROW = """
CREATE FUNCTION refuse_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the drill refuses this row' USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER row_refused BEFORE UPDATE ON deliveries FOR EACH ROW
WHEN (OLD.id = '{}' AND OLD.sending_since IS NOT NULL AND NEW.sending_since IS NULL AND NEW.turn = OLD.turn)
EXECUTE FUNCTION refuse_row();
"""
_ACCEPT_ROW = "DROP TRIGGER row_refused ON deliveries; DROP FUNCTION refuse_row()"
_END_SESSIONS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE backend_type = 'client backend' AND application_name <> 'drill'
"""


class Faults:
    """The faults by name, and the record of those that were played."""

    def __init__(self, theatre: Theatre, dice: random.Random) -> None:
        self._theatre = theatre
        self._dice = dice
        self._pause = threading.Event()  # never set: a wait on it is a pause
        self._kept: list[Any] = []
        self.played: list[Fault] = []
        self.deleted: list[str] = []
        self.unacknowledged: list[bool] = []  # for deliveries in mid-POST: whether the broker still had their message
        self.all: dict[str, Callable[[], str | None]] = {
            fault.__name__: fault
            for fault in (
                self.worker_killed,
                self.worker_frozen,
                self.worker_restarted,
                self.all_workers_killed,
                self.slow_worker_killed,
                self.queue_purged,
                self.redis_flushed,
                self.redis_stopped,
                self.redis_full,
                self.redis_read_only,
                self.postgres_restarted,
                self.postgres_stopped,
                self.postgres_connections_ended,
                self.postgres_frozen,
                self.sessions_read_only,
                self.commits_hang,
                self.row_refused,
                self.row_deleted,
                self.beat_killed,
                self.broker_connections_cut,
                self.acknowledgements_fail,
                self.messages_doubled,
                self.workers_paused,
                *([self.pooler_killed] if theatre.pooler else []),
            )
        }

    def play(self, name: str) -> Fault:
        """Do it, and return the record of it."""
        began = datetime.now(UTC)
        only = self.all[name]()
        fault = Fault(name, began, datetime.now(UTC), only)
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
        """SIGKILL of all that deliver, and nobody there for a while."""
        self._wait_for_a_post()
        self._look_for_messages()
        for name in DELIVERERS:
            self._theatre.end(name, Signals.SIGKILL)
        self.rest(2, 5)
        for name in DELIVERERS:
            self._theatre.start(name)

    def slow_worker_killed(self) -> None:
        """SIGKILL of the worker for slow endpoints, and nobody takes from their queue for a while."""
        self._look_for_messages()
        self._theatre.end("slow", Signals.SIGKILL)
        self.rest(3, 6)
        self._theatre.start("slow")

    def worker_frozen(self) -> None:
        """SIGSTOP of a worker in mid-POST until long after its leases, then SIGCONT: its results come late."""
        program = self._theatre.programs[self._dice.choice(DELIVERERS)]
        self._wait_for_a_post(at_least=3)  # so that hardly ever all are the other worker's
        program.send(Signals.SIGSTOP)
        self.rest(11, 13)
        program.send(Signals.SIGCONT)

    def worker_restarted(self) -> None:
        """SIGTERM, and a new one when the old one has gone."""
        name = self._dice.choice(DELIVERERS)
        self._theatre.end(name, Signals.SIGTERM)
        self._theatre.start(name)

    def workers_paused(self) -> None:
        """SIGSTOP of all that deliver while the sweep goes on: the queues grow, and nobody takes from them."""
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
            self._theatre.administer(_END_SESSIONS)
            self.rest(0.1, 0.5)

    def postgres_frozen(self) -> None:
        """SIGSTOP of PostgreSQL and all its sessions: no connection breaks, and none is answered."""
        with frozen(self._theatre.servers.postgres.url()):
            self.rest(3, 8)

    def sessions_read_only(self) -> None:
        """A failover: for a while every new session refuses writes, and in the end none of these is ended.

        A pooler's sessions are not the system's to leave: whoever manages the failover ends them.
        """
        self._theatre.administer("ALTER DATABASE postgres SET default_transaction_read_only = on", _END_SESSIONS)
        self.rest(3, 8)
        self._theatre.administer("ALTER DATABASE postgres RESET default_transaction_read_only")
        if self._theatre.pooler:
            self._theatre.administer(_END_SESSIONS)

    def commits_hang(self) -> None:
        """Every commit waits for a standby that is not there."""
        self._theatre.administer("ALTER SYSTEM SET synchronous_standby_names = 'nobody'", "SELECT pg_reload_conf()")
        self.rest(3, 8)
        self._theatre.administer("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")

    def row_refused(self) -> str | None:
        """The result of one delivery in mid-POST is refused for good, which is no outage."""
        self._wait_for_a_post()
        chosen = next(iter(self._theatre.cast.book.in_mid_post()), None)
        if chosen:
            self._theatre.administer(_REFUSE_ROW.format(chosen))
            self.rest(2, 4)
            self._theatre.administer(_ACCEPT_ROW)
        return chosen

    def row_deleted(self) -> str:
        """A delivery of the drill's own is deleted by hand while it is being sent."""
        doomed = f"{DOOMED}{len(self.deleted)}"
        self.deleted.append(doomed)
        deliver.delay({"id": doomed, "type": "kyc.status_changed", "merchant_id": "slow"})
        with contextlib.suppress(NotPossible):
            wait_until(lambda: doomed in self._theatre.cast.book.in_mid_post(), "it is being sent", timeout=10)
        self._theatre.administer(f"DELETE FROM deliveries WHERE id = '{doomed}'")
        return doomed

    def pooler_killed(self) -> None:
        """SIGKILL of the pooler, and nobody there for a while."""
        assert self._theatre.pooler
        self._theatre.pooler.stop(Signals.SIGKILL)
        self.rest(0.5, 2)
        self._theatre.pooler.start()

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

    def acknowledgements_fail(self) -> None:
        """What a worker says to end a message fails, more often than both have places: cut, lost, held or refused."""
        how = self._dice.choice(list(How))
        with self._theatre.proxy.failing("ZREM", how, times=self._dice.randint(5, 25)):
            self.rest(3, 6)

    def messages_doubled(self) -> None:
        """What waits in the queue or with a worker is queued once more, and again what was copied some faults ago."""
        waiting = [message for queue in (*RANKS, "slow") for message in self._redis_does("LRANGE", queue, "0", "200")]
        originals = [*waiting, *self._held_by_workers()]
        copies = [_marked(message) for message in originals]
        for message in [*self._kept, *copies][:400]:
            self._redis_does("RPUSH", "deliveries", message)
        self._kept = copies
        self.rest(0.5, 1.5)
        for message in copies:
            self._redis_does("RPUSH", "deliveries", message)

    def _held_by_workers(self) -> list[bytes]:
        return [json.dumps(json.loads(kept)[0]).encode() for kept in self._redis_does("HVALS", "unacked")]

    def _wait_for_a_post(self, at_least: int = 1) -> None:
        book = self._theatre.cast.book
        with contextlib.suppress(Exception):  # with the broker or the ledger just back, there may be none for a while
            wait_until(lambda: len(book.in_mid_post()) >= at_least, "a POST is under way", timeout=10)

    def _look_for_messages(self) -> None:
        """Note whether the deliveries in mid-POST still have their message on the broker (late acknowledgement)."""
        in_mid_post = self._theatre.cast.book.in_mid_post()
        held = b"".join(self._redis_does("HVALS", "unacked"))
        self.unacknowledged += [f'"{delivery_id}"'.encode() in held for delivery_id in in_mid_post]

    def _redis_does(self, *command: str | bytes) -> Any:
        return self._theatre.redis.execute_command(*command)


def _marked(message: bytes) -> bytes:
    """Mark a message as the drill's own copy, which is not counted among what the sweep published twice."""
    copy = json.loads(message)
    copy["headers"][COPY] = True
    return json.dumps(copy).encode()
