"""Connections to PostgreSQL that are kept, each with its watch, and lent out for a statement without anything around.

SQLAlchemy's pool wraps each connection that it lends, for every time anew, and looks it over when it comes back. That
costs more than sending a statement and reading its answer, and keeps nobody from anything who commits each statement
by itself.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine, QueuePool, event
from sqlalchemy.exc import DisconnectionError

from webhooks.process.watchdog import Watchdog, descriptor_of


class Kept:
    """What is kept beside a connection, as long as it is open: its watch, and an eye on whether the server hung up."""

    def __init__(self, connection: Any, watchdog: Watchdog, cancel: Callable[[], object]) -> None:
        self._descriptor: socket.socket = descriptor_of(connection)
        self._poller = select.poll()
        self._poller.register(self._descriptor, select.POLLIN)
        self.watch = watchdog.vigil(self._descriptor, first=cancel)

    def is_alive(self) -> bool:
        """Whether the connection is still open, as far as this side knows; costs no round trip.

        What can be read where nothing was asked is the end of the stream, or the server's last words before it.
        """
        return not self._poller.poll(0)

    def close(self) -> None:
        """Let go of the connection, before it is closed."""
        self.watch.rest()
        self._descriptor.close()


class ConnectionPool(QueuePool):
    """SQLAlchemy's pool, of which a connection can also be had bare."""

    def lend(self) -> Any:
        """Return a place of the pool, a `ConnectionPoolEntry`, with an open connection; to be taken back.

        Raises what connecting raises.
        """
        place: Any = self._do_get()
        try:
            place.get_connection()
            if not kept_beside(place).is_alive():
                place.invalidate()
                place.get_connection()
        except BaseException:
            self._do_return_conn(place)
            raise
        return place

    def take_back(self, place: Any) -> None:
        """Keep a connection for the next one; a place whose connection was given up has another by then."""
        self._do_return_conn(place)

    def give_up_all(self, place: Any, error: BaseException) -> None:
        """Give up this connection, and all that are as old: what is wrong with it is wrong with them."""
        if self._invalidate_time < place.last_connect_time:
            self._invalidate_time = time.time()
        place.invalidate(error)


def keep_watch(engine: Engine, beside: Callable[[Any], Kept]) -> None:
    """Have something kept beside every connection of an engine, and lend none that the server has hung up."""

    def begin(connection: Any, place: Any) -> None:
        place.info[Kept] = beside(connection)

    def refuse_the_dead(_connection: Any, place: Any, _wrapped: Any) -> None:
        if not kept_beside(place).is_alive():
            raise DisconnectionError

    def end(_connection: Any, place: Any) -> None:
        kept = place.info.pop(Kept, None)
        if kept is not None:
            kept.close()

    event.listen(engine, "connect", begin)
    event.listen(engine, "checkout", refuse_the_dead)
    event.listen(engine, "close", end)


def kept_beside(pooled: Any) -> Kept:
    """Return what is kept beside a connection, by its place of the pool or what SQLAlchemy wraps around it."""
    kept: Kept = pooled.info[Kept]
    return kept
