"""Accepting an event inside the caller's own transaction: it counts if, and only if, the caller commits (D10)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from inspect import iscoroutinefunction
from typing import Any

from sqlalchemy import Connection, TextClause, text
from sqlalchemy.dialects.postgresql.psycopg2 import dialect

from webhooks.accepting.reading import Event
from webhooks.errors import EventConflict, NotPossible
from webhooks.ledger import routing
from webhooks.ledger.recording import Recording, values_of_known

_WANTED = "record takes a SQLAlchemy Connection or Session, or a DB-API connection"


# Only what this very transaction has recorded, and nobody else has seen.
_TAKE_BACK = text("""
WITH gone AS (
    DELETE FROM deliveries WHERE id = ANY(:the_ids) OR (event_id <> id AND event_id = ANY(:the_ids))
), unfound AS (
    DELETE FROM event_keys WHERE value = ANY(:the_values) AND event_id = ANY(:the_ids)
)
DELETE FROM events WHERE id = ANY(:the_ids) RETURNING id
""")


def record(ledger: Recording, connection: Any, batches: Iterable[Sequence[Event]]) -> None:
    """Record events, all or none, in the transaction that is open on `connection`; see `webhooks.record_many`."""
    connection = _usable(connection)
    recorded: set[str] = set()
    values: set[str] = set()
    for events in batches:
        new = {_first(row) for row in _rows(connection, routing.RECORD, ledger.values_of(events))}
        recorded |= new
        values.update(value for event in events if event.id in new for _, value in event.keys)
        if len(new) < len(events):
            conflicts = _rows(connection, routing.CONFLICTS, values_of_known(events))
            if conflicts:
                _rows(connection, _TAKE_BACK, {"the_ids": sorted(recorded), "the_values": sorted(values)})
                raise EventConflict.of(*map(_first, conflicts))


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


def _rows(connection: Any, statement: TextClause, values: dict[str, Any]) -> Sequence[Sequence[Any]]:
    if isinstance(connection, Connection):
        return connection.execute(statement, values).all()
    compiled = statement.compile(dialect=dialect())  # type: ignore[no-untyped-call]
    with closing(connection.cursor()) as cursor:
        cursor.execute(str(compiled), {**compiled.params, **values})
        rows: Sequence[Sequence[Any]] = cursor.fetchall()
        return rows


def _first(row: Any) -> str:
    """Return the first column of a row, which may be one by names."""
    return str(next(iter(row.values())) if isinstance(row, Mapping) else row[0])
