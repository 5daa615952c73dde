"""Tells merchants, by signed webhook, that money has moved.

Producers need two names: `deliver.delay(event)` returns once the event is in the ledger, and
`record(connection, event)` accepts one inside the caller's own database transaction. The errors here are the ones
that they tell apart.
"""

import logging
from collections.abc import Mapping
from typing import Any

from webhooks import parts
from webhooks.celery import control as _control  # noqa: F401 - makes `celery inspect breaker` known
from webhooks.celery.app import app
from webhooks.celery.tasks import deliver
from webhooks.errors import EventConflict, InvalidEvent, LedgerFault, LedgerUnavailable
from webhooks.ledger import recording

__all__ = ["EventConflict", "InvalidEvent", "LedgerFault", "LedgerUnavailable", "app", "deliver", "record"]

logging.getLogger("webhooks").addHandler(logging.NullHandler())  # where nothing is set up, nothing is said on stderr


def record(connection: Any, event: Mapping[str, Any]) -> str:
    """Accept an event inside the transaction that is open on `connection`, to the ledger's database.

    `connection` is a SQLAlchemy Connection or Session (a scoped one too), or a DB-API connection (psycopg, Django).
    The event counts if, and only if, the caller commits; the sweep publishes it after that. Returns the delivery's id.
    Raises InvalidEvent, EventConflict and, for what is no connection, NotPossible; the transaction is then as it was.
    """
    return recording.record(parts.ledger(), connection, event)
