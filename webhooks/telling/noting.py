"""The sink that notes what may become a notice: endpoints that are gone, and breakers that open and close.

It hears facts in the threads that send, so it only remembers which endpoints they are about. A thread of its own writes
that into the ledger, together what came together. What is lost is found again: a breaker by the next look at all of
them, a 410 by the next one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from webhooks.ledger.database import Database
from webhooks.ledger.noticing import Noticing
from webhooks.observing import facts
from webhooks.observing.facts import Fact
from webhooks.observing.observers import Observers
from webhooks.observing.operators import NoticesStopped
from webhooks.observing.outage import Outage

_GONE = 410
_MOST = 10_000  # endpoints that are remembered
_PATIENCE = timedelta(seconds=5)
_DAY_S = 86_400


class Noting:
    """Made once a process; `database` and `observers` are asked for when there is something to write."""

    def __init__(self, database: Callable[[], Database], observers: Callable[[], Observers]) -> None:
        self._database = database
        self._observers = observers
        self._lock = threading.Lock()
        self._is_open: dict[str, bool] = {}
        self._gone: set[str] = set()
        self._noted: tuple[int, set[str]] = (0, set())  # of that day
        self._writing = ThreadPoolExecutor(1, "notices")
        self._trouble = Outage()

    def __call__(self, fact: Fact) -> None:
        """Remember what a fact says, if it says anything of this."""
        match fact:
            case facts.Attempted():
                if fact.status == _GONE:
                    self._remember_gone(fact.endpoint_id)
            case facts.BreakerOpened(endpoint_id=endpoint_id):
                self._remember(endpoint_id, is_open=True)
            case facts.BreakerClosed(endpoint_id=endpoint_id) | facts.BreakerReset(endpoint_id=endpoint_id):
                self._remember(endpoint_id, is_open=False)
            case _:
                pass

    def settle(self) -> None:
        """Wait until what was heard so far is written, or could not be."""
        self._writing.submit(lambda: None).result()

    def _remember_gone(self, endpoint_id: str) -> None:
        today = int(time.time()) // _DAY_S
        with self._lock:
            day, noted = self._noted
            if day != today:
                noted = set()
                self._noted = today, noted
            if endpoint_id in noted or len(noted) >= _MOST:
                return  # the ledger has it, of this day
            noted.add(endpoint_id)
            self._gone.add(endpoint_id)
        self._writing.submit(self._write)

    def _remember(self, endpoint_id: str, *, is_open: bool) -> None:
        with self._lock:
            if len(self._is_open) < _MOST:
                self._is_open[endpoint_id] = is_open  # the latest counts
        self._writing.submit(self._write)

    def _write(self) -> None:
        with self._lock:
            is_open, self._is_open = self._is_open, {}
            gone, self._gone = self._gone, set()
        if not is_open and not gone:
            return  # another call has written them
        try:
            self._write_down(is_open, sorted(gone))
        except Exception as error:  # nobody looks at what this thread raises
            with self._lock:
                self._noted[1].difference_update(gone)
            if self._trouble.failed():
                self._observers().tell(NoticesStopped(str(error)))
        else:
            self._trouble.worked()

    def _write_down(self, is_open: dict[str, bool], gone: list[str]) -> None:
        database = self._database()
        noticing = Noticing(database)
        with database.within(_PATIENCE):
            if opened := {endpoint_id: None for endpoint_id, opened in is_open.items() if opened}:
                noticing.opened(opened)
            if closed := [endpoint_id for endpoint_id, opened in is_open.items() if not opened]:
                noticing.closed(closed)
            if gone:
                noticing.gone(gone)
