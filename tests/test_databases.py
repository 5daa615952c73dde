"""Each test finds a database as if it were new, although most get one that another has used."""

from __future__ import annotations

import psycopg2
import pytest

from tests.databases import Databases

_ROW = "INSERT INTO audit (who, what) VALUES ('me', 'this')"
_SET = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET {}', current_database()); END $$"


def ask(url: str, statement: str) -> list[tuple[object, ...]]:
    """Run one statement and return its rows."""
    connection = psycopg2.connect(url)
    connection.autocommit = True
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []
    finally:
        connection.close()


def test_the_same_database_is_handed_on_empty(databases: Databases) -> None:
    """Rows are gone, numbers begin anew, and sessions that were left open are ended."""
    with databases.one() as first:
        ask(first, _ROW)
        left_open = psycopg2.connect(first)
        left_open.cursor().execute(_ROW)
    with databases.one() as second:
        assert second == first
        assert ask(second, f"{_ROW} RETURNING id") == [(1,)]
    with pytest.raises(psycopg2.OperationalError):
        left_open.cursor().execute("SELECT 1")


@pytest.mark.parametrize(
    "change",
    [
        "DROP TABLE attempts, alembic_version",
        "ALTER TABLE endpoints ADD COLUMN mood text",
        "ALTER TABLE endpoints DROP CONSTRAINT address_has_a_secret",
        "CREATE INDEX ON audit (who)",
        "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "REVOKE INSERT ON audit FROM CURRENT_USER",
        _SET.format("work_mem = ''1MB''"),
        _SET.format("default_transaction_read_only = on"),
        "UPDATE alembic_version SET version_num = 'next'",
    ],
)
def test_a_changed_one_is_thrown_away(databases: Databases, change: str) -> None:
    """Whatever a test does to the tables, rights and settings, the next one sees nothing of it."""
    with databases.one() as first:
        ask(first, change)
    with databases.one() as second:
        assert second != first
