"""How a worker consumes: it comes back soon when its broker was away, and no message ends it or gets into its log."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from typing import Any

from celery.worker.consumer import Consumer

from webhooks import parts
from webhooks.accepting.reading import RefusedEvent
from webhooks.celery import channel
from webhooks.celery.app import DELIVER
from webhooks.observing.surroundings import ConnectionUnclosed, EventRefused, EventUnlisted, MessageUnacknowledged

_STEP_S, _LONGEST_S = 0.2, 2.0  # Celery's own waits grow to 30 s, and cannot be set


def persistent(connection: Any) -> Any:
    """Have a connection try again after 0.2, 0.4 … 2 seconds."""
    waits = {"interval_start": _STEP_S, "interval_step": _STEP_S, "interval_max": _LONGEST_S}
    connection.ensure_connection = partial(connection.ensure_connection, **waits)
    return connection


class PersistentConsumer(Consumer):  # type: ignore[misc]
    """Consumes again at most two seconds after the broker is back, however long it was away."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        channel.use()
        self._noting = ThreadPoolExecutor(1, "refused events")  # a slow ledger must not keep the loop waiting
        super().__init__(*args, **kwargs)

    def ensure_connected(self, conn: Any) -> Any:
        """Connect, trying again until the broker is there."""
        return super().ensure_connected(persistent(conn))

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Leave the lost connection behind, even where closing it fails once more; Celery would end the worker."""
        try:
            super().on_connection_error_after_connected(exc)
        except Exception as error:
            parts.observers().tell(ConnectionUnclosed(str(error)))

    def call_soon_ack(self, p: Any, *args: Any, **kwargs: Any) -> Any:
        """Acknowledge a message, or leave it to the broker when the connection it came by has been left behind."""
        return super().call_soon_ack(_unless_left_behind, p, *args, **kwargs)

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Any:
        """Return what takes a message from the broker; one that Celery stumbles over is refused, and ends no worker."""
        handle = super().create_task_handler(*args, **kwargs)

        def take(message: Any) -> None:
            try:
                handle(message)
            except (ValueError, TypeError, LookupError, AttributeError) as error:
                self._refuse(message, f"the message is not one of a task: {type(error).__name__}")

        return take

    # What Celery itself says of these messages holds their bodies.

    def on_decode_error(self, message: Any, exc: BaseException) -> None:
        """Refuse a message that cannot be read."""
        self._refuse(message, f"the message cannot be read: {type(exc).__name__}")

    def on_invalid_task(self, body: Any, message: Any, exc: BaseException) -> None:  # noqa: ARG002
        """Refuse a message that says too little, or comes in a serialisation other than JSON."""
        self._refuse(message, f"the message is not one of a task, or not JSON: {type(exc).__name__}")

    def on_unknown_message(self, body: Any, message: Any) -> None:  # noqa: ARG002
        """Refuse a message that names no task."""
        self._refuse(message, "the message names no task")

    def on_unknown_task(self, body: Any, message: Any, exc: BaseException) -> None:  # noqa: ARG002
        """Refuse a message whose task is not ours: most likely its name was mistyped."""
        name = str(exc.args[0])[:100]
        self._refuse(message, f"there is no task {name!r}; events go to {DELIVER!r}")
        if self.event_dispatcher:
            self.event_dispatcher.send("task-failed", uuid=_task_id(message), exception=f"NotRegistered({name!r})")

    def _refuse(self, message: Any, why: str) -> None:
        """Drop a message, and note what it was."""
        if not message.acknowledged:
            self._acknowledge(message)
        refused = RefusedEvent.of(_event_in(message), _task_id(message), why)
        parts.observers().tell(EventRefused(**asdict(refused)))
        if self.task_consumer and message.channel is self.task_consumer.channel:  # remote control brings no events
            self._noting.submit(_note, refused)

    def _acknowledge(self, message: Any) -> None:
        try:
            message.ack()
        except self.connection_errors as error:
            parts.observers().tell(MessageUnacknowledged(str(error), lost_connection=True))


def _task_id(message: Any) -> str:
    return str((message.headers or {}).get("id") or "unknown")


def _event_in(message: Any) -> object:
    """Find the event in a task's message, if there is one that can be read."""
    try:
        args, kwargs, _ = message.decode()
        return next(filter(lambda each: isinstance(each, dict), [*args, *kwargs.values()]), None)
    except Exception:  # it was refused for a reason
        return None


def _note(refused: RefusedEvent) -> None:
    try:
        parts.refusals().note(refused)
    except Exception as error:  # nobody looks at what this thread raises
        parts.observers().tell(EventUnlisted(str(error)))


def _unless_left_behind(acknowledge: Any, *args: Any, **kwargs: Any) -> None:
    try:
        acknowledge(*args, **kwargs)
    except AttributeError as error:  # kombu looks at a closed connection; the ledger knows a copy by its turn
        parts.observers().tell(MessageUnacknowledged(str(error), lost_connection=True))
