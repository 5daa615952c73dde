"""Every fault of the way to the broker has one name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from celery import Celery
from kombu.exceptions import KombuError

from webhooks.errors import BrokerUnavailable


@contextmanager
def told_apart(app: Celery) -> Iterator[None]:
    """Name every fault of the way to the broker BrokerUnavailable."""
    faults = _faults_of(app)
    try:
        yield
    except faults as error:
        first_line = str(error).strip().partition("\n")[0]  # such as: certificate verify failed
        raise BrokerUnavailable(f"the broker cannot be reached: {first_line or type(error).__name__}") from error


@cache
def _faults_of(app: Celery) -> tuple[type[Exception], ...]:
    """Return what the application's transport raises: asking a connection for it costs as much as half a message."""
    connection = app.connection_for_write()
    return (KombuError, OSError, *connection.connection_errors, *connection.channel_errors)
