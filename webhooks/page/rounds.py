"""How the parts are: asked in rounds beside whoever looks, since workers take a second to answer and nobody waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from webhooks.health import judging
from webhooks.health.asking import Answers, Fault, ask
from webhooks.health.workers import Worker
from webhooks.ledger.leases import Done
from webhooks.process.once import once
from webhooks.sweep import Sighting

_FRESH_S = 5.0  # for which a round is believed
_STALE_S = 60.0  # after which what it said is told no more
_PATIENCE = timedelta(seconds=8)
_HURRY_S = 0.4  # for which a page waits for the first round


@dataclass(frozen=True, slots=True)
class QueueSeen:
    """How many messages wait in a queue, and how long the oldest has; None where that is not known."""

    name: str
    depth: int | None
    oldest_waits: timedelta | None


@dataclass(frozen=True, slots=True)
class WorkerSeen:
    """A worker, and from which queues it takes messages."""

    name: str
    queues: Sequence[str]


@dataclass(frozen=True, slots=True)
class PartsSeen:
    """How the parts are; what is None or empty could not be asked, and a fault says so."""

    faults: Sequence[Fault]
    sweep_ago: timedelta | None
    sweep_by: str | None
    takes_writes: bool
    queues: Sequence[QueueSeen]
    workers: Sequence[WorkerSeen]


class Rounds:
    """Rounds of questions to all parts, one at a time."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._answers: Answers | None = None
        self._at_s = 0.0
        self._under_way = False

    def latest(self) -> Answers | None:
        """Return what the parts said last, and begin another round where that is some time ago; None: not yet."""
        with self._lock:
            if not self._is_younger(_FRESH_S):
                self._begin()
            if not self._is_younger(_STALE_S):
                self._lock.wait_for(lambda: not self._under_way, _HURRY_S)
            return self._answers if self._is_younger(_STALE_S) else None

    def fresh(self) -> Answers:
        """Return what the parts said within the last seconds, once they have said it."""
        with self._lock:
            if not self._is_younger(_FRESH_S):
                self._begin()
                self._lock.wait_for(lambda: not self._under_way)  # which is bounded, as each question is
            return self._answers or {}

    def _is_younger(self, age_s: float) -> bool:
        return self._answers is not None and time.monotonic() - self._at_s <= age_s

    def _begin(self) -> None:
        if not self._under_way:
            self._under_way = True
            threading.Thread(target=self._go, name="asks the parts", daemon=True).start()

    def _go(self) -> None:
        answers: Answers = {}
        try:
            answers = ask(judging.of_system(), within=_PATIENCE)
        finally:
            with self._lock:
                self._answers, self._at_s, self._under_way = answers, time.monotonic(), False
                self._lock.notify_all()


@once
def rounds() -> Rounds:
    """Return this process's."""
    return Rounds()


def state_of(answers: Answers) -> PartsSeen:
    """Return how the parts are, by what they said."""
    sweep, workers = answers.get("sweep"), answers.get("workers")
    done = sweep if isinstance(sweep, Done) else None
    return PartsSeen(
        faults=list(judging.judge_system(answers)) if answers else [],
        sweep_ago=done.ago if done else None,
        sweep_by=done.by if done else None,
        takes_writes=answers.get("ledger takes writes") is True,
        queues=[_waits(name, answers.get(f"queue {name}"), done) for name in judging.QUEUES],
        workers=_takers(workers) if isinstance(workers, Mapping) else [],
    )


def _waits(name: str, seen: object, done: Done | None) -> QueueSeen:
    if not isinstance(seen, Sighting):
        return QueueSeen(name, None, None)
    return QueueSeen(name, seen.depth, done.now - seen.oldest if seen.oldest and done else None)


def _takers(workers: Mapping[str, Worker]) -> list[WorkerSeen]:
    return [WorkerSeen(name, list(worker.queues)) for name, worker in workers.items()]
