"""The line between a program and PostgreSQL, in the test's hand: it can lose an answer, or stand still."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlsplit


class Line:
    """Passes bytes between a port of its own and PostgreSQL's socket file; leaving the `with` block cuts it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = f"{parse_qs(parts.query)['host'][0]}/.s.PGSQL.5432"
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"postgresql://{parts.username}@127.0.0.1:{self.port}{parts.path}"
        self._lock = threading.Lock()
        self._ends: list[socket.socket] = []
        self._moves = threading.Event()
        self._moves.set()
        self._to_lose: bytes | None = None
        self.lost = threading.Event()

    def lose_the_answer_to(self, statement: str) -> None:
        """Let the next statement with these words in it be done, and cut its connection instead of the answer."""
        self.lost.clear()
        self._to_lose = statement.encode()

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[None]:
        """Pass nothing, and cut nothing, as a frozen server or a stalled proxy does."""
        self._moves.clear()
        try:
            yield
        finally:
            self._moves.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                with self._lock:
                    self._ends += [client, server]
                losing = threading.Event()
                for work in (self._ask, self._answer):
                    threading.Thread(target=work, args=(client, server, losing), daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket, losing: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while asked := client.recv(1 << 20):
                self._moves.wait()
                if self._to_lose is not None and self._to_lose in asked:
                    self._to_lose = None
                    losing.set()
                server.sendall(asked)
        self._cut(client, server)

    def _answer(self, client: socket.socket, server: socket.socket, losing: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while answered := server.recv(1 << 20):
                self._moves.wait()
                if losing.is_set():
                    break
                client.sendall(answered)
        self._cut(client, server)
        if losing.is_set():
            self.lost.set()

    def _cut(self, *ends: socket.socket) -> None:
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._moves.set()
        self._cut(self._listener)
        self._listener.close()
        self._accepting.join()
        self._cut(*self._ends)
        for end in self._ends:
            end.close()
