"""The Celery task `webhooks.deliver`: what producers call, and one line in Flower for each delivery."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from celery import Celery, Task
from celery.result import AsyncResult
from celery.utils.threads import LocalStack

from webhooks import producing
from webhooks.celery import messages
from webhooks.celery.app import DELIVER, app
from webhooks.errors import NotPossible, Refused


class Deliver(Task):  # type: ignore[misc]
    """`deliver.delay(event)`: record first, then publish. The ledger is the truth, the broker a convenience."""

    Request = "webhooks.celery.showing:Request"
    request_stack = LocalStack()  # Celery makes one when it binds the task, which needs settings

    @classmethod
    def bind(cls, app: Celery) -> Any:
        """Bind to the application; where a setting is missing, Celery would take it for bound, and for good."""
        try:
            return super().bind(app)
        except BaseException:
            cls.__bound__ = False
            raise

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run in a worker. Whoever calls it means `delay`, and would have made the attempt in a process of theirs."""
        if self.request.called_directly:
            raise NotPossible("deliver is not called but sent: deliver.delay(event)")
        return self.run(*args, **kwargs)

    def apply_async(
        self,
        args: tuple[Any, ...] | list[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        task_id: str | None = None,
        countdown: float | None = None,
        eta: datetime | None = None,
        **options: Any,
    ) -> AsyncResult:
        """Accept an event; its first attempt is due now, after `countdown` seconds, or at `eta`.

        Returns, once the event is in the ledger, a handle whose `id` is the event's. Raises InvalidEvent,
        EventConflict, NotPossible (another option, or a wait past the delivery's age), LedgerUnavailable or
        LedgerFault, and then nothing is accepted. A broker that is away is no error: the sweep publishes later.
        """
        event = messages.the_event(args or (), kwargs or {})
        given_id = event.get("id") if isinstance(event, Mapping) else None
        if task_id is not None and task_id != given_id:
            raise NotPossible(f"task_id: leave it out; the delivery's id is the event's, {given_id}")
        if options:
            raise NotPossible(f"deliver takes countdown or eta and no other option, not {', '.join(sorted(options))}")
        return self.AsyncResult(producing.accepting().accept(event, wait=_wait(countdown, eta)))

    def many(self, events: Iterable[Mapping[str, Any]]) -> list[str]:
        """Accept many events; return their ids, in the order in which they were given, once all are in the ledger.

        All are checked before any is recorded; then they are recorded in batches of some hundreds, each as a whole.
        Raises as `delay`, naming events by their position in `events`, counted from 0. Those before the batch that an
        error is about are accepted: `error.accepted` says how many, and the text says so too. The same call again
        sends nothing of them anew, where each event has an id of its own.
        """
        return producing.accepting().accept_many(events)

    def put_back(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], wait: timedelta) -> None:
        """Send the message at hand once more, with what came in it; raises BrokerUnavailable."""
        messages.send(args, self.request.id, wait, kwargs=kwargs)


def _work(task: Deliver, *args: Any, **kwargs: Any) -> Any:
    """Make one attempt. The argument, an event, is an identity that this package published, or complete and by name.

    In Flower a delivery is one line: RETRY while it waits or is held, SUCCESS once delivered, FAILURE with its reason;
    what this returns says which, and in a few words why.
    """
    from webhooks.celery import attempting  # noqa: PLC0415 - a worker's: producers load neither it nor what it needs

    return attempting.work(task, args, kwargs)


deliver: Deliver = app.task(bind=True, base=Deliver, name=DELIVER, throws=(Refused,))(_work)


def _wait(countdown: float | None, eta: datetime | None) -> timedelta:
    if eta is not None:
        return max(eta - datetime.now(UTC if eta.tzinfo else None), timedelta())
    return max(timedelta(seconds=countdown or 0), timedelta())
