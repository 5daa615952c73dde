r"""A merchant for tests: a real HTTPS server on raw sockets that answers from a script, politely or not.

    ca = TestCA(tmp_path)                        # ca.pem is what WEBHOOKS_CA_BUNDLE points to
    with Merchant(ca) as merchant:
        merchant.answers(503, 503, 200)          # a queue; the last one repeats
        ...send to merchant.url()...             # https://localhost:PORT/hook
        merchant.wait_for(3)                     # waits for the condition, never sleeps
        assert merchant.requests[0].body == b"..."

`answer_with(lambda request: ...)` decides per request (path, `request.webhook_id`, count ...). An answer is a
status, a `Reply`, or `Reply.raw(*steps)` whose steps are bytes to write, `Drip`, `Stall`, `Reset` and `Close`:

    Reply.raw(b"HTTP/1.1 200 OK\r\n", Drip(b"X-More: yes\r\n", every=0.05, forever=True))

`greets(...)` plays such steps on every new connection before TLS, or after TLS and before the request is read.
`Merchant(None)` speaks plain HTTP. Connections are kept alive unless a reply closes them. Leaving the `with` block
ends every thread, and raises what an `answer_with` callable raised.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, BinaryIO, Self, cast

import trustme

from tests.merchant_script import (
    Answered,
    Close,
    Drip,
    Line,
    Reply,
    Request,
    Reset,
    Stall,
    Step,
    gzip_bomb,
    read_request,
)

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

__all__ = ["NAMES", "Close", "Drip", "Merchant", "Reply", "Request", "Reset", "Stall", "Step", "TestCA", "gzip_bomb"]

NAMES = ("localhost", "127.0.0.1", "::1", "*.merchant.test")


class TestCA:
    """A certificate authority of our own; make one per test session, its key is not worth making often."""

    __test__ = False

    def __init__(self, directory: Path) -> None:
        self._ca = trustme.CA()
        self.pem = directory / "test-ca.pem"
        self._ca.cert_pem.write_to_path(str(self.pem))
        self._contexts: dict[tuple[str, ...], ssl.SSLContext] = {}

    def context(self, *names: str, expired: bool = False) -> ssl.SSLContext:
        """Return a server's TLS context with a certificate for these names."""
        key = (*names, str(expired))
        if key not in self._contexts:
            not_after = datetime(2020, 1, 2, tzinfo=UTC) if expired else None
            leaf = self._ca.issue_cert(*names, not_before=datetime(2020, 1, 1, tzinfo=UTC), not_after=not_after)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            leaf.configure_cert(context)
            self._contexts[key] = context
        return self._contexts[key]


class Merchant:
    """See the module's text. `names` are the certificate's; `expired` dates it to 2020."""

    def __init__(
        self,
        ca: TestCA | None,
        *,
        names: Sequence[str] = NAMES,
        expired: bool = False,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self._tls = ca.context(*names, expired=expired) if ca else None
        self._changed = threading.Condition()
        self._requests: list[Request] = []
        self._queue: deque[Answered] = deque([200])
        self._decide: Callable[[Request], Answered] | None = None
        self._greeting: tuple[Sequence[Step], Sequence[Step]] = ((), ())
        self._stopping = threading.Event()
        self._lines: dict[int, tuple[Line, threading.Thread]] = {}
        self._accepted = 0
        self._errors: list[Exception] = []
        self._listener = socket.create_server((host, port), backlog=512)
        self.port: int = self._listener.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, name=f"merchant-{self.port}", daemon=True)
        self._accepting.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
        if error is None and self._errors:
            raise self._errors[0]

    def url(self, path: str = "/hook", *, host: str = "localhost") -> str:
        """Return this merchant's address."""
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}{path}"

    def answers(self, *replies: Answered) -> None:
        """Answer the next requests with these, one each, and from then on with the last."""
        with self._changed:
            self._decide = None
            self._queue = deque(replies or (200,))

    def answer_with(self, decide: Callable[[Request], Answered]) -> None:
        """Let `decide` answer every request; it runs in the connection's thread."""
        with self._changed:
            self._decide = decide

    def greets(self, *, before_tls: Sequence[Step] = (), before_request: Sequence[Step] = ()) -> None:
        """Play steps on every new connection: before TLS, or after it without reading the request."""
        with self._changed:
            self._greeting = (before_tls, before_request)

    @property
    def requests(self) -> list[Request]:
        """The requests read completely so far, in their order, before they were answered."""
        with self._changed:
            return list(self._requests)

    @property
    def connections(self) -> int:
        """How many connections were accepted so far."""
        with self._changed:
            return self._accepted

    def requests_of(self, webhook_id: str) -> list[Request]:
        """Return the requests of one delivery, in their order."""
        return [request for request in self.requests if request.webhook_id == webhook_id]

    def forget(self) -> None:
        """Forget the requests seen so far."""
        with self._changed:
            self._requests.clear()

    def wait_for(self, count: int, *, timeout: float = 30.0) -> list[Request]:
        """Wait until at least `count` requests have come and return them."""
        return self.wait_until(lambda requests: len(requests) >= count, timeout=timeout, what=f"{count} requests")

    def wait_until(
        self, holds: Callable[[list[Request]], bool], *, timeout: float = 30.0, what: str = "the condition"
    ) -> list[Request]:
        """Wait until `holds(requests)` and return them; `AssertionError` after `timeout` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: holds(self._requests), timeout):
                raise AssertionError(f"{what} not met in {timeout} s: {len(self._requests)} requests came")
            return list(self._requests)

    def wait_until_idle(self, *, timeout: float = 30.0) -> None:
        """Wait until no connection is open."""
        with self._changed:
            if not self._changed.wait_for(lambda: not self._lines, timeout):
                raise AssertionError(f"{len(self._lines)} connections still open after {timeout} s")

    def drop_connections(self) -> None:
        """Close every open connection, as an idle timeout of the merchant's server would."""
        with self._changed:
            for line, _ in self._lines.values():
                line.hang_up()
        self.wait_until_idle()

    def close(self) -> None:
        """Stop, and wait for every thread to end."""
        self._stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()
        with self._changed:
            open_lines = list(self._lines.values())
        for line, _ in open_lines:
            line.hang_up()
        deadline = time.monotonic() + 10
        for _, thread in open_lines:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                raise AssertionError(f"{thread.name} did not end")

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while not self._stopping.is_set():
                sock, _ = self._listener.accept()
                self._start(sock)

    def _start(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._changed:
            self._accepted += 1
            line = Line(self._accepted, sock)
            name = f"merchant-{self.port}-{line.number}"
            thread = threading.Thread(target=self._serve, args=(line,), name=name, daemon=True)
            self._lines[line.number] = (line, thread)
        thread.start()

    def _serve(self, line: Line) -> None:
        try:
            self._talk(line)
        except OSError:
            pass  # The sender went away or we are being closed: every test does that.
        except Exception as error:
            self._errors.append(error)
        finally:
            line.close()
            with self._changed:
                del self._lines[line.number]
                self._changed.notify_all()

    def _talk(self, line: Line) -> None:
        before_tls, before_request = self._greeting
        if not line.play(before_tls):
            return
        if self._tls:
            secured = self._tls.wrap_socket(line.sock, server_side=True, do_handshake_on_connect=False)
            line.sock = secured
            secured.do_handshake()
        if not line.play(before_request):
            return
        line.reader = cast("BinaryIO", line.sock.makefile("rb"))
        while (request := read_request(line.reader, line.number)) is not None:
            reply = self._record(request)
            if not line.play(reply.script()):
                return

    def _record(self, request: Request) -> Reply:
        with self._changed:
            self._requests.append(request)
            self._changed.notify_all()
            decide = self._decide
            answered = self._queue[0] if len(self._queue) == 1 else self._queue.popleft()
        if decide is not None:
            answered = decide(request)
        return Reply(status=answered) if isinstance(answered, int) else answered
