"""How a worker consumes: it comes back soon when its broker was away, and no message ends it or gets into its log.

What it tells the broker all the time, it gathers: what is done for some milliseconds, what Flower shows for 0.2 s.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from typing import Any

from celery.worker.consumer import Consumer

from webhooks import parts
from webhooks.accepting.reading import RefusedEvent
from webhooks.celery import channel, watchers
from webhooks.celery.app import DELIVER
from webhooks.celery.places import Places
from webhooks.celery.pool import Lending, Pool
from webhooks.observing.surroundings import ConnectionUnclosed, EventRefused, EventUnlisted, MessageUnacknowledged

_STEP_S, _LONGEST_S = 0.2, 2.0  # Celery's own waits grow to 30 s, and cannot be set
_EVENTS_EVERY_S = 0.2
_MOST_EVENTS = 500  # in one message to Flower, which is sent at once when it is full


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
        self._eventer: Any = None
        super().__init__(*args, **kwargs)

    def ensure_connected(self, conn: Any) -> Any:
        """Connect, trying again until the broker is there."""
        return super().ensure_connected(persistent(conn))

    def register_with_event_loop(self, hub: Any) -> None:
        """Have the loop do what is done every so often; once for each connection, and Celery ends it with that."""
        super().register_with_event_loop(hub)
        places = self.task_consumer.channel.qos
        if isinstance(places, Places):
            places.serve(hub.call_later)
        lending = Lending(self, places)
        lending.settle()  # before the first message
        hub.call_repeatedly(lending.every_s, lending.settle)
        self._gather_events(hub)

    def _gather_events(self, hub: Any) -> None:
        before, self._eventer = self._eventer, self.event_dispatcher
        if not self._eventer:
            return
        self._eventer.buffer_limit = _MOST_EVENTS
        watchers.send_by(self._eventer.send)
        if before:  # what it had gathered when its connection was lost
            for group, events in before._group_buffer.items():  # noqa: SLF001
                self._eventer._group_buffer[group].extend(events)  # noqa: SLF001
        hub.call_repeatedly(_EVENTS_EVERY_S, self._flush_events)

    def on_send_event_buffered(self) -> None:
        """Leave an event to the next time; Celery would send it, and hardly another one with it."""

    def apply_eta_task(self, task: Any) -> None:
        """Give a message a place whose time has come."""
        places = self.task_consumer.channel.qos if self.task_consumer else None
        if isinstance(places, Places):
            places.begins(task.message.delivery_tag, task.message)
        super().apply_eta_task(task)

    def shutdown(self) -> None:
        """End, once Flower has heard of everything."""
        self._flush_events()
        watchers.send_by(None)
        super().shutdown()

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Leave the lost connection behind, even where closing it fails once more; Celery would end the worker."""
        try:
            super().on_connection_error_after_connected(exc)
        except Exception as error:
            parts.observers().tell(ConnectionUnclosed(str(error)))
        if isinstance(self.pool, Pool):  # which has threads for what goes on from before: all places are there at once
            self.initial_prefetch_count = self.max_prefetch_count
            self._maximum_prefetch_restored = True

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
