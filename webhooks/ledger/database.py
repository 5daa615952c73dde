"""The way to PostgreSQL: pooled, one statement a round trip, each bounded, reconnecting, with every fault named."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg2
from sqlalchemy import Connection, Engine, Executable, Row, create_engine, event
from sqlalchemy.exc import DBAPIError, DisconnectionError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from webhooks.errors import AnswerLost, LedgerBusy, LedgerFault, LedgerOutdated, LedgerUnavailable
from webhooks.ledger.connecting import (
    READ_ONLY,
    condemns,
    is_alive,
    is_away,
    is_busy,
    is_outdated,
    read_url,
)
from webhooks.observing.facts import LedgerAway, LedgerBack
from webhooks.observing.observers import NOBODY, Observers
from webhooks.observing.outage import Outage
from webhooks.process.watchdog import Watchdog

_PATIENCE = timedelta(seconds=20)  # longer than the server's own limits: those tell more
_AGE_S = 300  # seconds that a connection lives: then a name that has moved is looked up again
_OF_THE_CONNECTION = (psycopg2.OperationalError, psycopg2.InterfaceError)  # what has no SQLSTATE never reached a server


class _Unconfirmed(SQLAlchemyError):
    """It took longer than its bound: it was done, or cancelled, or nobody knows."""


class _Starved(SQLAlchemyError):
    """This machine has no descriptor or thread left."""


_OF_THIS_SIDE = (
    (PoolTimeout, LedgerBusy, "the ledger is busy: no database connection became free in time"),
    (_Starved, LedgerBusy, "the ledger cannot be asked: this machine has no descriptor or thread left"),
    (
        _Unconfirmed,
        AnswerLost,
        "the ledger cannot be used: it confirmed nothing in time (is the standby of synchronous_standby_names there?)",
    ),
)


@dataclass(frozen=True, slots=True)
class _Until:
    at: float

    @property
    def left(self) -> float:
        return self.at - time.monotonic()


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
            pool_size=connections,
            max_overflow=connections,
            pool_use_lifo=True,
            pool_recycle=_AGE_S,
        )
        event.listen(self._engine, "before_cursor_execute", self._limit, retval=True)
        event.listen(self._engine, "handle_error", _judge)
        event.listen(self._engine, "checkout", _refuse_the_dead)
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
        with self.within(timedelta(seconds=self._until().left)), self._named():
            try:
                return self._run(statement, values)
            except DBAPIError as error:
                if not (_was_refused(error) or (repeatable and error.connection_invalidated)):
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
            self.within(timedelta(seconds=self._until().left)),
            self._named(lambda: ending),
            self._connected() as connection,
        ):
            connection.execution_options(isolation_level="READ COMMITTED")
            with connection.begin() as begun:
                yield Transaction(connection)
                ending = True
                begun.commit()

    @contextmanager
    def within(self, limit: timedelta) -> Iterator[None]:
        """Bound everything that this thread asks in the block, connecting and repeating included."""
        before = getattr(self._of_thread, "until", None)
        at = time.monotonic() + limit.total_seconds()
        self._of_thread.until = _Until(min(at, before.at) if before else at)
        try:
            yield
        finally:
            self._of_thread.until = before

    def dispose(self) -> None:
        """Close every pooled connection."""
        self._engine.dispose()
        self._watchdog.close()

    def _until(self) -> _Until:
        return getattr(self._of_thread, "until", None) or _Until(time.monotonic() + self._patience_s)

    def _run(self, statement: Executable, values: Mapping[str, Any] | None) -> Sequence[Row[Any]]:
        with self._connected() as connection:
            result = connection.execute(statement, values or {})
            return result.all() if result.returns_rows else ()

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        """Give a connection that is cut when the time is over."""
        until = self._until()
        places = self._places
        if until.left <= 0 or not places.acquire(timeout=until.left):
            raise PoolTimeout
        try:
            with self._engine.connect() as connection, self._watched(connection, until):
                yield connection
        finally:
            places.release()

    @contextmanager
    def _watched(self, connection: Connection, until: _Until) -> Iterator[None]:
        if until.left <= 0:
            raise PoolTimeout
        driver: Any = connection.connection.dbapi_connection
        try:
            # A commit that waits for a standby ends by no limit of the server's, and would stay there for ever.
            watch = self._watchdog.start(driver, until, first=lambda: self._way.cancel(driver))
        except (OSError, RuntimeError) as error:
            raise _Starved from error
        try:
            yield
        except SQLAlchemyError as error:
            if not watch.late:
                raise
            connection.invalidate()  # the cancellation may still be on its way, and must meet nobody else
            raise _Unconfirmed from error
        finally:
            watch.release()
        if watch.late:
            connection.invalidate()
            raise _Unconfirmed

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


def _refuse_the_dead(connection: Any, _record: Any, _proxy: Any) -> None:
    if not is_alive(connection):
        raise DisconnectionError


def _judge(context: Any) -> None:
    """Give up the connection, and all that are as old, over an error that condemns the session."""
    if condemns(getattr(context.original_exception, "pgcode", None)):
        context.is_disconnect = True


def _was_refused(error: DBAPIError) -> bool:
    """Whether a session that takes no writes has refused, so that surely nothing was done."""
    return getattr(error.orig, "pgcode", None) == READ_ONLY


def named(error: SQLAlchemyError) -> LedgerUnavailable | LedgerFault:
    """Put a driver's error into one line for a person; statements and values stay out of it."""
    for kind, fault, text in _OF_THIS_SIDE:
        if isinstance(error, kind):
            return fault(text)
    cause = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(cause, "pgcode", None)
    line = str(cause).strip().partition("\n")[0] or type(cause).__name__
    if is_outdated(code):
        return LedgerOutdated(f"the ledger has no tables yet, or older ones ({line}); run: webhooks db upgrade")
    if is_busy(code):
        return LedgerBusy(f"the ledger is busy: {line}")
    broken = isinstance(error, DBAPIError) and error.connection_invalidated
    if not (broken or isinstance(cause, _OF_THE_CONNECTION) if code is None else is_away(code)):
        return LedgerFault(f"the ledger refuses: {line}")
    if broken and code != READ_ONLY:
        return AnswerLost(f"the ledger cannot be used: {line}")
    return LedgerUnavailable(f"the ledger cannot be used: {line}")
