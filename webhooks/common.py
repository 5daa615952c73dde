"""What every process has: who hears what happens, and the way to PostgreSQL. Whoever only looks loads no more."""

from __future__ import annotations

from webhooks.errors import SettingsError
from webhooks.ledger.database import Database
from webhooks.observing import log
from webhooks.observing.facts import Fact
from webhooks.observing.many import EndedApart, WaitingAgain
from webhooks.observing.observers import Observers
from webhooks.process.once import once
from webhooks.settings import get_settings
from webhooks.telling.noting import Noting


@once
def observers() -> Observers:
    """Return who hears what happens: a list of sinks, of which the log is one."""
    return Observers([log.sink_for(_log_style()), noting(), _watchers])


def _log_style() -> log.LogStyle:
    try:
        return get_settings().log
    except SettingsError:  # whoever needs them says so; what happens before that is told all the same
        return log.LogStyle.TEXT


@once
def noting() -> Noting:
    """Return the sink that notes what operators are to be told."""
    return Noting(database, observers)


def _watchers(fact: Fact) -> None:
    """Tell those who watch Celery's tasks what they do not hear of otherwise."""
    if isinstance(fact, EndedApart | WaitingAgain):
        from webhooks.celery import watchers  # noqa: PLC0415 - Celery's: whoever only looks does without

        watchers.hear(fact)


@once
def database() -> Database:
    """Return the way to PostgreSQL."""
    return Database(get_settings().database_url.get_secret_value(), observers=observers())
