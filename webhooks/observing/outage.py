"""Going on while something is away: it is said once, and trying again costs one caller a second, not everybody."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta

PAUSE = timedelta(seconds=1)
"""How long those who find something away leave it alone."""


class Outage:
    """Remembers whether something is away; shared by threads."""

    def __init__(self, pause: timedelta = PAUSE, clock: Callable[[], float] = time.monotonic) -> None:
        self._pause_s = pause.total_seconds()
        self._clock = clock
        self._lock = threading.Lock()
        self._away = False
        self._next_try_s = 0.0

    def may_try(self) -> bool:
        """Whether to try now: always while all is well, and one caller for each pause during an outage."""
        if not self._away:
            return True
        with self._lock:
            now_s = self._clock()
            if now_s < self._next_try_s:
                return False
            self._next_try_s = now_s + self._pause_s
            return True

    def failed(self) -> bool:
        """Note a failure. Returns whether an outage begins with it."""
        with self._lock:
            begins, self._away = not self._away, True
            self._next_try_s = self._clock() + self._pause_s
            return begins

    def worked(self) -> bool:
        """Note a success. Returns whether an outage ends with it."""
        if not self._away:
            return False
        with self._lock:
            ends, self._away = self._away, False
            return ends
