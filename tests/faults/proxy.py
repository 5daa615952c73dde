"""A TCP proxy in front of Redis, whose connections can be cut like a network does."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

_Relay = Callable[[socket.socket, socket.socket], None]


class Proxy:
    """Passes bytes between its own port and another on the loopback; leaving the `with` block ends every thread."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closed = False
        self._refuses = False
        self.refused = 0
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self._listener.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, name="proxy", daemon=True)

    @property
    def url(self) -> str:
        """Database 0 of the Redis behind it."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def connections(self) -> int:
        """How many connections there are."""
        with self._lock:
            return len(self._open) // 2

    @contextlib.contextmanager
    def refusing(self) -> Iterator[None]:
        """Close every new connection at once, and count them in `refused`."""
        self.refused, self._refuses = 0, True
        try:
            yield
        finally:
            self._refuses = False

    def cut(self) -> int:
        """Close every connection; returns how many there were."""
        with self._lock:
            cut, self._open = self._open, set()
        for end in cut:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        return len(cut) // 2

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while not self._closed:
                client, _ = self._listener.accept()
                self._join(client)

    def _join(self, client: socket.socket) -> None:
        if self._refuses:
            self.refused += 1
            client.close()
            return
        try:
            server = socket.create_connection(("127.0.0.1", self._target), 2)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        with self._lock:
            self._open |= {client, server}
        for source, sink, relay in ((client, server, self._ask), (server, client, self._answer)):
            source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._pass, args=(source, sink, relay), name="proxy", daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        """Pass on what a client says."""
        self._answer(client, server)

    def _answer(self, source: socket.socket, sink: socket.socket) -> None:
        while data := source.recv(65536):
            sink.sendall(data)

    def _pass(self, source: socket.socket, sink: socket.socket, relay: _Relay) -> None:
        with contextlib.suppress(OSError):
            relay(source, sink)
        for end in (sink, source):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._open.discard(source)
        source.close()

    def __enter__(self) -> Self:
        self._accepting.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()
        self.cut()
