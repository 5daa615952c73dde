"""What goes wrong on the way to PostgreSQL, named by what the catcher does next."""

from __future__ import annotations

from typing import Any

import psycopg2
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from webhooks.errors import AnswerLost, LedgerBusy, LedgerFault, LedgerOutdated, LedgerUnavailable
from webhooks.ledger.connecting import READ_ONLY, condemns, is_away, is_busy, is_outdated

_OF_THE_CONNECTION = (psycopg2.OperationalError, psycopg2.InterfaceError)  # what has no SQLSTATE never reached a server


class Unconfirmed(SQLAlchemyError):
    """It took longer than its bound: it was done, or cancelled, or nobody knows."""


class Starved(SQLAlchemyError):
    """This machine has no descriptor or thread left."""


_OF_THIS_SIDE = (
    (PoolTimeout, LedgerBusy, "the ledger is busy: no database connection became free in time"),
    (Starved, LedgerBusy, "the ledger cannot be asked: this machine has no descriptor or thread left"),
    (
        Unconfirmed,
        AnswerLost,
        "the ledger cannot be used: it confirmed nothing in time (is the standby of synchronous_standby_names there?)",
    ),
)


def judge(context: Any) -> None:
    """Give up the connection, and all that are as old, over an error that condemns the session."""
    if condemns(getattr(context.original_exception, "pgcode", None)):
        context.is_disconnect = True


def was_refused(error: DBAPIError) -> bool:
    """Whether a session that takes no writes has refused, so that surely nothing was done."""
    return getattr(error.orig, "pgcode", None) == READ_ONLY


def named(error: SQLAlchemyError) -> LedgerUnavailable | LedgerFault:
    """Put a driver's error into one line for a person; statements and values stay out of it."""
    for kind, fault, text in _OF_THIS_SIDE:
        if isinstance(error, kind):
            return fault(text)
    cause = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(cause, "pgcode", None)
    line = str(cause).strip().partition("\n")[0] or type(cause).__name__
    if is_outdated(code):
        return LedgerOutdated(f"the ledger has no tables yet, or older ones ({line}); run: webhooks db upgrade")
    if is_busy(code):
        return LedgerBusy(f"the ledger is busy: {line}")
    broken = isinstance(error, DBAPIError) and error.connection_invalidated
    if not (broken or isinstance(cause, _OF_THE_CONNECTION) if code is None else is_away(code)):
        return LedgerFault(f"the ledger refuses: {line}")
    if broken and code != READ_ONLY:
        return AnswerLost(f"the ledger cannot be used: {line}")
    return LedgerUnavailable(f"the ledger cannot be used: {line}")
