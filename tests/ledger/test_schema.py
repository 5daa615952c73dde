"""The migrations and the tables say the same."""

from __future__ import annotations

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext

from tests.command import done, refused
from tests.system import System
from webhooks import parts
from webhooks.ledger import schema
from webhooks.ledger.database import Database
from webhooks.ledger.tables import metadata


def test_migrations_lead_to_the_tables(database_url: str) -> None:
    """A migrated database differs in nothing from what the code declares."""
    database = Database(database_url)
    with database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    schema.check(database)
    database.dispose()


def start_over(system: System, revision: str) -> None:
    """Have the tables of an earlier revision, and nothing in them."""
    system.sql("DROP SCHEMA public CASCADE")
    system.sql("CREATE SCHEMA public")
    config = Config()
    config.set_main_option("script_location", "webhooks.ledger:migrations")
    with parts.database().engine.connect().execution_options(isolation_level="READ COMMITTED") as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        connection.commit()


def test_an_address_without_a_secret_is_named_before_the_tables_change(system: System) -> None:
    """Such a row, made by hand, could never be sent to: the upgrade says which it is, and goes on once it is mended."""
    start_over(system, "0001")
    system.sql("INSERT INTO merchants (id, url) VALUES ('acme', 'https://acme.example/')")
    assert "merchants with an address and no secret: acme; give each" in refused("db", "upgrade")
    assert system.sql("SELECT version_num FROM alembic_version")[0].version_num == "0001"
    done("merchant", "set", "acme", "--generate-secret")
    assert done("db", "upgrade")["before"] == "0001"
