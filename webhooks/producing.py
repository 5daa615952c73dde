"""The parts of a process that accepts events, and `record`. Nothing here loads what only workers and operators need."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from webhooks.accepting.accepting import Accepting
from webhooks.accepting.bursts import Bursts
from webhooks.celery import messages
from webhooks.ledger import guest
from webhooks.ledger.database import Database
from webhooks.ledger.ledger import Ledger
from webhooks.observing import log
from webhooks.observing.observers import Observers
from webhooks.process.once import once
from webhooks.publishing import Publisher
from webhooks.settings import get_settings


@once
def observers() -> Observers:
    """Return who hears what happens: a list of sinks, of which the log is one."""
    return Observers([log.write])


@once
def database() -> Database:
    """Return the way to PostgreSQL."""
    return Database(get_settings().database_url.get_secret_value(), observers=observers())


@once
def ledger() -> Ledger:
    """Return the ledger as producers and workers use it."""
    settings = get_settings()
    return Ledger(
        database(),
        settings.cipher,
        max_age=settings.max_age,
        lease=settings.lease,
        recover_after=settings.recover_after,
        patience=settings.ledger_timeout,
    )


@once
def publisher() -> Publisher:
    """Return this process's way to the broker."""
    return Publisher(messages.publish_all, ledger(), observers())


@once
def accepting() -> Accepting:
    """Return what accepts events."""
    settings = get_settings()
    return Accepting(
        ledger=ledger(),
        publisher=publisher(),
        inside=partial(guest.record, ledger()),
        max_age=settings.max_age,
        ahead=settings.ahead,
        bursts=Bursts(time.monotonic),
        keys=settings.keys,
    )


def record(connection: Any, event: Mapping[str, Any]) -> str:
    """Accept an event inside the transaction that is open on `connection`, to the ledger's database.

    `connection` is a SQLAlchemy Connection or Session (a scoped one too), or a DB-API connection (psycopg, Django).
    The event counts if, and only if, the caller commits; the sweep publishes it after that. Returns the event's id.
    Raises InvalidEvent, EventConflict and, for what is no connection, NotPossible; the transaction is then as it was.
    """
    return accepting().record(connection, event)


def record_many(connection: Any, events: Iterable[Mapping[str, Any]]) -> list[str]:
    """Accept events inside the transaction that is open on `connection`, as `record` does one: all of them or none.

    Returns the ids in the order in which the events were given. What is raised names an event by its position in that
    order, counted from 0, and the transaction is then as it was.
    """
    return accepting().record_many(connection, events)
