"""The watchdog: one thread that cuts connections at their deadlines, whoever blocks on them and in which library.

Timeouts of sockets restart with every byte, and some libraries know none. The watchdog does not ask who is reading
what: at the deadline it shuts the connection down, and whoever blocks on it wakes up.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
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


class Watch:
    """A connection under watch, by a descriptor of our own: it outlives wrapping in TLS, and is ours to shut down.

    `late`: its deadline has passed.
    """

    def __init__(self, connection: HasDescriptor, first: Callable[[], object] | None = None) -> None:
        self.late = False
        self._first = first
        self._lock = threading.Lock()
        self._handle: socket.socket | None = socket.socket(fileno=os.dup(connection.fileno()))

    def end(self) -> bool:
        """Do what comes first, in a thread of its own, or cut. Returns whether there is more to do, after a grace."""
        self.late = True
        first, self._first = self._first, None
        if first is None or self.released:
            self.cut()
            return False
        try:
            threading.Thread(target=first, name="webhooks-late", daemon=True).start()
        except RuntimeError:  # no thread is to be had: nobody may wait for ever because of that
            self.cut()
            return False
        return True

    def cut(self) -> None:
        """Shut the connection down, unless it has been released."""
        with self._lock, contextlib.suppress(OSError):
            if self._handle is not None:
                self._handle.shutdown(socket.SHUT_RDWR)

    @property
    def released(self) -> bool:
        """Whether nobody watches it any more."""
        return self._handle is None

    def release(self) -> None:
        """Watch it no longer."""
        with self._lock:
            handle, self._handle = self._handle, None
        if handle is not None:
            with contextlib.suppress(OSError):  # no answer is lost over this
                handle.close()


class Watchdog:
    """One thread that cuts connections at their deadlines. Safe to use from many threads, and after a fork."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._watched: list[tuple[float, int, Watch]] = []
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._closed = False

    @contextlib.contextmanager
    def watch(
        self, connection: HasDescriptor, deadline: Ends, first: Callable[[], object] | None = None
    ) -> Iterator[Watch]:
        """Cut this connection if the block is not left by the deadline; where there is a `first`, a moment after it."""
        watch = self.start(connection, deadline, first)
        try:
            yield watch
        finally:
            watch.release()

    def start(self, connection: HasDescriptor, deadline: Ends, first: Callable[[], object] | None = None) -> Watch:
        """Begin a watch, for the caller to release.

        OSError or RuntimeError where this machine has no descriptor or thread left for it.
        """
        watch = Watch(connection, first)
        try:
            self._add(deadline.at, watch)
        except BaseException:
            watch.release()
            raise
        return watch

    def close(self) -> None:
        """End the thread, once what is watched has been released."""
        with self._changed:
            self._closed = True
            self._watched = [each for each in self._watched if not each[2].released]
            heapq.heapify(self._watched)
            self._changed.notify()
            thread = None if self._watched else self._thread
        if thread is not None:
            thread.join()

    def _add(self, at: float, watch: Watch) -> None:
        with self._changed:
            heapq.heappush(self._watched, (at, next(self._numbers), watch))
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="webhooks-deadlines", daemon=True)
                self._thread.start()
            elif self._watched[0][2] is watch:
                self._changed.notify()

    def _has_watches(self) -> bool:
        """Forget those that come next and have been released: waking up for each would hold up whoever works."""
        while self._watched and self._watched[0][2].released:
            heapq.heappop(self._watched)
        return bool(self._watched)

    def _run(self) -> None:
        with self._changed:
            while self._has_watches() or not self._closed:
                wait = self._watched[0][0] - time.monotonic() if self._watched else None
                if wait is not None and wait <= 0:
                    at, number, watch = heapq.heappop(self._watched)
                    if watch.end():
                        heapq.heappush(self._watched, (at + _GRACE_S, number, watch))
                else:
                    self._changed.wait(wait)
