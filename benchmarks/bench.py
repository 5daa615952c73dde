"""What every arm stands on: servers, merchants, a producer, and worker processes as an installation has them."""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg2
import redis
from cryptography.fernet import Fernet

from benchmarks import merchants
from benchmarks.load import Load
from benchmarks.merchants import Nginx
from benchmarks.sick import Sick
from webhooks import parts
from webhooks.celery import app as application
from webhooks.demo.embedded import Servers
from webhooks.demo.stage import Program, Stage
from webhooks.ledger import schema
from webhooks.model import Changes

HEALTHY, SICK = 700, 300  # how many merchants there are
_TABLES = "deliveries, events, event_keys, attempts, claims, tallies, notices"
# In this process alone: one failure opens a breaker, for long. The workers have the rules' own numbers.
_TO_PAUSE = {
    "WEBHOOKS_BREAKER_MIN_ATTEMPTS": "1",
    "WEBHOOKS_BREAKER_PAUSE": "1d",
    "WEBHOOKS_BREAKER_MAX_PAUSE": "1d",
}


class Bench:
    """Everything that runs for as long as the benchmarks do. `healthy` and `sick` are the merchants' ids."""

    def __init__(self, stack: ExitStack) -> None:
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="webhooks-bench-")))
        merchants.certify(self.folder)
        ports = merchants.free_ports(HEALTHY + SICK)
        self.nginx = stack.enter_context(Nginx(self.folder, ports[:HEALTHY]))
        self.servers = stack.enter_context(Servers())
        self.environment = {
            "WEBHOOKS_DATABASE_URL": self.servers.postgres.url(),
            "WEBHOOKS_BROKER_URL": self.servers.redis.url,
            "WEBHOOKS_SECRETS_KEY": Fernet.generate_key().decode(),
            "WEBHOOKS_CA_BUNDLE": str(self.folder / "ca.pem"),
            "WEBHOOKS_ALLOW_PRIVATE_ADDRESSES": "true",
            "PLAIN_BROKER_URL": self.servers.redis.url.removesuffix("0") + "1",
        }
        os.environ |= self.environment | _TO_PAUSE
        schema.upgrade(parts.database())
        self.sick_ones = stack.enter_context(Sick(os.environ, ports[HEALTHY:], str(self.folder / "leaf.pem")))
        self.load = stack.enter_context(Load(self.of_others()))
        self.healthy = [f"m{at}" for at in range(HEALTHY)]
        self.sick = [f"s{at}" for at in range(SICK)]
        self.urls = {
            each: f"https://localhost:{port}/webhooks"
            for each, port in zip(self.healthy + self.sick, ports, strict=True)
        }
        self._register()
        self._stages = 0
        self._throughputs: list[float] = []

    def of_others(self, **settings: str) -> dict[str, str]:
        """Return the environment of a process that is not this one."""
        mine = {name: value for name, value in os.environ.items() if not name.startswith("WEBHOOKS_")}
        return mine | self.environment | settings

    def _register(self) -> None:
        """Register the first merchant as an operator would, and the others with its secret: so many take a while."""
        first, *others = self.urls
        parts.endpoints().set(first, Changes(url=self.urls[first], secret="a secret"))
        self.sql(_REGISTER, others, [self.urls[each] for each in others], first)

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement with nothing between it and PostgreSQL, and return its rows."""
        connection = psycopg2.connect(self.servers.postgres.url())
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(statement, values or None)
                return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()

    def reset(self) -> None:
        """Empty ledger, broker and gate, and let every merchant be healthy; no worker runs."""
        self.sql(f"TRUNCATE {_TABLES} CASCADE")
        for url in (self.environment["WEBHOOKS_BROKER_URL"], self.environment["PLAIN_BROKER_URL"]):
            with redis.Redis.from_url(url) as server:
                # What producers have declared they do not declare again.
                keys = [key for key in server.scan_iter(count=1000) if not key.startswith(b"_kombu.binding")]
                for at in range(0, len(keys), 1000):
                    server.unlink(*keys[at : at + 1000])
        self.sick_ones.recover()

    @contextmanager
    def stage(self, how: signal.Signals, **settings: str) -> Iterator[Stage]:
        """Give processes a place that is gone afterwards, with their logs."""
        self._stages += 1
        folder = self.folder / f"stage-{self._stages}"
        try:
            with Stage(folder, self.of_others(**settings), ending=how) as stage:
                yield stage
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def running(
        self,
        workers: int = 2,
        *,
        settings: Mapping[str, str] | None = None,
        chores: Mapping[str, str] | None = None,
        pinned: bool = False,
    ) -> Iterator[list[Program]]:
        """Run the Procfile's programs but Flower: so many workers for deliveries, with default settings and `settings`.

        They are killed at the end, as what they have in hand is nobody's any more. `chores` are settings of the sweep
        and beat alone; `pinned` gives each worker for deliveries one core.
        """
        slow = getattr(application, "SLOW", None)
        with (
            self.stage(signal.SIGKILL, **(settings or {})) as stage,
            self.stage(signal.SIGKILL, **{**(settings or {}), **(chores or {})}) as aside,
        ):
            sweep = "--queues", application.SWEEP, "--concurrency", "1"
            starts: list[Callable[[], Program]] = [lambda: aside.worker("sweep", *sweep), aside.beat]
            if slow:
                starts.append(lambda: stage.worker("slow", "--queues", slow, "--concurrency", "200"))
            starts += [partial(_worker, stage, number, pinned=pinned) for number in range(workers)]
            with ThreadPoolExecutor(len(starts)) as pool:
                yield [started.result() for started in [pool.submit(start) for start in starts]]

    @contextmanager
    def plain(self, task: str) -> Iterator[None]:
        """Run the worker that ours is compared with: prefork, two processes."""
        with self.stage(signal.SIGTERM) as stage:
            command = ["-m", "celery", "-A", "benchmarks.plain", "worker", "-l", "INFO", "-c", "2"]
            stage.run(task, *command, "--without-mingle", "--without-gossip", ready=" ready.")
            yield

    def arrivals(self, mark: int, count: int, within: float) -> dict[str, float]:
        """Wait until so many events have arrived since `mark`, or for `within` seconds; return when each did."""
        deadline = time.monotonic() + within
        while True:
            first = merchants.first_of_each(self.nginx.since(mark))
            if len(first) >= count or time.monotonic() > deadline:
                return first
            time.sleep(0.2)

    def saw(self, throughput: float) -> None:
        """Remember a throughput of this run, by which later arms choose their rates."""
        self._throughputs.append(throughput)

    def throughput(self, measure: Callable[[], float]) -> float:
        """Return the throughput of this run; measured now where no arm has done it before."""
        if not self._throughputs:
            self.saw(measure())
        return statistics.median(self._throughputs)

    def hold(self, merchant_ids: Sequence[str], first: int, count: int) -> None:
        """Put `count` held deliveries into the ledger, over the given merchants in turn."""
        values = {"ids": list(merchant_ids), "first": first, "last": first + count - 1}
        for statement in (_HOLD_EVENTS, _HOLD):
            connection = psycopg2.connect(self.servers.postgres.url())
            with connection, connection.cursor() as cursor:
                cursor.execute(statement, values)
            connection.close()
        self.sql("ANALYZE deliveries")


_REGISTER = """
INSERT INTO endpoints (id, merchant_id, url, secret)
SELECT new.id, new.id, new.url, endpoints.secret FROM endpoints, unnest(%s, %s) AS new (id, url) WHERE endpoints.id = %s
"""

_HOLD_EVENTS = """
INSERT INTO events (id, merchant_id, type, money, body, body_sha256, accepted_at)
SELECT 'held-' || n, (%(ids)s)[1 + n %% cardinality(%(ids)s)], 'refund.completed', true, '{}', sha256('{}'), now()
FROM generate_series(%(first)s, %(last)s) AS n
"""

_HOLD = """
INSERT INTO deliveries (id, event_id, merchant_id, endpoint_id, type, money, state, held_for, due_at, accepted_at,
 expires_at)
SELECT 'held-' || n, 'held-' || n, m, m, 'refund.completed', true, 'held', 'breaker', now(),
 now() - interval '1 hour' + n * interval '1 microsecond', now() + interval '30 days'
FROM generate_series(%(first)s, %(last)s) AS n, LATERAL (SELECT (%(ids)s)[1 + n %% cardinality(%(ids)s)] AS m) AS of
"""


def _worker(stage: Stage, number: int, *, pinned: bool) -> Program:
    options = f"deliveries-{number}", "--queues", application.DELIVERIES
    if not pinned:
        return stage.worker(*options)
    cores = os.sched_getaffinity(0)
    try:  # what a thread starts runs where the thread may
        os.sched_setaffinity(0, {sorted(cores)[number % len(cores)]})
        return stage.worker(*options)
    finally:
        os.sched_setaffinity(0, cores)
