"""Messages of which this ledger has never heard: another deployment puts them into the same Redis."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta

from webhooks.observing.observers import Observers
from webhooks.observing.surroundings import StrangersMet


class Strangers:
    """Says that there are such messages, once a minute however many come; shared by threads."""

    def __init__(
        self,
        observers: Observers,
        pause: timedelta = timedelta(minutes=1),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._observers = observers
        self._pause_s = pause.total_seconds()
        self._clock = clock
        self._lock = threading.Lock()
        self._unsaid = 0
        self._silent_until_s = float("-inf")

    def met(self, delivery_id: str) -> None:
        """Note one more."""
        with self._lock:
            self._unsaid += 1
            now_s = self._clock()
            if now_s < self._silent_until_s:
                return
            number, self._unsaid, self._silent_until_s = self._unsaid, 0, now_s + self._pause_s
        self._observers.tell(StrangersMet(number, delivery_id))
