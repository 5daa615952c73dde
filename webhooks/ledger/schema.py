"""The ledger's migrations: bringing the tables up to date, and saying at start whether they are."""

from __future__ import annotations

import logging

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from webhooks.errors import LedgerOutdated
from webhooks.ledger.database import Database, named

log = logging.getLogger(__name__)

_LOCK = 0x57480001  # two upgrades at once take turns


def upgrade(database: Database) -> tuple[str | None, str]:
    """Bring the tables up to date in one transaction; return the revisions before and after.

    Tables of a later release stay as they are: that release let this one go on working.
    """
    config = _config()
    try:
        with database.engine.connect().execution_options(isolation_level="READ COMMITTED") as connection:
            _check_encoding(connection)
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
            before = MigrationContext.configure(connection).get_current_revision()
            if _is_newer(before, config):
                return before, before or ""
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            connection.commit()
    except SQLAlchemyError as error:
        raise named(error) from error
    return before, _head(config)


def check(database: Database) -> None:
    """Raise LedgerOutdated with what to do when the tables are missing or of an earlier release.

    Workers are replaced one by one: those of this release may be started on the tables of the next.
    """
    try:
        with database.engine.connect() as connection:
            _check_encoding(connection)
            found = MigrationContext.configure(connection).get_current_revision()
    except SQLAlchemyError as error:
        raise named(error) from error
    config = _config()
    if _is_newer(found, config):
        log.warning("the ledger stands at revision %s, of a later release than this one", found)
    elif found != _head(config):
        state = "has no tables yet" if found is None else f"stands at revision {found}, not at this release's"
        raise LedgerOutdated(f"the ledger {state}; run: webhooks db upgrade")


def _check_encoding(connection: Connection) -> None:
    encoding = connection.execute(text("SHOW server_encoding")).scalar_one()
    if encoding != "UTF8":  # an answer in another alphabet could not be written down
        raise LedgerOutdated(f"the ledger's database is encoded in {encoding}; create it with ENCODING 'UTF8'")


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", "webhooks.ledger:migrations")
    return config


def _is_newer(revision: str | None, config: Config) -> bool:
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    return revision is not None and revision not in known


def _head(config: Config) -> str:
    return ScriptDirectory.from_config(config).get_current_head() or ""
