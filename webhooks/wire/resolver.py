"""Name resolution with a deadline, and with an opinion on whose fault it is when no answer comes.

The system's resolver cannot be interrupted, so each look-up runs in a thread that an attempt can walk away from. Their
number is bounded, and a name has at most one in flight: one merchant's dead name server occupies one thread.

"Temporary failure" and silence may mean the merchant's name servers or our own resolver. A second opinion decides: when
the resolver has meanwhile answered anything at all, or answers for a name that is known to exist, the trouble is the
merchant's; when it does not, the fault is ours and nobody is charged (rules: "a fault of ours").
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol

from webhooks.errors import LocalFault
from webhooks.wire.deadline import Deadline, Phase

Resolve = Callable[[str], Sequence[str]]
"""A host name to its addresses as text; `socket.gaierror` as `socket.getaddrinfo` raises it."""

_AMBIGUOUS = {socket.EAI_AGAIN, socket.EAI_FAIL}
_OURS = {socket.EAI_SYSTEM, socket.EAI_MEMORY}


def system_resolve(host: str) -> list[str]:
    """Ask the system's resolver."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


class Names(Protocol):
    """Who looks names up."""

    def lookup(self, host: str, deadline: Deadline) -> Sequence[str]:
        """Return the addresses of `host`, at least one; raises as `Resolver.lookup`."""
        ...


class Resolver:
    """See the module's text. `resolve` may be called from several threads at once."""

    def __init__(self, resolve: Resolve, *, at_once: int, known_name: str) -> None:
        self._resolve = resolve
        self._at_once = at_once
        self._known_name = known_name
        self._lock = threading.Lock()
        self._flights: dict[str, Future[Sequence[str]]] = {}
        self._answered_at = float("-inf")

    def lookup(self, host: str, deadline: Deadline) -> Sequence[str]:
        """Return the addresses of `host`, at least one.

        `socket.gaierror` or `TimeoutError` when the merchant's names are the trouble, `LocalFault` when ours are.
        """
        began = time.monotonic()
        flight = self._fly(host)
        try:
            return self._wait(flight, deadline)
        except TimeoutError:
            if self._works(began, deadline):
                raise
        except socket.gaierror as error:
            if error.errno in _OURS:
                raise LocalFault("dns: the resolver of this machine does not work") from None
            if error.errno not in _AMBIGUOUS or self._works(began, deadline):
                raise
        raise LocalFault("dns: no name server answers this machine") from None

    def _wait(self, flight: Future[Sequence[str]], deadline: Deadline) -> Sequence[str]:
        """Wait for the answer; half-way to the deadline, ask for the second opinion that it may soon need."""
        try:
            found = flight.result(deadline.enter(Phase.DNS) / 2)
        except TimeoutError:
            if not flight.done():
                self._fly(self._known_name)
            found = flight.result(deadline.remaining())
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "no address")
        return found

    def _works(self, since: float, deadline: Deadline) -> bool:
        """Whether our resolver answers anything; waits for the known name as long as the deadline allows."""
        if self._answered_at < since and not deadline.passed:
            with contextlib.suppress(TimeoutError):
                self._fly(self._known_name).exception(deadline.remaining())
        return self._answered_at >= since

    def _fly(self, host: str) -> Future[Sequence[str]]:
        with self._lock:
            flight = self._flights.get(host)
            if flight is not None:
                return flight
            if host != self._known_name and len(self._flights) >= self._at_once:
                raise LocalFault(f"dns: {self._at_once} look-ups are waiting already")
            flight = self._flights[host] = Future()
        try:
            threading.Thread(target=self._run, args=(host, flight), name="webhooks-dns", daemon=True).start()
        except RuntimeError:
            self._land(host)
            flight.set_exception(LocalFault("dns: no thread for a look-up"))
        return flight

    def _run(self, host: str, flight: Future[Sequence[str]]) -> None:
        try:
            found = self._resolve(host)
        except Exception as error:
            if isinstance(error, socket.gaierror) and error.errno not in _AMBIGUOUS | _OURS:
                self._answered_at = time.monotonic()
            self._land(host)
            flight.set_exception(error)
        else:
            self._answered_at = time.monotonic()
            self._land(host)
            flight.set_result(found)

    def _land(self, host: str) -> None:
        with self._lock:
            self._flights.pop(host, None)
