"""Statements as the driver takes them: compiled once each, and run on its own connection.

SQLAlchemy builds the statements, and keeps the connections. What it does around each execution takes as long as the
statement itself, and every delivery needs two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import psycopg2
from sqlalchemy import Dialect, Executable, Row
from sqlalchemy.engine.result import result_tuple
from sqlalchemy.exc import DBAPIError, StatementError
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.sql.compiler import SQLCompiler

from webhooks.ledger.connecting import condemns

_MOST = 500  # statements that are kept compiled: there are some hundred


class Driver:
    """What runs statements on connections of psycopg2's; shared by threads."""

    def __init__(self, dialect: Dialect, limits: str) -> None:
        self._dialect = dialect
        self._limits = limits  # in front of each statement: one round trip, one transaction, and nothing stays behind
        self._compiled: WeakKeyDictionary[Executable, dict[tuple[str, ...], _Compiled]] = WeakKeyDictionary()

    def rows(self, connection: Any, statement: Executable, values: Mapping[str, Any]) -> Sequence[Row[Any]]:
        """Run a statement on a connection that commits each by itself, and return its rows; raises what psycopg2 does.

        Such an error may hold pieces of what was sent: it goes no further than `fault`, and is told by its first line.
        """
        compiled = self._of(statement, values)
        text, parameters = compiled.with_values(values)
        cursor = connection.cursor()
        try:
            cursor.execute(self._limits + text, parameters)
            return compiled.rows(cursor) if cursor.description is not None else ()
        finally:
            cursor.close()

    def fault(self, error: psycopg2.Error, pooled: ConnectionPoolEntry | None) -> StatementError:
        """Return a driver's error as one of SQLAlchemy's, without statement and values (I9).

        `connection_invalidated` says that the session is of no more use. `pooled` is its connection, if there was one.
        """
        driver = None if pooled is None else pooled.dbapi_connection
        broken = pooled is not None and (
            self._dialect.is_disconnect(error, driver, None)  # type: ignore[arg-type]
            or condemns(error.pgcode)
        )
        return DBAPIError.instance(None, None, error, psycopg2.Error, True, broken, self._dialect)

    def _of(self, statement: Executable, values: Mapping[str, Any]) -> _Compiled:
        """Return what a statement was compiled to; one that is written with columns' names is another with others."""
        names = tuple(values)
        by_names = self._compiled.get(statement)
        if by_names is None:
            if len(self._compiled) >= _MOST:
                self._compiled.clear()  # what takes lists holds its statement: those made anew each time would stay
            by_names = self._compiled[statement] = {}
        compiled = by_names.get(names)
        if compiled is None:
            compiled = by_names[names] = _Compiled(statement, self._dialect, values)
        return compiled


class _Compiled:
    """One statement: its text, the values that stand in it, and what its values and its rows pass through.

    What passes through what is known to SQLAlchemy's compiler alone: hence its private names.
    """

    def __init__(self, statement: Executable, dialect: Dialect, values: Mapping[str, Any]) -> None:
        compiled: Any = statement.compile(dialect=dialect, column_keys=list(values))  # type: ignore[attr-defined]
        lists = {compiled.bind_names[each] for each in compiled.post_compile_params}
        self._expanding: SQLCompiler | None = compiled if lists & values.keys() else None
        expanded = compiled.construct_expanded_state(values)
        self._text = expanded.statement
        self._of_values = {name: each for name, each in compiled._bind_processors.items() if name not in lists}  # noqa: SLF001
        fixed = {name: value for name, value in expanded.parameters.items() if name not in values}
        self._fixed = _processed(fixed, {**self._of_values, **expanded.processors})
        self._given = {name: each for name, each in self._of_values.items() if name in values}
        self._dialect = dialect
        self._types = [column.type.dialect_impl(dialect) for column in compiled._result_columns]  # noqa: SLF001
        self._answered: Sequence[tuple[int, Callable[[Any], Any]]] = ()
        self._implicit = bool(compiled.implicit_returning)  # asked for by SQLAlchemy, for nobody here
        self._row: Callable[[Iterable[Any]], Row[Any]] | None = None

    def with_values(self, values: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        """Return the text, and all parameters as psycopg2 takes them."""
        if self._expanding is not None:  # into as many parameters as a list is long
            expanded = self._expanding.construct_expanded_state(values)
            return expanded.statement, _processed(expanded.parameters, {**self._of_values, **expanded.processors})
        return self._text, _processed({**self._fixed, **values}, self._given)

    def rows(self, cursor: Any) -> Sequence[Row[Any]]:
        """Return what a cursor has found."""
        if self._implicit:
            return ()
        make = self._row
        if make is None:
            make = self._learn(cursor.description)
        found = cursor.fetchall()
        if not self._answered:
            return [make(row) for row in found]
        return [make(self._read(row)) for row in found]

    def _learn(self, description: Sequence[Any]) -> Callable[[Iterable[Any]], Row[Any]]:
        """Note of the first answer what columns it has; of numbers their type here says too little."""
        columns = enumerate(zip(self._types, description, strict=False))
        found = [(at, kind.result_processor(self._dialect, column.type_code)) for at, (kind, column) in columns]
        self._answered = [(at, process) for at, process in found if process is not None]
        self._row = result_tuple([column.name for column in description])
        return self._row

    def _read(self, row: Sequence[Any]) -> Sequence[Any]:
        values = list(row)
        for at, process in self._answered:
            values[at] = process(values[at])
        return tuple(values)


def _processed(values: Mapping[str, Any], processors: Mapping[str, Any]) -> dict[str, Any]:
    processed = dict(values)
    for name, process in processors.items():
        if name in processed:
            processed[name] = process(processed[name])
    return processed
