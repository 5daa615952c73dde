"""Accepting an event inside the caller's own transaction: it counts if, and only if, the caller commits (D10)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from inspect import iscoroutinefunction
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.dialects.postgresql.psycopg2 import dialect
from sqlalchemy.sql.selectable import ExecutableReturnsRows

from webhooks.accepting.reading import Event
from webhooks.errors import EventConflict, NotPossible
from webhooks.ledger import statements
from webhooks.ledger.ledger import Ledger

_WANTED = "record takes a SQLAlchemy Connection or Session, or a DB-API connection"


def record(ledger: Ledger, connection: Any, event: Event) -> None:
    """Record an event in the transaction that is open on `connection`; see `webhooks.record`."""
    connection = _usable(connection)
    if not _rows(connection, statements.RECORD, ledger.values_of(event)):
        same = {"the_id": event.id, "the_body_sha256": event.body_sha256}
        if _rows(connection, statements.CONFLICT, same):
            raise EventConflict.of(event.id)


def _usable(given: Any) -> Any:
    """Return the connection whose transaction it is; raises NotPossible for what has none."""
    if hasattr(given, "run_sync"):  # of SQLAlchemy's asyncio, as a connection or a session
        raise NotPossible(f"{_WANTED}; with SQLAlchemy's asyncio: await connection.run_sync(record, event)")
    if not isinstance(given, Connection) and callable(getattr(given, "connection", None)):
        given = given.connection()  # a Session, plain or scoped; naming its class would import the whole ORM
    if isinstance(given, Connection):
        if given.dialect.name != "postgresql":
            raise NotPossible(f"{_WANTED} to the ledger's PostgreSQL, not to {given.dialect.name}")
        return given
    if not callable(getattr(given, "cursor", None)) or iscoroutinefunction(getattr(given, "commit", None)):
        raise NotPossible(f"{_WANTED}, not a {type(given).__name__}")
    return given


def _rows(connection: Any, statement: ExecutableReturnsRows, values: dict[str, Any]) -> Sequence[Sequence[Any]]:
    if isinstance(connection, Connection):
        return connection.execute(statement, values).all()
    compiled = statement.compile(dialect=dialect())  # type: ignore[no-untyped-call]
    with closing(connection.cursor()) as cursor:
        cursor.execute(str(compiled), {**compiled.params, **values})
        rows: Sequence[Sequence[Any]] = cursor.fetchall()
        return rows
