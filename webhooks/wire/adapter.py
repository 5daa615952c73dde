"""The adapter that requests sends through: one guarded, bounded exchange, on a kept connection or a fresh one.

It replaces `requests.adapters.HTTPAdapter` and all below it: that would resolve names by itself, bound single reads
instead of the whole, wrap every error three times and write URLs into debug logs.
"""

from __future__ import annotations

import contextlib
import http.client
import io
from typing import Any, cast

import requests
from requests.adapters import BaseAdapter
from requests.structures import CaseInsensitiveDict

from webhooks.wire.addresses import Target, check_url
from webhooks.wire.answer import StrictResponse, Unanswered
from webhooks.wire.connection import Connection, IdleConnections
from webhooks.wire.deadline import Deadline, Phase
from webhooks.wire.dialing import Dialer, key_of

KEPT_BODY = 2 * 1024
"""Bytes of a body that are kept for the log; the rest is read only to keep the connection."""

OF_THE_CONNECTION = frozenset({408, 421, 425})
"""What a server says of a connection that it gives up; on a kept one it says nothing about the request (rules)."""


class Stale(http.client.HTTPException):
    """A kept connection was answered with one of `OF_THE_CONNECTION`."""

    def __init__(self, status: int) -> None:
        super().__init__()
        self.status = status


class GuardedAdapter(BaseAdapter):
    """Sends for one thread at a time, within `deadline`, which is set anew before each request."""

    def __init__(self, dialer: Dialer, idle: IdleConnections, deadline: Deadline, *, allow_http: bool) -> None:
        super().__init__()
        self._dialer = dialer
        self._idle = idle
        self._allow_http = allow_http
        self.deadline = deadline
        self.stale_status: int | None = None

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:  # noqa: ARG002
        """Send and return the answer with at most `KEPT_BODY` of its body, raw; raises what the layers below raise.

        The arguments of requests (`timeout`, `verify`, `proxies` ...) are not looked at: the dialer's rules hold. Path
        and query go out as `request.url` has them. Afterwards `stale_status` is what a kept connection answered first.
        """
        self.stale_status = None
        target = check_url(request.url or "", allow_http=self._allow_http)
        kept = self._idle.take(key_of(target))
        if kept is not None:
            try:
                return self._exchange(kept, target, request, self.deadline, reused=True)
            except Unanswered:
                # It was closed under us while idle. Nothing came back, so once more, on a fresh connection.
                pass
            except Stale as stale:
                # The same, from a server that says goodbye. It is an answer, so something of the request was read.
                self.stale_status = stale.status
                self.deadline.sent = 1
        fresh = self._dialer.open(target, self.deadline)
        return self._exchange(fresh, target, request, self.deadline, reused=False)

    def close(self) -> None:
        """Do nothing: the connections belong to all threads' adapters."""

    def _exchange(
        self,
        connection: Connection,
        target: Target,
        request: requests.PreparedRequest,
        deadline: Deadline,
        *,
        reused: bool,
    ) -> requests.Response:
        headers = {str(name): str(value) for name, value in request.headers.items()} | {"Host": target.host_header}
        body = cast("bytes | None", request.body) or b""
        reusable = False
        try:
            with self._dialer.watchdog.watch(connection.sock, deadline):
                answer = connection.exchange(target.path, headers, body, deadline)
                if reused and answer.status in OF_THE_CONNECTION:
                    raise Stale(answer.status)
                beginning = _read_body(answer, deadline)
                reusable = answer.reusable
        finally:
            if reusable:
                self._idle.give(connection)
            else:
                connection.close()
        return _response(request, answer, beginning)


def _read_body(answer: StrictResponse, deadline: Deadline) -> bytes:
    """Return the beginning of the body. The answer has been given: whatever goes wrong from here on changes nothing."""
    beginning = b""
    with contextlib.suppress(Exception):
        deadline.enter(Phase.BODY)
        for piece in answer.pieces():
            beginning += piece[: KEPT_BODY - len(beginning)]
            deadline.remaining()
    return beginning


def _response(request: requests.PreparedRequest, answer: StrictResponse, beginning: bytes) -> requests.Response:
    response = requests.Response()
    response.status_code = answer.status
    response.headers = CaseInsensitiveDict(answer.headers)
    response.raw = io.BytesIO(beginning)
    response.url = request.url or ""
    response.request = request
    return response
