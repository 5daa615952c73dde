"""What every process has: who hears what happens, and the way to PostgreSQL. Whoever only looks loads no more."""

from __future__ import annotations

from webhooks.ledger.database import Database
from webhooks.observing import log
from webhooks.observing.facts import Fact
from webhooks.observing.many import EndedApart, WaitingAgain
from webhooks.observing.observers import Observers
from webhooks.process.once import once
from webhooks.settings import get_settings


@once
def observers() -> Observers:
    """Return who hears what happens: a list of sinks, of which the log is one."""
    return Observers([log.write, _watchers])


def _watchers(fact: Fact) -> None:
    """Tell those who watch Celery's tasks what they do not hear of otherwise."""
    if isinstance(fact, EndedApart | WaitingAgain):
        from webhooks.celery import watchers  # noqa: PLC0415 - Celery's: whoever only looks does without

        watchers.hear(fact)


@once
def database() -> Database:
    """Return the way to PostgreSQL."""
    return Database(get_settings().database_url.get_secret_value(), observers=observers())
