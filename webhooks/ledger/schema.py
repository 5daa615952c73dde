"""The ledger's migrations: bringing the tables up to date, and saying at start whether they are."""

from __future__ import annotations

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from webhooks.errors import LedgerOutdated
from webhooks.ledger.database import Database, named

_LOCK = 0x57480001  # two upgrades at once take turns


def upgrade(database: Database) -> tuple[str | None, str]:
    """Bring the tables up to date in one transaction; return the revisions before and after."""
    config = _config()
    try:
        with database.engine.connect().execution_options(isolation_level="READ COMMITTED") as connection:
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
            before = MigrationContext.configure(connection).get_current_revision()
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            connection.commit()
    except SQLAlchemyError as error:
        raise named(error) from error
    return before, _head(config)


def check(database: Database) -> None:
    """Raise LedgerOutdated with what to do when the tables are missing or of another release."""
    try:
        with database.engine.connect() as connection:
            found = MigrationContext.configure(connection).get_current_revision()
    except SQLAlchemyError as error:
        raise named(error) from error
    if found != _head(_config()):
        state = "has no tables yet" if found is None else f"stands at revision {found}, not at this release's"
        raise LedgerOutdated(f"the ledger {state}; run: webhooks db upgrade")


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", "webhooks.ledger:migrations")
    return config


def _head(config: Config) -> str:
    return ScriptDirectory.from_config(config).get_current_head() or ""
