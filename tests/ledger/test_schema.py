"""The migrations and the tables say the same."""

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

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
