"""The way to PostgreSQL: pooled, one statement a round trip, each bounded, reconnecting, with every fault named."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg2
from sqlalchemy import Connection, Engine, Executable, Row, create_engine, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from webhooks.errors import AnswerLost, LedgerUnavailable
from webhooks.ledger.connecting import read_url
from webhooks.ledger.driver import Driver
from webhooks.ledger.faults import Starved, Unconfirmed, judge, named, was_refused
from webhooks.ledger.pooling import ConnectionPool, Kept, keep_watch, kept_beside
from webhooks.observing.facts import LedgerAway, LedgerBack
from webhooks.observing.observers import NOBODY, Observers
from webhooks.observing.outage import Outage
from webhooks.process.watchdog import Vigil, Watchdog

_PATIENCE = timedelta(seconds=20)  # longer than the server's own limits: those tell more
_AGE_S = 300  # seconds that a connection lives: then a name that has moved is looked up again


@dataclass(frozen=True, slots=True)
class _Until:
    at: float

    @property
    def left(self) -> float:
        return self.at - time.monotonic()


class _Within:
    """A bound on what one thread asks in the block; a tighter one that is there stays."""

    def __init__(self, of_thread: threading.local, until: _Until) -> None:
        self._of_thread = of_thread
        self._until = until

    def __enter__(self) -> None:
        self._before = before = getattr(self._of_thread, "until", None)
        if before is None or self._until.at < before.at:
            self._of_thread.until = self._until

    def __exit__(self, *_: object) -> None:
        self._of_thread.until = self._before


class Transaction:
    """Statements that count together; see Database.transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def rows(self, statement: Executable, values: Mapping[str, Any] | None = None) -> Sequence[Row[Any]]:
        """Run one more statement and return its rows."""
        result = self._connection.execute(statement, values or {})
        return result.all() if result.returns_rows else ()


class Database:
    """PostgreSQL by its URL; safe to share between threads, and made anew after a fork.

    `connections` is how many are kept; twice as many may be open. `patience` bounds every call on this side, whatever
    the server does or leaves undone; `within` sets a tighter bound.
    """

    def __init__(
        self, url: str, *, connections: int = 10, patience: timedelta = _PATIENCE, observers: Observers = NOBODY
    ) -> None:
        self._way = read_url(url)
        self._patience_s = patience.total_seconds()
        self._observers = observers
        self._of_thread = threading.local()
        self._connections = connections
        self._places = threading.BoundedSemaphore(2 * connections)
        self._watchdog = Watchdog()
        self._outage = Outage()
        self._engine: Engine = create_engine(
            "postgresql+psycopg2://",
            creator=lambda: self._way.connect(self._until().left),
            hide_parameters=True,  # bodies and secrets are parameters, and errors are logged (I9)
            isolation_level="AUTOCOMMIT",  # one statement is one transaction is one round trip
            poolclass=ConnectionPool,
            pool_size=connections,
            max_overflow=connections,
            pool_use_lifo=True,
            pool_recycle=_AGE_S,
        )
        self._driver = Driver(self._engine.dialect, self._way.limits)
        event.listen(self._engine, "before_cursor_execute", self._limit, retval=True)
        event.listen(self._engine, "handle_error", judge)
        keep_watch(self._engine, self._kept)
        # A connection must not be shared by two processes: the child starts with an empty pool.
        os.register_at_fork(after_in_child=self._begin_anew)

    @property
    def engine(self) -> Engine:
        """The SQLAlchemy engine, for migrations."""
        return self._engine

    def rows(
        self, statement: Executable, values: Mapping[str, Any] | None = None, *, repeatable: bool = False
    ) -> Sequence[Row[Any]]:
        """Run one statement in a transaction of its own and return its rows.

        `repeatable` says that running it twice does no harm and gives the same rows: reads, and statements that know
        themselves. Where the connection breaks under one that is not, AnswerLost is raised: it may have been done.
        Raises LedgerUnavailable when the ledger cannot be used now, and LedgerFault when it refuses for good.
        """
        with _Within(self._of_thread, self._until()), self._named():
            try:
                return self._run(statement, values)
            except DBAPIError as error:
                if not (was_refused(error) or (repeatable and error.connection_invalidated)):
                    raise
            return self._run(statement, values)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Run several statements that count together or not at all; raises as `rows`, and nothing is repeated.

        AnswerLost says that the connection broke under the end of it: all of it was done, or nothing. Where it broke
        before, LedgerUnavailable says that nothing was.
        """
        ending = False
        with (
            _Within(self._of_thread, self._until()),
            self._named(lambda: ending),
            self._connected() as connection,
        ):
            connection.execution_options(isolation_level="READ COMMITTED")
            with connection.begin() as begun:
                yield Transaction(connection)
                ending = True
                begun.commit()

    def within(self, limit: timedelta) -> AbstractContextManager[None]:
        """Bound everything that this thread asks in the block, connecting and repeating included."""
        return _Within(self._of_thread, _Until(time.monotonic() + limit.total_seconds()))

    @property
    def left(self) -> timedelta:
        """Return how long this thread may still take for what it asks."""
        return timedelta(seconds=self._until().left)

    def dispose(self) -> None:
        """Close every pooled connection."""
        self._engine.dispose()
        self._watchdog.close()

    def _until(self) -> _Until:
        return getattr(self._of_thread, "until", None) or _Until(time.monotonic() + self._patience_s)

    def _run(self, statement: Executable, values: Mapping[str, Any] | None) -> Sequence[Row[Any]]:
        until = self._until()
        places = self._place(until)
        try:
            pool: Any = self._engine.pool  # a ConnectionPool; another one after a fork
            pooled = self._lent(pool)
            try:
                return self._run_on(pool, pooled, until, statement, values or {})
            finally:
                pool.take_back(pooled)
        finally:
            places.release()

    def _run_on(
        self, pool: ConnectionPool, pooled: Any, until: _Until, statement: Executable, values: Mapping[str, Any]
    ) -> Sequence[Row[Any]]:
        """Run a statement on a connection that is cut when the time is over, and given up when it is of no more use."""
        watch = self._watch(pooled, until)
        try:
            rows = self._driver.rows(pooled.dbapi_connection, statement, values)
        except psycopg2.Error as error:
            fault = self._driver.fault(error, pooled)
            if watch.late:
                pooled.invalidate(error)  # the cancellation may still be on its way, and must meet nobody else
                raise Unconfirmed from fault
            if fault.connection_invalidated:
                pool.give_up_all(pooled, error)
            raise fault from error
        except Exception:
            raise
        except BaseException:  # in the middle of a statement, perhaps
            pooled.invalidate()
            raise
        finally:
            watch.rest()
        if watch.late:
            pooled.invalidate()
            raise Unconfirmed
        return rows

    def _lent(self, pool: ConnectionPool) -> Any:
        try:
            return pool.lend()
        except psycopg2.Error as error:
            raise self._driver.fault(error, None) from error

    def _place(self, until: _Until) -> threading.BoundedSemaphore:
        places = self._places
        if until.left <= 0 or not places.acquire(timeout=until.left):
            raise PoolTimeout
        return places

    def _watch(self, pooled: Any, until: _Until) -> Vigil:
        if until.left <= 0:
            raise PoolTimeout
        watch = kept_beside(pooled).watch
        try:
            watch.begin(until.at)
        except RuntimeError as error:  # no thread for the watchdog
            watch.rest()
            raise Starved from error
        return watch

    def _kept(self, driver: Any) -> Kept:
        try:
            # A commit that waits for a standby ends by no limit of the server's, and would stay there for ever.
            return Kept(driver, self._watchdog, lambda: self._way.cancel(driver))
        except OSError as error:  # no descriptor
            raise Starved from error

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        """Give a connection of SQLAlchemy's that is cut when the time is over."""
        until = self._until()
        places = self._place(until)
        try:
            with self._engine.connect() as connection, self._watched(connection, until):
                yield connection
        finally:
            places.release()

    @contextmanager
    def _watched(self, connection: Connection, until: _Until) -> Iterator[None]:
        watch = self._watch(connection.connection, until)
        try:
            yield
        except SQLAlchemyError as error:
            if not watch.late:
                raise
            connection.invalidate()  # the cancellation may still be on its way, and must meet nobody else
            raise Unconfirmed from error
        finally:
            watch.rest()
        if watch.late:
            connection.invalidate()
            raise Unconfirmed

    def _begin_anew(self) -> None:
        """Share nothing with the process that this one was forked from: neither connections nor who waits for them."""
        self._engine.dispose(close=False)
        self._places = threading.BoundedSemaphore(2 * self._connections)
        self._watchdog = Watchdog()
        self._outage = Outage()

    def _limit(
        self, connection: Connection, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: bool
    ) -> tuple[str, Any]:
        """Put the limits in front of a statement: one round trip, one transaction, and nothing stays behind."""
        if connection.get_execution_options().get("limits", True):
            return self._way.limits + statement, parameters
        return statement, parameters

    @contextmanager
    def _named(self, may_be_done: Callable[[], bool] = lambda: True) -> Iterator[None]:
        """Name faults; where they begin or end an outage, say so once."""
        try:
            yield
        except SQLAlchemyError as error:
            fault = named(error)
            if isinstance(fault, AnswerLost) and not may_be_done():
                fault = LedgerUnavailable(str(fault))
            if isinstance(fault, LedgerUnavailable) and fault.told_once and self._outage.failed():
                self._observers.tell(LedgerAway(str(fault)))
            raise fault from error
        if self._outage.worked():
            self._observers.tell(LedgerBack())


def unlimited(connection: Connection) -> Connection:
    """Take the limits off a connection, for migrations."""
    return connection.execution_options(limits=False)
