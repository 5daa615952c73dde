"""Who waits for somebody else's answer, and for how long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Waits:
    """The waits of a process's threads."""

    def __init__(self) -> None:
        self._since_s: dict[object, float] = {}

    @contextmanager
    def one(self) -> Iterator[None]:
        """Wait, for as long as the block lasts."""
        wait = object()
        self._since_s[wait] = time.monotonic()
        try:
            yield
        finally:
            del self._since_s[wait]

    def longer_than(self, seconds: float) -> int:
        """Return how many have waited for longer."""
        until_s = time.monotonic() - seconds
        return sum(since_s < until_s for since_s in list(self._since_s.values()))
