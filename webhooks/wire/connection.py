"""One connection to one checked address, and the idle ones kept for the next delivery to the same host."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from datetime import timedelta

from urllib3.util import wait_for_read

from webhooks.process.watchdog import Vigil
from webhooks.wire.answer import BREAKS, StrictResponse
from webhooks.wire.deadline import Deadline, Phase

Key = tuple[str, str, int]
"""Scheme, host and port: what an idle connection may be reused for."""


IN_ONE_PIECE = 16 * 1024
"""Bytes of a request that leave in one piece; the head of a larger one leaves before its body."""


class Connection:
    """An open connection to one host, for one request after another.

    `vigil` is the watch over it, at rest between exchanges; `offered` is whether it was to resume a TLS session.
    """

    def __init__(self, key: Key, sock: socket.socket, vigil: Vigil, *, offered: bool = False) -> None:
        self.key = key
        self.sock = sock
        self.vigil = vigil
        self.offered = offered
        self.opened_at = self.used_at = time.monotonic()

    def exchange(self, head: bytes, body: bytes, deadline: Deadline) -> StrictResponse:
        """Send one request and return its answer with the body unread; `deadline` counts it once its last byte is out.

        `head` is everything up to the blank line, and goes out as it is.
        """
        self.sock.settimeout(deadline.enter(Phase.SENDING))
        # A server may answer before it has read everything, and close: what it said may still be readable.
        with contextlib.suppress(*BREAKS):
            for part in (head + body,) if len(head) + len(body) <= IN_ONE_PIECE else (head, body):
                self.send(part)
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


class IdleConnections:
    """Kept-alive connections of all threads, each handed to one thread at a time.

    At most `total` in all and `per_host` to one host (the longest idle is closed first), none used again that was idle
    for longer than `idle` or is older than `age`: a name that moves is looked up again in time. What has been idle for
    too long is closed when another one is given or taken.
    """

    def __init__(self, *, total: int, per_host: int, idle: timedelta, age: timedelta) -> None:
        self._total = total
        self._per_host = per_host
        self._idle_s = idle.total_seconds()
        self._age_s = age.total_seconds()
        self._lock = threading.Lock()
        self._kept: OrderedDict[Connection, None] = OrderedDict()  # the longest idle first
        self._of: dict[Key, list[Connection]] = {}  # the same ones by host, the longest idle first
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
        now = connection.used_at = time.monotonic()
        with self._lock:
            self._kept[connection] = None
            of_host = self._of.setdefault(connection.key, [])
            of_host.append(connection)
            dropped = [of_host[0]] if len(of_host) > self._per_host else []
            dropped += [] if self._is_fresh(connection, now) else [connection]
            for each in dropped:
                self._remove(each)
            dropped += self._excess(now)
        _close_all(dropped)

    def close(self) -> None:
        """Close all, and whatever is given back later."""
        with self._lock:
            self._closed = True
            dropped = self._excess(time.monotonic())
        _close_all(dropped)

    def _pop(self, key: Key) -> Connection | None:
        """Take out the one of this host that was used last: it is the likeliest to be open."""
        now = time.monotonic()
        with self._lock:
            dropped = self._excess(now)
            found = None
            while found is None and (of_host := self._of.get(key)):
                found = of_host[-1]
                self._remove(found)
                if not self._is_fresh(found, now):
                    dropped.append(found)
                    found = None
        _close_all(dropped)
        return found

    def _excess(self, now: float) -> list[Connection]:
        """Take out, beginning with the longest idle, what must not be kept; it is to be closed outside the lock."""
        dropped: list[Connection] = []
        while self._kept:
            oldest = next(iter(self._kept))
            if not self._closed and len(self._kept) <= self._total and self._is_fresh(oldest, now):
                break
            self._remove(oldest)
            dropped.append(oldest)
        return dropped

    def _is_fresh(self, connection: Connection, now: float) -> bool:
        return now - connection.used_at < self._idle_s and now - connection.opened_at < self._age_s

    def _remove(self, connection: Connection) -> None:
        if connection in self._kept:
            del self._kept[connection]
            of_host = self._of[connection.key]
            of_host.remove(connection)
            if not of_host:
                del self._of[connection.key]


def _close_all(connections: Iterable[Connection]) -> None:
    for each in connections:
        each.close()
