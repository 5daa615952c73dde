"""A PostgreSQL database for each test: empty, migrated, and the same one again where a test left its tables alone.

To copy a template costs more than most tests do. So a database is emptied and handed on; one whose tables, rights or
settings were changed, or that can't be emptied, is thrown away.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import psycopg2

from webhooks.demo.embedded import PostgresServer
from webhooks.ledger import schema
from webhooks.ledger.database import Database

_TEMPLATE = "webhooks_template"

_TABLES = """
SELECT relname FROM pg_class
WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND relname <> 'alembic_version'
"""
_SHAPE = """
SELECT (SELECT (max(oid), count(*), hash_array_extended(array_agg(relacl::text ORDER BY oid), 0)) FROM pg_class
        WHERE relnamespace NOT IN ('pg_toast'::regnamespace) AND relpersistence <> 't')::text,
       (SELECT (count(*), sum(attnum)) FROM pg_attribute WHERE attrelid >= 16384)::text,
       (SELECT array_agg(oid ORDER BY oid) FROM pg_constraint WHERE oid >= 16384)::text,
       (SELECT array_agg(oid ORDER BY oid) FROM pg_trigger)::text,
       (SELECT array_agg(oid ORDER BY oid) FROM pg_proc WHERE oid >= 16384)::text,
       (SELECT array_agg((oid, nspacl)::text ORDER BY oid) FROM pg_namespace)::text,
       (SELECT array_agg((setrole, setconfig)::text) FROM pg_db_role_setting
        WHERE setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database())))::text,
       (SELECT (datallowconn, datconnlimit, datacl)::text FROM pg_database WHERE datname = current_database()),
       (SELECT version_num FROM alembic_version)
"""
_OTHERS = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


class _Kept(NamedTuple):
    name: str
    tables: Sequence[str]
    shape: Any


class Databases:
    """The databases of one PostgreSQL server."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._numbers = itertools.count()
        self._kept: _Kept | None = None
        # Nothing here outlives the server, so that nothing need be on disk.
        self._administer(
            "ALTER SYSTEM SET fsync = off",
            "ALTER SYSTEM SET full_page_writes = off",
            "SELECT pg_reload_conf()",
            f"CREATE DATABASE {_TEMPLATE}",
        )
        template = Database(server.url(_TEMPLATE))
        schema.upgrade(template)
        template.dispose()

    @contextlib.contextmanager
    def one(self) -> Iterator[str]:
        """Give the URL of a migrated, empty database to one test at a time."""
        kept, self._kept = self._kept or self._make(), None
        yield self._server.url(kept.name)
        try:
            self._clean(kept)
            self._kept = kept
        except (psycopg2.Error, _Changed):
            self._administer(f"DROP DATABASE {kept.name} WITH (FORCE)")

    def _make(self) -> _Kept:
        name = f"test_{next(self._numbers)}"
        self._administer(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE} STRATEGY FILE_COPY")
        with self._cursor(name) as cursor:
            cursor.execute(_TABLES)
            tables = [table for (table,) in cursor.fetchall()]
            cursor.execute(_SHAPE)
            return _Kept(name, tables, cursor.fetchone())

    def _clean(self, kept: _Kept) -> None:
        with self._cursor(kept.name) as cursor:
            cursor.execute(_OTHERS)
            cursor.execute(_SHAPE)
            if cursor.fetchone() != kept.shape:
                raise _Changed
            cursor.execute("SELECT " + ", ".join(f"EXISTS (SELECT FROM {table})" for table in kept.tables))
            full = [table for table, has_rows in zip(kept.tables, cursor.fetchone(), strict=True) if has_rows]
            if full:
                cursor.execute(f"TRUNCATE {', '.join(full)} RESTART IDENTITY CASCADE")

    def _administer(self, *statements: str) -> None:
        with self._cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    @contextlib.contextmanager
    def _cursor(self, name: str = "postgres") -> Iterator[Any]:
        connection = psycopg2.connect(self._server.url(name))
        connection.autocommit = True
        try:
            yield connection.cursor()
        finally:
            connection.close()


class _Changed(Exception):
    """The database is not as it was made."""
