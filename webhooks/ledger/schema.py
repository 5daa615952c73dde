"""The ledger's migrations: bringing the tables up to date, and saying at start whether they are."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, event, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from webhooks.errors import LedgerBusy, LedgerFault, LedgerOutdated, LedgerUnavailable
from webhooks.ledger.connecting import is_busy
from webhooks.ledger.database import Database, unlimited
from webhooks.ledger.faults import named
from webhooks.observing.facts import LedgerNewer
from webhooks.observing.observers import NOBODY, Observers

_UPGRADING = 0x57480001  # two upgrades at once take turns
_ALONE = "SET LOCAL idle_in_transaction_session_timeout = 0; SELECT pg_try_advisory_xact_lock"
_LONGEST_TURN_S, _BETWEEN_TRIES_S = 60.0, 0.2
_TRIES = 5  # for a lock
_BUSY = (
    "the tables cannot be changed now: another session holds a lock on them, or another upgrade is at work; "
    "what was done so far stands: run webhooks db upgrade again when that has ended"
)
# However long a step takes on a large table; but it must not queue behind somebody's lock, with everybody behind it: a
# producer waits 5 s. So it lets everybody through, and tries again.
_OF_EACH_STEP = (
    "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL lock_timeout = '2s'"
)
# Outside of a transaction, where an index is built: it waits for those who were there before, and nobody for it.
_OUTSIDE = "SET statement_timeout = 0; SET lock_timeout = 0"


def upgrade(database: Database) -> tuple[str | None, str]:
    """Bring the tables up to date, each revision in a transaction; return the revisions before and after.

    No step has a limit of time, but for the wait for a lock: LedgerBusy says then what to do. What may take long on a
    large table, such as an index, is built concurrently, in `op.get_context().autocommit_block()`.
    Tables of a later release stay as they are: that release let this one go on working.
    """
    config = _config()
    try:
        with _taking_turns(database), unlimited(database.engine.connect()) as connection:
            connection.execution_options(isolation_level="READ COMMITTED")
            event.listen(connection, "begin", _lift_limits)
            _check_encoding(connection)
            before = MigrationContext.configure(connection).get_current_revision()
            connection.rollback()
            if _is_newer(before, config):
                return before, before or ""
            config.attributes["connection"] = connection
            _lead_to_head(config, connection)
    except SQLAlchemyError as error:
        raise _in_words(named(error)) from error
    return before, _head(config)


@contextmanager
def _taking_turns(database: Database) -> Iterator[None]:
    """Hold the upgrades' lock on a connection of its own, so that migrations may commit as often as they like.

    Whoever waits asks again and again: an index that is built concurrently waits for every statement that is older,
    also for one that waits for this lock.
    """
    ends_s = time.monotonic() + _LONGEST_TURN_S
    with unlimited(database.engine.connect()) as connection:
        connection.execution_options(isolation_level="READ COMMITTED")
        while not connection.execute(text(f"{_ALONE}({_UPGRADING})")).scalar_one():
            connection.rollback()
            if time.monotonic() > ends_s:
                raise LedgerBusy(_BUSY)
            time.sleep(_BETWEEN_TRIES_S)
        yield
        connection.rollback()


def _lead_to_head(config: Config, connection: Connection) -> None:
    """Run what is missing, some times over where a lock can't be had: a revision that has ended stands."""
    try:
        for tries_left in reversed(range(_TRIES)):
            try:
                command.upgrade(config, "head")
                connection.commit()
            except DBAPIError as error:
                if not tries_left or not is_busy(getattr(error.orig, "pgcode", None)):
                    raise
                connection.rollback()
                time.sleep(_BETWEEN_TRIES_S)
            else:
                return
    finally:
        connection.invalidate()  # nobody else gets it, with its limits off


def _lift_limits(connection: Connection) -> None:
    outside = connection.connection.dbapi_connection.autocommit  # type: ignore[union-attr]
    connection.exec_driver_sql(_OUTSIDE if outside else _OF_EACH_STEP)


def _in_words(fault: LedgerUnavailable | LedgerFault) -> LedgerUnavailable | LedgerFault:
    if isinstance(fault, LedgerBusy):
        return LedgerBusy(_BUSY)
    return fault


def check(database: Database, observers: Observers = NOBODY) -> None:
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
        observers.tell(LedgerNewer(str(found)))
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
