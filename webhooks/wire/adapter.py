"""The adapter below what requests has prepared: one guarded, bounded exchange, on a kept connection or a fresh one.

It stands in place of `requests.adapters.HTTPAdapter` and all below it: that would resolve names by itself, bound single
reads instead of the whole, wrap every error three times and write URLs into debug logs. There is no session of requests
above it either: redirects, cookies and what the surroundings suggest are what must not happen here.
"""

from __future__ import annotations

import contextlib
import http.client
from datetime import timedelta

from webhooks.wire.answer import StrictResponse, Unanswered
from webhooks.wire.connection import Connection, IdleConnections
from webhooks.wire.deadline import Deadline, Phase
from webhooks.wire.dialing import Dialer
from webhooks.wire.prepared import Prepared

KEPT_BODY = 2 * 1024
"""Bytes of a body that are kept for the log; the rest is read only to keep the connection."""

OF_THE_CONNECTION = frozenset({408, 421, 425})
"""What a server says of a connection that it gives up; on a kept one it says nothing about the request (rules)."""


class Stale(http.client.HTTPException):
    """A kept connection was answered with one of `OF_THE_CONNECTION`."""

    def __init__(self, status: int) -> None:
        super().__init__()
        self.status = status


class GuardedAdapter:
    """Sends for many threads at once. A body has `body_time` to end after the headers, for the connection's sake."""

    def __init__(self, dialer: Dialer, idle: IdleConnections, body_time: timedelta) -> None:
        self._dialer = dialer
        self._idle = idle
        self._body_time = body_time

    def send(self, prepared: Prepared, head: bytes, body: bytes, deadline: Deadline) -> tuple[StrictResponse, bytes]:
        """Send, and return the answer and at most `KEPT_BODY` of its body, raw; raises what the layers below raise.

        Afterwards `deadline.stale_status` is what a kept connection answered first.
        """
        kept = self._idle.take(prepared.key)
        if kept is not None:
            try:
                return self._exchange(kept, head, body, deadline, reused=True)
            except Unanswered:
                # It was closed under us while idle: nothing came back, so once more, on a fresh connection. Or we have
                # closed it, at the deadline, and this raises what that is.
                deadline.remaining()
            except Stale as stale:
                # The same, from a server that says goodbye. It is an answer, so something of the request was read.
                deadline.stale_status = stale.status
                deadline.sent = 1
        fresh = self._dialer.open(prepared.target, deadline)
        return self._exchange(fresh, head, body, deadline, reused=False)

    def _exchange(
        self, connection: Connection, head: bytes, body: bytes, deadline: Deadline, *, reused: bool
    ) -> tuple[StrictResponse, bytes]:
        reusable = False
        try:
            connection.vigil.begin(deadline.at)
            answer = connection.exchange(head, body, deadline)
            if reused and answer.status in OF_THE_CONNECTION:
                raise Stale(answer.status)
            beginning = self._read_body(connection, answer, deadline)
            reusable = answer.reusable
            if not reused:
                self._dialer.sessions.keep(connection)
        finally:
            connection.vigil.rest()
            if reusable:
                self._idle.give(connection)
            else:
                connection.close()
        return answer, beginning

    def _read_body(self, connection: Connection, answer: StrictResponse, deadline: Deadline) -> bytes:
        """Return the beginning of the body. The answer has been given: what goes wrong from here on changes nothing."""
        beginning = b""

        def hasten() -> None:
            deadline.hasten(self._body_time)
            connection.vigil.begin(deadline.at)
            connection.sock.settimeout(deadline.remaining())

        with contextlib.suppress(Exception):
            deadline.enter(Phase.BODY)
            for piece in answer.pieces(hasten):
                beginning += piece[: KEPT_BODY - len(beginning)]
                deadline.remaining()
        return beginning
