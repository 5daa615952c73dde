"""One deadline over everything an attempt does; the watchdog enforces it on sockets."""

from __future__ import annotations

import time
from datetime import timedelta
from enum import StrEnum


class Phase(StrEnum):
    """Where an attempt is, in the words of its recorded cause (`timeout: headers`)."""

    DNS = "dns"
    CONNECT = "connect"
    TLS = "tls"
    SENDING = "sending"
    HEADERS = "headers"
    BODY = "body"


class Deadline:
    """The end of one attempt, the phase it has reached, and how many requests have gone out whole by now.

    Once one has, the merchant may have it, whatever happens to this machine from there on (I4). `stale_status` is what
    a kept connection answered before the request went out again on a fresh one.
    """

    def __init__(self, length: timedelta) -> None:
        self.at = time.monotonic() + length.total_seconds()
        self.phase = Phase.DNS
        self.sent = 0
        self.stale_status: int | None = None

    @property
    def passed(self) -> bool:
        """Whether the attempt has no time left."""
        return time.monotonic() >= self.at

    def enter(self, phase: Phase) -> float:
        """Begin a phase and return the seconds left; `TimeoutError`, still in the old one, when there are none."""
        left = self.remaining()
        self.phase = phase
        return left

    def hasten(self, length: timedelta) -> None:
        """Have no more time left than this."""
        self.at = min(self.at, time.monotonic() + length.total_seconds())

    def remaining(self) -> float:
        """Return the seconds left, above zero; `TimeoutError` when there are none."""
        left = self.at - time.monotonic()
        if left <= 0:
            raise TimeoutError("the deadline has passed")
        return left
