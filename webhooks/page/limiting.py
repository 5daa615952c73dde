"""Logins that fail are few: who guesses passwords has to wait."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from ipaddress import IPv6Address, ip_address, ip_network

WINDOW = timedelta(minutes=5)
MOST_OF_ADDRESS = 10  # failed logins in the window
MOST_OF_NAME = 50  # from anywhere: more than a person mistypes, so that nobody is locked out by a few strangers
_MOST_KEYS = 10_000


class Failures:
    """How often logins have failed of late, by address and by name; in this process's memory."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._of: dict[str, deque[float]] = {}

    def wait(self, address: str, name: str) -> timedelta:
        """Return how long a login must wait; nothing where it may be tried now."""
        with self._lock:
            return max(self._wait(key, most) for key, most in _keys(address, name))

    def note(self, address: str, name: str) -> None:
        """Remember a login that failed."""
        with self._lock:
            for key, _ in _keys(address, name):
                if key not in self._of and len(self._of) >= _MOST_KEYS:
                    self._of.pop(next(iter(self._of)))  # the oldest: memory is bounded, whoever asks
                self._of.setdefault(key, deque(maxlen=MOST_OF_NAME)).append(self._clock())

    def _wait(self, key: str, most: int) -> timedelta:
        times = self._of.get(key)
        now, span = self._clock(), WINDOW.total_seconds()
        while times and times[0] <= now - span:
            times.popleft()
        if not times:
            self._of.pop(key, None)
            return timedelta()
        return timedelta(seconds=times[-most] + span - now) if len(times) >= most else timedelta()


def _keys(address: str, name: str) -> list[tuple[str, int]]:
    return [(f"from {_network(address)}", MOST_OF_ADDRESS), (f"as {name[:100]}", MOST_OF_NAME)]


def _network(address: str) -> str:
    """Return what counts as one who asks: of IPv6, everybody has a /64."""
    try:
        read = ip_address(address)
    except ValueError:
        return address[:100]
    return str(ip_network(f"{read}/64", strict=False)) if isinstance(read, IPv6Address) else address
