"""The demo's merchants: real HTTPS servers that verify each signature and answer by their character."""

from __future__ import annotations

import ssl
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from webhooks.demo.cast import Answering
from webhooks.signing import verify


@dataclass(frozen=True, slots=True)
class Visit:
    """One POST as a merchant saw it; `at` is seconds of the monotonic clock."""

    webhook_id: str
    attempt: int
    at: float
    status: int
    verified: bool
    body: bytes


class DemoMerchant:
    """An HTTPS server on a free port of the loopback that answers as `answer` says; see `cast.Role`."""

    def __init__(self, tls: ssl.SSLContext, secret: str, answer: Answering) -> None:
        self.visits: list[Visit] = []
        self.secret = secret
        self._answer = answer
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        """The address to register."""
        return f"https://localhost:{self._server.server_address[1]}/webhooks"

    def visits_of(self, webhook_id: str) -> list[Visit]:
        """Return the POSTs of one delivery, in order."""
        with self._lock:
            return [visit for visit in self.visits if visit.webhook_id == webhook_id]

    def _receive(self, request: BaseHTTPRequestHandler) -> int:
        body = request.rfile.read(int(request.headers["Content-Length"]))
        webhook_id = request.headers["X-Webhook-Id"]
        verified = verify(
            self.secret,
            timestamp=request.headers["X-Webhook-Timestamp"],
            signature=request.headers["X-Webhook-Signature"],
            body=body,
        )
        with self._lock:
            earlier = sum(visit.webhook_id == webhook_id for visit in self.visits)
            status = self._answer(earlier + 1, len(self.visits) + 1)
            attempt = int(request.headers["X-Webhook-Attempt"])
            self.visits.append(Visit(webhook_id, attempt, time.monotonic(), status, verified, body))
        return status

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receive = self._receive

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.send_response(receive(self))
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Say nothing: the demo prints its own table."""

        return Handler

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
