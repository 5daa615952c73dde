"""The migrations and the tables say the same."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import psycopg2
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text

from tests.command import done, refused
from tests.system import System
from webhooks import parts
from webhooks.ledger import schema
from webhooks.ledger.database import Database, unlimited
from webhooks.ledger.side_tables import every_table as metadata


def test_migrations_lead_to_the_tables(database_url: str) -> None:
    """A migrated database differs in nothing from what the code declares."""
    database = Database(database_url)
    with database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    schema.check(database)
    database.dispose()


_LONG = """
from alembic import op
revision = "9999"
down_revision = "{head}"
def upgrade():
    op.execute("SELECT pg_sleep(0.2)")
    with op.get_context().autocommit_block():
        op.execute("SELECT pg_sleep(0.2)")
        op.create_index("of_a_large_table", "deliveries", ["type"], postgresql_concurrently=True, if_not_exists=True)
"""


def test_a_long_migration_is_not_cut_off(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step may take as long as it takes, whatever limit the database has, and an index is built concurrently."""
    (tmp_path / "9999_long.py").write_text(_LONG.format(head=schema._head(schema._config())))
    config = schema._config()
    config.set_main_option("version_locations", f"webhooks.ledger:migrations/versions;{tmp_path}")
    config.set_main_option("path_separator", ";")
    monkeypatch.setattr(schema, "_config", lambda: config)
    database = Database(database_url)
    _limit_statements(database)
    assert schema.upgrade(database)[1] == "9999"
    (row,) = database.rows(text("SELECT indisvalid FROM pg_index WHERE indexrelid = 'of_a_large_table'::regclass"))
    assert row.indisvalid
    database.rows(text("DROP INDEX of_a_large_table"))
    database.dispose()


def _limit_statements(database: Database) -> None:
    name = database.rows(text("SELECT current_database()"))[0][0]
    database.rows(text(f"ALTER DATABASE {name} SET statement_timeout = '100ms'"))
    database.dispose()


def test_two_upgrades_at_once_take_turns(database_url: str) -> None:
    """Both succeed: one makes the tables, the other finds them."""
    database = Database(database_url)
    database.rows(text("DROP SCHEMA public CASCADE"))
    database.rows(text("CREATE SCHEMA public"))
    with ThreadPoolExecutor(2) as pool:
        found = [done.result() for done in [pool.submit(schema.upgrade, database) for _ in range(2)]]
    head = schema._head(schema._config())
    assert sorted(found, key=str) == sorted([(None, head), (head, head)], key=str)
    database.dispose()


def start_over(system: System, revision: str) -> None:
    """Have the tables of an earlier revision, and nothing in them."""
    system.sql("DROP SCHEMA public CASCADE")
    system.sql("CREATE SCHEMA public")
    upgrade_to(revision)


def upgrade_to(revision: str) -> None:
    """Go as far as a revision."""
    config = Config()
    config.set_main_option("script_location", "webhooks.ledger:migrations")
    with unlimited(parts.database().engine.connect()) as connection:
        connection.execution_options(isolation_level="READ COMMITTED")
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        connection.commit()


def test_an_address_without_a_secret_is_named_before_the_tables_change(system: System) -> None:
    """Such a row, made by hand, could never be sent to: the upgrade says which it is, and goes on once it is mended."""
    start_over(system, "0001")
    system.sql("INSERT INTO merchants (id, url) VALUES ('acme', 'https://acme.example/')")
    assert (
        "merchants with an address and no secret, to which nothing was ever sent: acme; take each address away"
        in refused("db", "upgrade")
    )
    assert system.sql("SELECT version_num FROM alembic_version")[0].version_num == "0001"
    system.sql("UPDATE merchants SET url = NULL WHERE id = 'acme'")
    assert done("db", "upgrade")["before"] == "0001"


def test_a_lock_that_an_upgrade_cannot_get_is_one_line(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what to do, and leaves the tables as they were."""
    monkeypatch.setattr(schema, "_OF_EACH_STEP", "SET LOCAL lock_timeout = '50ms'")
    start_over(system, "0001")
    with parts.database().transaction() as somebody:
        somebody.rows(text("LOCK TABLE deliveries IN ACCESS SHARE MODE"))
        assert "run webhooks db upgrade again" in refused("db", "upgrade")
    assert done("db", "upgrade")["before"] == "0001"


def test_an_upgrade_lets_everybody_through_and_tries_again(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody queues behind it for longer than it waits for a lock; once that is free, it goes on by itself."""
    monkeypatch.setattr(schema, "_OF_EACH_STEP", "SET LOCAL lock_timeout = '50ms'")
    start_over(system, "0001")
    with psycopg2.connect(system.environment["WEBHOOKS_DATABASE_URL"]) as somebody:
        somebody.cursor().execute("LOCK TABLE deliveries IN ACCESS SHARE MODE")
        between = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _seconds: somebody.rollback())
        monkeypatch.setattr(schema, "time", between)
        assert done("db", "upgrade")["before"] == "0001"
