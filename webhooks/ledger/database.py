"""The way to PostgreSQL: pooled, one statement a round trip, reconnecting, with every fault named."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, Executable, Row, create_engine, make_url
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from webhooks.errors import LedgerOutdated, LedgerUnavailable

# A statement of ours is done in milliseconds; what takes longer is stuck, and a stuck worker helps nobody.
_SESSION = (
    "-c statement_timeout=15s -c lock_timeout=5s -c idle_in_transaction_session_timeout=60s "
    "-c TimeZone=UTC -c client_min_messages=warning"
)
_UNDEFINED_TABLE = "42P01"


class Transaction:
    """Statements that count together; see Database.transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def rows(self, statement: Executable, values: Mapping[str, Any] | None = None) -> Sequence[Row[Any]]:
        """Run one more statement and return its rows."""
        result = self._connection.execute(statement, values or {})
        return result.all() if result.returns_rows else ()


class Database:
    """PostgreSQL by its URL; safe to share between threads, and made anew after a fork."""

    def __init__(self, url: str, *, connections: int = 10) -> None:
        self._engine: Engine = create_engine(
            make_url(url).set(drivername="postgresql+psycopg2"),
            hide_parameters=True,  # bodies and secrets are parameters, and errors are logged (I9)
            isolation_level="AUTOCOMMIT",  # one statement is one transaction is one round trip
            pool_size=connections,
            max_overflow=connections,
            pool_use_lifo=True,
            pool_timeout=10,
            connect_args={
                "options": _SESSION,
                "application_name": "webhooks",
                "client_encoding": "utf8",
                "connect_timeout": 5,
                "keepalives_idle": 15,
                "keepalives_interval": 5,
                "keepalives_count": 3,
                "tcp_user_timeout": 15_000,
            },
        )
        # A connection must not be shared by two processes: the child starts with an empty pool.
        os.register_at_fork(after_in_child=lambda: self._engine.dispose(close=False))

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
        try:
            return self._run(statement, values)
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise named(error) from error
        except SQLAlchemyError as error:
            raise named(error) from error
        try:
            return self._run(statement, values)
        except SQLAlchemyError as error:
            raise named(error) from error

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Run several statements that count together or not at all; raises as `rows`, and nothing is repeated."""
        try:
            with self._engine.connect().execution_options(isolation_level="READ COMMITTED") as connection:
                with connection.begin():
                    yield Transaction(connection)
        except SQLAlchemyError as error:
            raise named(error) from error

    def _run(self, statement: Executable, values: Mapping[str, Any] | None) -> Sequence[Row[Any]]:
        with self._engine.connect() as connection:
            result = connection.execute(statement, values or {})
            return result.all() if result.returns_rows else ()

    def dispose(self) -> None:
        """Close every pooled connection."""
        self._engine.dispose()


def named(error: SQLAlchemyError) -> LedgerUnavailable:
    """Put a driver's error into one line for a person; statements and values stay out of it."""
    if isinstance(error, PoolTimeout):
        return LedgerUnavailable("the ledger is busy: no database connection became free in time")
    cause = error.orig if isinstance(error, DBAPIError) else error
    if getattr(cause, "pgcode", None) == _UNDEFINED_TABLE:
        return LedgerOutdated("the ledger has no tables yet; run: webhooks db upgrade")
    first_line = str(cause).strip().partition("\n")[0]
    return LedgerUnavailable(f"the ledger cannot be used: {first_line or type(cause).__name__}")
