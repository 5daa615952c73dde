"""Messages of which this ledger has never heard: another deployment puts them into the same Redis."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta

log = logging.getLogger(__name__)


class Strangers:
    """Says that there are such messages, in one line a minute however many come; shared by threads."""

    def __init__(self, pause: timedelta = timedelta(minutes=1), clock: Callable[[], float] = time.monotonic) -> None:
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
        log.warning(
            "message.unknown: %d of deliveries that are not in this ledger, %s the latest; does another deployment use "
            "this Redis? Give each a WEBHOOKS_NAMESPACE of its own",
            number,
            delivery_id,
        )
