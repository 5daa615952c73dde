"""What a scripted merchant can do on a connection: steps, replies made of steps, and the line that plays them."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import socket
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, BinaryIO


@dataclass(frozen=True, slots=True)
class Drip:
    """Write `data` `size` bytes at a time, `every` seconds; over and over when `forever`."""

    data: bytes
    every: float = 0.05
    size: int = 1
    forever: bool = False


@dataclass(frozen=True, slots=True)
class Stall:
    """Say nothing for `seconds`, or until the merchant is closed or drops its connections."""

    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Reset:
    """Throw the connection away with a TCP reset."""


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection without a word."""


Step = bytes | Drip | Stall | Reset | Close
Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it came; `connection` numbers the connections from 1, `at` is when its last byte was read.

    `line` is the request line.
    """

    at: datetime
    connection: int
    method: str
    path: str
    headers: Headers
    body: bytes
    line: str = ""

    def header(self, name: str) -> str | None:
        """Return the first value of a header, whatever its case."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    @property
    def webhook_id(self) -> str | None:
        """The delivery's id, the same on every attempt."""
        return self.header("X-Webhook-Id")

    @property
    def event(self) -> Any:
        """The body read as JSON."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer. `Content-Length` is added unless `headers` has it or a `Transfer-Encoding`.

    `after` seconds pass before it is written; `close` closes afterwards (announced by `Connection: close`),
    `hang_up` closes without announcing it. `steps` replaces all of it by a script (see `raw`).
    """

    status: int = 200
    headers: Headers = ()
    body: bytes = b"ok"
    after: float = 0.0
    close: bool = False
    hang_up: bool = False
    steps: tuple[Step, ...] | None = None

    @classmethod
    def raw(cls, *steps: Step) -> Reply:
        """Answer with these steps and nothing else; the next request is read after the last one."""
        return cls(steps=steps)

    def script(self) -> tuple[Step, ...]:
        """Return the steps that make up this reply."""
        if self.steps is not None:
            return self.steps
        wait: tuple[Step, ...] = (Stall(self.after),) if self.after else ()
        end: tuple[Step, ...] = (Close(),) if self.close or self.hang_up else ()
        return (*wait, self._head() + self.body, *end)

    def _head(self) -> bytes:
        names = {name.lower() for name, _ in self.headers}
        lines = [f"HTTP/1.1 {self.status} {_reason(self.status)}"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        if not names & {"content-length", "transfer-encoding"}:
            lines.append(f"Content-Length: {len(self.body)}")
        if self.close:
            lines.append("Connection: close")
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


Answered = int | Reply


def _reason(status: int) -> str:
    return next((known.phrase for known in HTTPStatus if known == status), "Whatever")


def gzip_bomb(megabytes: int) -> bytes:
    """Return gzip bytes that unpack to so many megabytes of zeros; about a thousandth of that on the wire."""
    member = gzip.compress(bytes(1 << 20))
    return member * megabytes


@dataclass(slots=True)
class Line:
    """One connection and what it takes to play steps on it."""

    number: int
    sock: socket.socket
    dropped: threading.Event = field(default_factory=threading.Event)
    reader: BinaryIO | None = field(default=None)

    def play(self, steps: Sequence[Step]) -> bool:
        """Play the steps; false when the connection is over."""
        return all(self._play(step) for step in steps)

    def _play(self, step: Step) -> bool:
        match step:
            case bytes():
                self.sock.sendall(step)
            case Drip():
                return self._drip(step)
            case Stall():
                return not self.dropped.wait(step.seconds)
            case Reset():
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return False
            case Close():
                return False
        return True

    def _drip(self, drip: Drip) -> bool:
        rounds = itertools.repeat(drip.data) if drip.forever else [drip.data]
        for data in rounds:
            for at in range(0, len(data), drip.size):
                self.sock.sendall(data[at : at + drip.size])
                if self.dropped.wait(drip.every):
                    return False
        return True

    def hang_up(self) -> None:
        """Wake whoever blocks on this connection; an `SSLSocket` must not be shut down through its own method here."""
        self.dropped.set()
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the connection up; a reset that a step asked for goes out here."""
        if self.reader is not None:
            with contextlib.suppress(OSError):
                self.reader.close()
        with contextlib.suppress(OSError):
            self.sock.close()


def read_request(reader: BinaryIO, connection: int) -> Request | None:
    """Read one request; none when the sender closed first."""
    first = reader.readline(65_536)
    if not first.endswith(b"\n"):
        return None
    request_line = first.decode("latin-1").rstrip("\r\n")
    method, path, _ = request_line.split(" ", 2)
    headers: list[tuple[str, str]] = []
    while (line := reader.readline(65_536)) not in {b"\r\n", b"\n", b""}:
        name, _, value = line.decode("latin-1").partition(":")
        headers.append((name.strip(), value.strip(" \t\r\n")))
    length = next((int(value) for name, value in headers if name.lower() == "content-length"), 0)
    body = reader.read(length)
    if len(body) < length:
        return None
    return Request(datetime.now(UTC), connection, method, path, tuple(headers), body, request_line)
