"""One connection to one checked address, and the idle ones kept for the next delivery to the same host."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import cast

import urllib3.connection

from webhooks.wire.answer import StrictResponse
from webhooks.wire.deadline import Deadline, Phase

Key = tuple[str, str, int]
"""Scheme, host and port: what an idle connection may be reused for."""


class Connection(urllib3.connection.HTTPConnection):
    """A connection that was opened for it and that it never opens again by itself."""

    auto_open = 0
    response_class = StrictResponse

    def __init__(self, key: Key, sock: socket.socket) -> None:
        super().__init__(key[1], key[2])
        self.key = key
        self.sock = sock
        self.opened_at = self.used_at = time.monotonic()

    def exchange(self, path: str, headers: Mapping[str, str], body: bytes, deadline: Deadline) -> StrictResponse:
        """Send one request and return its answer with the body unread; `deadline` counts it once its last byte is out.

        `path` goes out as it is. urllib3's own `getresponse` is passed over: it logs the URL with its query when a
        header looks odd.
        """
        self.timeout = deadline.enter(Phase.SENDING)
        # A server may answer before it has read everything, and close: what it said may still be readable.
        with contextlib.suppress(ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError):
            self.request("POST", path, body=body, headers=headers)
            deadline.sent += 1
        self.sock.settimeout(deadline.enter(Phase.HEADERS))
        return cast("StrictResponse", http.client.HTTPConnection.getresponse(self))

    def close(self) -> None:
        """Close, without a word about what goes wrong with that: no answer is lost over it."""
        with contextlib.suppress(OSError):
            super().close()

    @property
    def is_quiet(self) -> bool:
        """Whether it is open and nothing waits to be read: no end of the stream, no answer to a question not asked."""
        pending = self.sock.pending() if isinstance(self.sock, ssl.SSLSocket) else 0
        return self.is_connected and not pending


class IdleConnections:
    """Kept-alive connections of all threads, each handed to one thread at a time.

    At most `total` in all and `per_host` to one host (the longest idle is closed first), none idle for longer than
    `idle` or older than `age`: a name that moves is looked up again in time.
    """

    def __init__(self, *, total: int, per_host: int, idle: timedelta, age: timedelta) -> None:
        self._total = total
        self._per_host = per_host
        self._idle_s = idle.total_seconds()
        self._age_s = age.total_seconds()
        self._lock = threading.Lock()
        self._kept: list[Connection] = []  # the longest idle first
        self._closed = False

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, key: Key) -> Connection | None:
        """Return a connection that looks alive, if there is one."""
        while (connection := self._pop(key)) is not None:
            if connection.is_quiet:
                return connection
            connection.close()
        return None

    def give(self, connection: Connection) -> None:
        """Keep a connection whose last answer was read to its end."""
        connection.used_at = time.monotonic()
        with self._lock:
            self._kept.append(connection)
            dropped = self._excess()
        for each in dropped:
            each.close()

    def close(self) -> None:
        """Close all, and whatever is given back later."""
        with self._lock:
            self._closed = True
            dropped = self._excess()
        for each in dropped:
            each.close()

    def _pop(self, key: Key) -> Connection | None:
        with self._lock:
            dropped = self._excess()
            found = next((kept for kept in reversed(self._kept) if kept.key == key), None)
            if found is not None:
                self._kept.remove(found)
        for each in dropped:
            each.close()
        return found

    def _excess(self) -> list[Connection]:
        """Take out what must not be kept and return it, to be closed outside the lock."""
        now = time.monotonic()
        seen: Counter[Key] = Counter()
        kept: list[Connection] = []
        dropped: list[Connection] = []
        for each in reversed(self._kept):
            fresh = now - each.used_at < self._idle_s and now - each.opened_at < self._age_s
            fits = len(kept) < self._total and seen[each.key] < self._per_host
            keep = fresh and fits and not self._closed
            (kept if keep else dropped).append(each)
            seen[each.key] += keep
        self._kept = kept[::-1]
        return dropped
