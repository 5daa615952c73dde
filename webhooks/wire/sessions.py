"""TLS sessions that a next connection to the same host resumes, for half a handshake instead of a whole one.

A resumed handshake looks at no certificate: it shows that the other end holds the keys of a session which began with a
certificate that was checked. So a session is for the host and port that it began with, and for an hour at most from
that check on, however often it is resumed and renewed, and never past the end of the certificate.
"""

from __future__ import annotations

import contextlib
import ssl
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from datetime import timedelta

from webhooks.wire.connection import Connection, Key


@dataclass(frozen=True, slots=True)
class Resumable:
    """A session, and until when it may be resumed, by `time.monotonic()`; or none, for a host that would not have it.

    Taking a session out of a connection costs as much as it saves once. So one is taken where a whole handshake was
    made, and offered many times; a host that refuses it is not asked again for a while.
    """

    session: ssl.SSLSession | None
    until: float


class Sessions:
    """The last session with each host, for all threads of one TLS context: at most so many, the latest used stay."""

    def __init__(self, *, most: int, longest: timedelta) -> None:
        self._most = most
        self._longest_s = longest.total_seconds()
        self._lock = threading.Lock()
        self._last: OrderedDict[Key, Resumable] = OrderedDict()

    def offer(self, key: Key) -> ssl.SSLSession | None:
        """Return what a new connection to this host may resume."""
        with self._lock:
            last = self._last.get(key)
            if last is None:
                return None
            if time.monotonic() >= last.until:
                del self._last[key]
                return None
            self._last.move_to_end(key)
            return last.session

    def forget(self, key: Key) -> None:
        """Have the next handshake with this host be a whole one."""
        with self._lock:
            self._last.pop(key, None)

    def keep(self, connection: Connection) -> None:
        """Keep the session of a new connection that has been answered: TLS 1.3 brings it after the handshake."""
        sock = connection.sock
        if isinstance(sock, ssl.SSLSocket) and not sock.session_reused and not self._has_refused(connection.key):
            with contextlib.suppress(Exception):  # no answer is lost over this
                self._put(connection.key, _resumable(sock, connection, self._longest_s))

    def _has_refused(self, key: Key) -> bool:
        with self._lock:
            last = self._last.get(key)
            return last is not None and last.session is None and time.monotonic() < last.until

    def _put(self, key: Key, last: Resumable) -> None:
        with self._lock:
            self._last[key] = last
            self._last.move_to_end(key)
            if len(self._last) > self._most:
                self._last.popitem(last=False)


def _resumable(sock: ssl.SSLSocket, connection: Connection, longest_s: float) -> Resumable:
    session = None if connection.offered else sock.session
    if session is None or not (session.has_ticket or session.id):
        return Resumable(None, connection.opened_at + longest_s)
    lasts = session.ticket_lifetime_hint if session.has_ticket else session.timeout
    ends = ssl.cert_time_to_seconds(str((sock.getpeercert() or {})["notAfter"]))
    return Resumable(session, connection.opened_at + min(longest_s, ends - time.time(), lasts))
