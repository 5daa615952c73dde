"""A proxy that knows Redis' commands by name: one of them is cut off, held back, or answered with an error."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from tests.faults.proxy import Proxy

_NO_COMMAND = b"*1\r\n$7\r\nREFUSED\r\n"  # answered with an error in its place, also between MULTI and EXEC


class How(StrEnum):
    """What becomes of a command."""

    CUT = "cut"  # its connection is closed, and Redis never hears of it
    LOST = "lost"  # Redis does it, and its connection is closed before the answer
    HELD = "held"  # it reaches Redis late: when its client has given up waiting for the answer
    REFUSED = "refused"  # Redis answers with an error


@dataclass
class Fault:
    """A command that fails, and how often it has."""

    command: str
    how: How
    times: float
    met: int = 0
    given_up: threading.Event = field(default_factory=threading.Event)

    @property
    def has_happened(self) -> bool:
        """Whether a client has met it and, where it was to wait, waits no longer."""
        return self.given_up.is_set() if self.how is How.HELD else self.met > 0


class CommandProxy(Proxy):
    """Passes Redis' commands on one by one, but for those that a test wants to fail."""

    _fault: Fault | None = None

    @contextlib.contextmanager
    def failing(self, command: str, how: How, *, times: float = 1) -> Iterator[Fault]:
        """Have the next `times` commands of this name fail, as long as the block lasts; the value counts them."""
        fault = self._fault = Fault(command, how, times)
        try:
            yield fault
        finally:
            self._fault = None

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        unread = bytearray()
        while data := client.recv(65536):
            unread += data
            for name, command in commands(unread):
                fault = self._due(name)
                if fault is None:
                    server.sendall(command)
                elif fault.how is How.REFUSED:
                    server.sendall(_NO_COMMAND)
                else:
                    _break(fault, bytearray(command) + unread, client, server)
                    return

    def _due(self, name: str) -> Fault | None:
        with self._lock:
            fault = self._fault
            if fault is None or fault.command != name or fault.met >= fault.times:
                return None
            fault.met += 1
            return fault


def _break(fault: Fault, late: bytearray, client: socket.socket, server: socket.socket) -> None:
    """Have a command end its connection, which closes when this is done."""
    if fault.how is How.HELD:
        while data := client.recv(65536):
            late += data
        server.sendall(late)
        fault.given_up.set()
    elif fault.how is How.LOST:
        client.shutdown(socket.SHUT_RDWR)
        server.sendall(late)


def commands(unread: bytearray) -> Iterator[tuple[str, bytes]]:
    """Take every complete command from the front: its name and its bytes."""
    while parts := _parts(unread):
        name, end = parts
        command = bytes(unread[:end])
        del unread[:end]
        yield name, command


def _parts(unread: bytearray) -> tuple[str, int] | None:
    """Return the name of the first command, and where it ends; None while it isn't complete."""
    line = unread.find(b"\r\n")
    if line < 0:
        return None
    assert unread[:1] == b"*", "a client speaks in arrays of strings"
    at, name = line + 2, ""
    for number in range(int(unread[1:line])):
        line = unread.find(b"\r\n", at)
        if line < 0:
            return None
        begin = line + 2
        end = begin + int(unread[at + 1 : line])
        at = end + 2
        if len(unread) < at:
            return None
        if number == 0:
            name = unread[begin:end].decode().upper()
    return name, at
