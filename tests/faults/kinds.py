"""A fault that was played, and which of them can explain what."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

# Deliveries that a worker was at when one of these came may be sent twice: the worker could not write down the answer.
DEADLY = frozenset(
    {
        "worker_killed",
        "worker_frozen",
        "workers_paused",
        "all_workers_killed",
        "slow_worker_killed",
        "ended_by_itself",
        "row_refused",
    }
)

# A claim whose answer was lost with its connection is an attempt of which nobody knows.
LEDGER = frozenset(
    {
        "postgres_restarted",
        "postgres_stopped",
        "postgres_connections_ended",
        "postgres_frozen",
        "sessions_read_only",
        "commits_hang",
        "pooler_killed",
    }
)

# While the gate's Redis is away, or has forgotten, workers go on without it.
GATE = frozenset({"redis_flushed", "redis_stopped", "redis_full", "redis_read_only", "broker_connections_cut"})


@dataclass(frozen=True, slots=True)
class Fault:
    """What was done, and while when; `only` names a delivery where no other was touched."""

    name: str
    began: datetime
    ended: datetime
    only: str | None = None
