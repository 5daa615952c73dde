"""Clocks: the ledger's time as a worker carries it on, and the worker's own, which is only looked at to be doubted."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Protocol

from webhooks.observing.observers import Observers
from webhooks.observing.outage import Outage
from webhooks.observing.surroundings import ClockWrong

MOST_APART = timedelta(seconds=2)
"""How far a worker's wall clock may be from the ledger's before a person is told."""


class Clock(Protocol):
    """What a machine has: the module `time` is one."""

    def monotonic(self) -> float:
        """Return seconds that go on steadily."""

    def time(self) -> float:
        """Return the wall clock's seconds since 1970, right or wrong."""

    def sleep(self, seconds: float, /) -> None:
        """Let time pass."""


class LedgerClock:
    """The ledger's time, carried on by this machine's monotonic clock: workers' wall clocks may differ.

    The claim happened between asking and answer. A retry is due by the latest moment that it can be now, and waits
    from the earliest: so it never comes early, however long either way took. A request is signed with the earliest,
    so that no receiver sees a timestamp from the future.
    """

    def __init__(self, started_at: datetime, asked_at: float, machine: Clock = time) -> None:
        self._started_at = started_at
        self._asked_at = asked_at
        self._machine = machine
        self._answered_at = machine.monotonic()

    def latest(self) -> datetime:
        """Return the latest moment that it can be now."""
        return self._started_at + timedelta(seconds=self._machine.monotonic() - self._asked_at)

    def earliest(self) -> datetime:
        """Return the earliest moment that it can be now."""
        return self._started_at + self.since_start()

    def since_start(self) -> timedelta:
        """Return how long ago, at least, the claim was made."""
        return timedelta(seconds=self._machine.monotonic() - self._answered_at)


class WallClock:
    """This machine's wall clock, held against the ledger's time: a wrong one is said once, until it is right again."""

    def __init__(self, observers: Observers, machine: Clock = time) -> None:
        self._observers = observers
        self._machine = machine
        self._wrong = Outage()

    def compare(self, clock: LedgerClock) -> None:
        """Say so where it is off by more than `MOST_APART`, and was not known to be."""
        apart = _apart(self._machine.time(), clock)
        if abs(apart) <= MOST_APART:
            self._wrong.worked()
        elif self._wrong.failed():
            self._observers.tell(ClockWrong(apart))


def _apart(wall_s: float, clock: LedgerClock) -> timedelta:
    """Return how far the wall clock is ahead of what the ledger's can show now; below zero where it is behind."""
    earliest_s, latest_s = clock.earliest().timestamp(), clock.latest().timestamp()
    return timedelta(seconds=wall_s - min(max(wall_s, earliest_s), latest_s))
