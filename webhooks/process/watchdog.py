"""The watchdog: one thread that cuts connections at their deadlines, whoever blocks on them and in which library.

Timeouts of sockets restart with every byte, and some libraries know none. The watchdog does not ask who is reading
what: at the deadline it shuts the connection down, and whoever blocks on it wakes up.

There are two kinds of watch. A `Watch` is begun and released once, whatever becomes of the connection meanwhile. A
`Vigil` belongs to a connection that serves one exchange after another, and costs next to nothing for each.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol


class HasDescriptor(Protocol):
    """A connection: a socket, or what a library wraps around one."""

    def fileno(self) -> int:
        """Return its descriptor."""


class Ends(Protocol):
    """Something with an end."""

    @property
    def at(self) -> float:
        """The end, by `time.monotonic()`."""


_GRACE_S = 0.5  # for the other end to answer to what was tried before the cut
_FEW = 64  # entries that are not worth looking through


def descriptor_of(connection: HasDescriptor) -> socket.socket:
    """Return a descriptor of our own of a connection that a library keeps to itself; to be closed. May raise OSError.

    By the library's own number somebody else's connection could be cut, once that one is closed.
    """
    return socket.socket(fileno=os.dup(connection.fileno()))


class Watch:
    """A connection under watch, by a descriptor of our own: it outlives wrapping in TLS, and is ours to shut down."""

    def __init__(self, connection: HasDescriptor) -> None:
        self._lock = threading.Lock()
        self._handle: socket.socket | None = descriptor_of(connection)

    def end(self, _at: float) -> None:
        """Shut the connection down, unless it has been released."""
        with self._lock, contextlib.suppress(OSError):
            if self._handle is not None:
                self._handle.shutdown(socket.SHUT_RDWR)

    def is_over(self, _at: float) -> bool:
        """Whether nobody watches it any more."""
        return self._handle is None

    def release(self) -> None:
        """Watch it no longer."""
        with self._lock:
            handle, self._handle = self._handle, None
        if handle is not None:
            with contextlib.suppress(OSError):  # no answer is lost over this
                handle.close()


class Vigil:
    """The watch of one connection through all its exchanges, at rest in between.

    It has no descriptor of its own: whoever closes or wraps the socket lets it rest before. And it has one entry with
    the watchdog, which is looked at again when its time has come, instead of one for each exchange.

    Where there is a `first`, it is done at the deadline, once and in a thread of its own, and the cut comes a moment
    after it. `late`: a deadline has passed, so that the connection is of no more use.
    """

    def __init__(self, watchdog: Watchdog, sock: socket.socket, first: Callable[[], object] | None = None) -> None:
        self.late = False
        self._watchdog = watchdog
        self._sock = sock
        self._first = first
        self._lock = threading.Lock()
        self._until = math.inf  # infinite: at rest
        self._entry = math.inf  # when the watchdog looks at it; infinite: not at all

    def begin(self, until: float) -> None:
        """Cut the connection at this moment, by `time.monotonic()`, unless it rests by then; the last call counts."""
        with self._lock:
            self._until = until
            late = until < self._entry
            if late:
                self._entry = until
        if late or not self._watchdog.runs:
            self._watchdog.add(until, self)

    def rest(self) -> None:
        """Watch it no longer, until it begins again."""
        with self._lock:
            self._until = math.inf

    def end(self, at: float) -> float | None:
        """Do what comes first, or cut, if the time has come. Returns when to look at it again."""
        with self._lock:
            if at != self._entry:  # the entry of an end that was moved forward
                return None
            if self._until <= at and self._tries_first():
                self._until = at + _GRACE_S
            if at < self._until < math.inf:
                self._entry = self._until
                return self._until
            self._entry = math.inf
            if self._until <= at:
                self._until = math.inf
                # Not the socket's own method: that of TLS would take the reader its state away.
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(self._sock, socket.SHUT_RDWR)
            return None

    def _tries_first(self) -> bool:
        """Begin with what comes before the cut, if there is such a thing and a thread for it."""
        self.late = True
        first, self._first = self._first, None
        if first is None:
            return False
        try:
            threading.Thread(target=first, name="webhooks-late", daemon=True).start()
        except RuntimeError:  # no thread is to be had: nobody may wait for ever because of that
            return False
        return True

    def is_over(self, at: float) -> bool:
        """Whether the entry of this moment says nothing any more; it is taken out then."""
        with self._lock:
            if at == self._entry and self._until == math.inf:
                self._entry = math.inf
            return at != self._entry


class Watchdog:
    """One thread that cuts connections at their deadlines. Safe to use from many threads, and after a fork."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._watched: list[tuple[float, int, Watch | Vigil]] = []
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._look_through_at = _FEW

    @property
    def runs(self) -> bool:
        """Whether its thread does: it ends when it is closed, and does not survive a fork."""
        return self._thread is not None and self._thread.is_alive()

    def vigil(self, sock: socket.socket, first: Callable[[], object] | None = None) -> Vigil:
        """Return a watch at rest, for a connection that is used again and again."""
        return Vigil(self, sock, first)

    @contextlib.contextmanager
    def watch(self, connection: HasDescriptor, deadline: Ends) -> Iterator[Watch]:
        """Cut this connection if the block is not left by the deadline."""
        watch = self.start(connection, deadline)
        try:
            yield watch
        finally:
            watch.release()

    def start(self, connection: HasDescriptor, deadline: Ends) -> Watch:
        """Begin a watch, for the caller to release.

        OSError or RuntimeError where this machine has no descriptor or thread left for it.
        """
        watch = Watch(connection)
        try:
            self.add(deadline.at, watch)
        except BaseException:
            watch.release()
            raise
        return watch

    def close(self) -> None:
        """End the thread, once what is watched has been released."""
        with self._changed:
            self._closed = True
            self._drop_what_is_over()
            self._changed.notify()
            thread = None if self._watched else self._thread
        if thread is not None:
            thread.join()

    def add(self, at: float, watch: Watch | Vigil) -> None:
        """Look at this watch at that moment."""
        with self._changed:
            if len(self._watched) >= self._look_through_at:
                self._drop_what_is_over()
            heapq.heappush(self._watched, (at, next(self._numbers), watch))
            if not self.runs:
                self._thread = threading.Thread(target=self._run, name="webhooks-deadlines", daemon=True)
                self._thread.start()
            elif self._watched[0][2] is watch:
                self._changed.notify()

    def _drop_what_is_over(self) -> None:
        """Drop what was released, or it would lie here to its deadline. Next time when there are twice as many."""
        self._watched = [each for each in self._watched if not each[2].is_over(each[0])]
        heapq.heapify(self._watched)
        self._look_through_at = max(_FEW, 2 * len(self._watched))

    def _run(self) -> None:
        with self._changed:
            while self._watched or not self._closed:
                wait = self._watched[0][0] - time.monotonic() if self._watched else None
                if wait is not None and wait <= 0:
                    at, number, watch = heapq.heappop(self._watched)
                    again = watch.end(at)
                    if again is not None:
                        heapq.heappush(self._watched, (again, number, watch))
                else:
                    self._changed.wait(wait)
