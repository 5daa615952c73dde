"""The way of worker and beat back to a broker that was away: soon, and without a person."""

from __future__ import annotations

import logging
from functools import cached_property, partial
from typing import Any

from celery.beat import Scheduler
from celery.worker.consumer import Consumer

from webhooks import channel

log = logging.getLogger(__name__)

_STEP_S, _LONGEST_S = 0.2, 2.0  # Celery's own waits grow to 30 s, and cannot be set


def persistent(connection: Any) -> Any:
    """Have a connection try again after 0.2, 0.4 … 2 seconds."""
    waits = {"interval_start": _STEP_S, "interval_step": _STEP_S, "interval_max": _LONGEST_S}
    connection.ensure_connection = partial(connection.ensure_connection, **waits)
    return connection


class PersistentScheduler(Scheduler):  # type: ignore[misc]
    """Beat that sends its sweeps again soon after the broker is back."""

    @cached_property
    def connection(self) -> Any:
        """The way to the broker."""
        return persistent(self.app.connection_for_write())


class PersistentConsumer(Consumer):  # type: ignore[misc]
    """Consumes again at most two seconds after the broker is back, however long it was away."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        channel.use()
        super().__init__(*args, **kwargs)

    def ensure_connected(self, conn: Any) -> Any:
        """Connect, trying again until the broker is there."""
        return super().ensure_connected(persistent(conn))

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Leave the lost connection behind, even where closing it fails once more; Celery would end the worker."""
        try:
            super().on_connection_error_after_connected(exc)
        except Exception as error:
            log.warning("broker.away: the lost connection could not be closed in order: %s", error)

    def call_soon_ack(self, p: Any, *args: Any, **kwargs: Any) -> Any:
        """Acknowledge a message, or leave it to the broker when the connection it came by has been left behind."""
        return super().call_soon_ack(_unless_left_behind, p, *args, **kwargs)


def _unless_left_behind(acknowledge: Any, *args: Any, **kwargs: Any) -> None:
    try:
        acknowledge(*args, **kwargs)
    except AttributeError as error:  # kombu looks at a closed connection; the ledger knows a copy by its turn
        log.info("a message that came by a lost connection was not acknowledged: %s", error)
