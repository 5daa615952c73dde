"""One connection to one checked address, and the idle ones kept for the next delivery to the same host."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta

from urllib3.util import wait_for_read

from webhooks.errors import LocalFault
from webhooks.wire.answer import BREAKS, StrictResponse
from webhooks.wire.deadline import Deadline, Phase

Key = tuple[str, str, int]
"""Scheme, host and port: what an idle connection may be reused for."""


class Connection:
    """An open connection to one host, for one request after another."""

    def __init__(self, key: Key, sock: socket.socket) -> None:
        self.key = key
        self.sock = sock
        self.opened_at = self.used_at = time.monotonic()

    def exchange(self, path: str, headers: Mapping[str, str], body: bytes, deadline: Deadline) -> StrictResponse:
        """Send one request and return its answer with the body unread; `deadline` counts it once its last byte is out.

        `path` and `headers` go out as they are; LocalFault where one would break the line.
        """
        head = _head(path, headers)
        self.sock.settimeout(deadline.enter(Phase.SENDING))
        # A server may answer before it has read everything, and close: what it said may still be readable.
        with contextlib.suppress(*BREAKS):
            self.send(head)
            self.send(body)
            deadline.sent += 1
        self.sock.settimeout(deadline.enter(Phase.HEADERS))
        answer = StrictResponse(self.sock.recv)
        answer.begin()
        return answer

    def send(self, data: bytes) -> None:
        """Send all of it."""
        self.sock.sendall(data)

    def close(self) -> None:
        """Close, without a word about what goes wrong with that: no answer is lost over it."""
        with contextlib.suppress(OSError):
            self.sock.close()

    @property
    def is_quiet(self) -> bool:
        """Whether it is open and nothing waits to be read: no end of the stream, no answer to a question not asked."""
        pending = self.sock.pending() if isinstance(self.sock, ssl.SSLSocket) else 0
        return not pending and not wait_for_read(self.sock, timeout=0)


def _head(path: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    if any("\r" in line or "\n" in line for line in lines):
        raise LocalFault("request: could not be made (a line break in a header)")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


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
