"""What one delivery costs: SQL statements, Redis commands, CPU, and how many updates touch no index (HOT)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import redis

from benchmarks.arms.speed import MERCHANTS, QUEUED
from benchmarks.arms.steady import phase
from benchmarks.bench import Bench
from benchmarks.figures import Row
from benchmarks.load import Load
from webhooks import parts
from webhooks.demo.embedded import RedisServer

_ROLES = ("bench_worker", "bench_producer", "bench_chores")
_FRAME = r"^\s*(begin|commit|rollback|start transaction|set|reset|show|savepoint|release)\y"
_TICKS = os.sysconf("SC_CLK_TCK")
LOW = 5.0  # deliveries a second

Figures = dict[str, float]


def cost(bench: Bench) -> list[Row]:
    """Count at 5 deliveries a second, and while a full queue is worked off; the gate has a Redis of its own here."""
    with ExitStack() as stack:
        stack.enter_context(_counting_statements(bench))
        gate = RedisServer(bench.folder / "gate").start()
        stack.callback(gate.stop)
        meter = _Meter(bench, gate)
        load = stack.enter_context(Load(bench.of_others(**meter.settings("bench_producer"))))
        bench.load, kept = load, bench.load
        try:
            return [meter.measure("at low load", high=False), meter.measure("at high load", high=True)]
        finally:
            bench.load = kept


@contextmanager
def _counting_statements(bench: Bench) -> Iterator[None]:
    """Have PostgreSQL count statements by role, here only: it costs a little."""
    bench.sql("ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'")
    _restart(bench)
    try:
        bench.sql("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        for role in _ROLES:
            bench.sql(f"DROP ROLE IF EXISTS {role}")
            bench.sql(f"CREATE ROLE {role} SUPERUSER LOGIN")
        yield
    finally:
        bench.sql("DROP EXTENSION pg_stat_statements")
        bench.sql("ALTER SYSTEM RESET shared_preload_libraries")
        _restart(bench)


def _restart(bench: Bench) -> None:
    parts.database().dispose()
    bench.servers.postgres.restart()


class _Meter:
    def __init__(self, bench: Bench, gate: RedisServer) -> None:
        self._bench = bench
        self._gate = gate

    def settings(self, role: str) -> dict[str, str]:
        url = self._bench.environment["WEBHOOKS_DATABASE_URL"]
        before, at, after = url.partition("://")[2].rpartition("@")
        named = f"postgresql://{role}{before.partition(':')[1]}{before.partition(':')[2]}{at}{after}"
        return {"WEBHOOKS_DATABASE_URL": named, "WEBHOOKS_REDIS_URL": self._gate.url}

    def measure(self, case: str, *, high: bool) -> Row:
        """Count what deliveries cost with either load."""
        bench, merchants = self._bench, self._bench.healthy[:MERCHANTS]
        bench.reset()
        hot = self._hot()
        if high:
            bench.load.queue(merchants, QUEUED)
        mark = bench.nginx.mark()
        bench.sql("SELECT pg_stat_statements_reset()")
        with bench.running(chores=self.settings("bench_chores"), settings=self.settings("bench_worker")) as programs:
            pids = [program.process.pid for program in programs if program.process]  # type: ignore[attr-defined]
            before = self._spent(pids)
            if not high:
                phase(bench, merchants, LOW, 17)
            count = len(bench.arrivals(mark, QUEUED if high else 0, 60))
            after = self._spent(pids)
            statements = self._statements()
        spent = {name: (after[name] - before[name]) / count for name in after}
        updated = [now - then for now, then in zip(self._hot(), hot, strict=True)]
        return Row(
            "cost",
            case,
            {name: each / count for name, each in statements.items()}
            | spent
            | {"HOT %": 100 * updated[1] / max(updated[0], 1), "deliveries": count},
        )

    def _statements(self) -> Figures:
        """Return how many statements each role has sent, those that only frame a transaction apart."""
        rows = self._bench.sql(
            "SELECT r.rolname, coalesce(sum(s.calls) FILTER (WHERE s.query !~* %s), 0),"
            " coalesce(sum(s.calls) FILTER (WHERE s.query ~* %s), 0)"
            " FROM pg_stat_statements s JOIN pg_roles r ON r.oid = s.userid WHERE r.rolname LIKE 'bench_%%'"
            " AND s.toplevel GROUP BY 1 ORDER BY 1 DESC",
            _FRAME,
            _FRAME,
        )
        told: Figures = {}
        for role, calls, frames in rows:
            name = role.removeprefix("bench_")
            told |= {f"{name} SQL": float(calls), f"{name} begin/set/commit": float(frames)}
        return told

    def _spent(self, workers: list[int]) -> Figures:
        """Return Redis commands and CPU milliseconds so far."""
        broker = redis.Redis.from_url(self._bench.environment["WEBHOOKS_BROKER_URL"])
        gate = redis.Redis.from_url(self._gate.url)
        with broker, gate:
            servers: list[Any] = [broker.info("server"), gate.info("server")]
            calls = [_calls(broker.info("commandstats")), _calls(gate.info("commandstats"))]
        ((folder,),) = self._bench.sql("SHOW data_directory")
        postmaster = int(Path(folder, "postmaster.pid").read_text().split()[0])
        return {
            "gate scripts": calls[1].get("evalsha", 0) + calls[1].get("eval", 0),
            "broker commands": sum(calls[0].values()),
            "worker CPU ms": cpu_ms(workers),
            "PostgreSQL CPU ms": cpu_ms([postmaster]),
            "Redis CPU ms": cpu_ms([each["process_id"] for each in servers]),
        }

    def _hot(self) -> tuple[int, int]:
        self._bench.sql("SELECT pg_stat_force_next_flush()")
        ((updated, hot),) = self._bench.sql(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'deliveries'"
        )
        return int(updated), int(hot)


def _calls(stats: Mapping[str, Any]) -> dict[str, float]:
    return {name.removeprefix("cmdstat_"): float(each["calls"]) for name, each in stats.items()}


def cpu_ms(pids: list[int]) -> float:
    """Return the CPU time of processes, their children and those that these have waited for."""
    parents: dict[int, list[int]] = {}
    times: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        parents.setdefault(int(words[1]), []).append(int(folder.name))
        times[int(folder.name)] = sum(map(int, words[11:15]))
    family, found = list(pids), 0
    while family:
        pid = family.pop()
        found += times.get(pid, 0)
        family += parents.get(pid, [])
    return 1000 * found / _TICKS
