"""The Celery tasks: `webhooks.deliver`, one line in Flower for each delivery, `webhooks.sweep` and `webhooks.prune`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, assert_never

from celery import Celery, Task
from celery.exceptions import Ignore
from celery.result import AsyncResult
from celery.utils.threads import LocalStack

from webhooks import intake, parts
from webhooks.celery import by_name, messages
from webhooks.celery.app import DELIVER, PRUNE, TICK, app
from webhooks.delivery import SetAside
from webhooks.errors import (
    LedgerFault,
    NotPossible,
    Refused,
    Unavailable,
)
from webhooks.model import Message
from webhooks.observing import facts
from webhooks.policy.decisions import Decision, Delivered, Failed, RetryAt
from webhooks.settings import get_settings

_PRUNING_S = 10.0  # a minute: the sweep waits behind it, and must not seem to stand still


class DeliveryFailed(Exception):
    """Shown in Flower on a FAILURE; the text is the reason."""


class Deliver(Task):  # type: ignore[misc]
    """`deliver.delay(event)`: record first, then publish. The ledger is the truth, the broker a convenience."""

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

        Returns, once the event is in the ledger, a handle whose `id` is the delivery's id. Raises InvalidEvent,
        EventConflict, NotPossible (another option, or a wait past the delivery's age), LedgerUnavailable or
        LedgerFault, and then nothing is accepted. A broker that is away is no error: the sweep publishes later.
        """
        event = intake.read(by_name.the_event(args or (), kwargs or {}))
        if task_id not in {None, event.id}:
            raise NotPossible(f"task_id: leave it out; the delivery's id is the event's, {event.id}")
        if options:
            raise NotPossible(f"deliver takes countdown or eta and no other option, not {', '.join(sorted(options))}")
        wait = _wait(countdown, eta)
        if wait >= get_settings().max_age:
            raise NotPossible("countdown, eta: by then the delivery would have expired")
        # A longer countdown would lie in some worker's memory: it waits in the ledger, and the sweep publishes it.
        queued = wait <= get_settings().ahead and parts.publisher().may_try()
        for message in parts.ledger().record(event, wait=wait, queued=queued):
            if queued:
                parts.publisher().publish(message, wait)
        return self.AsyncResult(event.id)

    def put_back(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], wait: timedelta) -> None:
        """Send the message at hand once more, with what came in it; raises BrokerUnavailable."""
        messages.send(args, self.request.id, wait, kwargs=kwargs)


@app.task(bind=True, base=Deliver, name=DELIVER, throws=(DeliveryFailed, Refused))  # type: ignore[untyped-decorator]
def deliver(task: Deliver, *args: Any, **kwargs: Any) -> None:
    """Make one attempt. The argument, an event, is an identity that this package published, or complete and by name.

    In Flower a delivery is one line: RETRY while it waits or is held, SUCCESS once delivered, FAILURE with its reason.
    """
    headers = task.request.headers or {}
    if "turn" not in headers:
        by_name.accept(task, args, kwargs)
    (event,) = args
    match _attempt(messages.read(event, headers)):
        case Delivered():
            return
        case RetryAt(due_at=due_at, ladder=ladder):
            on = f"on the {ladder} ladder" if ladder else "after a fault of ours"
            raise by_name.waiting(f"{on} until {due_at:%Y-%m-%d %H:%M:%S} UTC")
        case Failed(reason=reason):
            raise DeliveryFailed(reason.value)
        case SetAside(held_for=None):
            raise Ignore
        case SetAside(held_for=held_for):
            raise by_name.waiting(f"held for {held_for}")
        case never:
            assert_never(never)


def _attempt(message: Message) -> Decision | SetAside:
    """Make one attempt; a fault of ours ends it, and the sweep sees to the row, which is still due."""
    try:
        return parts.courier().attempt(message)
    except Unavailable as error:
        parts.observers().tell(facts.Interrupted(message.id, str(error), of_outage=error.told_once))
        raise by_name.waiting(str(error)) from None
    except LedgerFault as error:
        parts.observers().tell(facts.Interrupted(message.id, str(error), for_good=True))
        raise by_name.waiting(str(error)) from None


@app.task(name=TICK, send_events=False)  # type: ignore[untyped-decorator]
def sweep() -> None:
    """Do one tick of the sweep; see `webhooks.sweep`. Ticks that come in a burst cost one statement each."""
    try:
        parts.sweeper().tick(rest=get_settings().sweep_interval / 2)
    except Unavailable as error:
        parts.observers().tell(facts.SweepStopped(str(error), of_outage=error.told_once))
    except LedgerFault as error:
        parts.observers().tell(facts.SweepStopped(str(error), for_good=True))


@app.task(name=PRUNE, send_events=False)  # type: ignore[untyped-decorator]
def prune() -> None:
    """Forget the bodies and attempts of long finished deliveries, in small batches."""
    began_s, number = time.monotonic(), 0
    try:
        while (more := parts.pruning().prune()) and time.monotonic() < began_s + _PRUNING_S:
            number += more
    except (Unavailable, LedgerFault) as error:
        parts.observers().tell(facts.PruningStopped(str(error)))
    else:
        took = timedelta(seconds=time.monotonic() - began_s)
        parts.observers().tell(facts.Pruned(number + more, took))


def _wait(countdown: float | None, eta: datetime | None) -> timedelta:
    if eta is not None:
        return max(eta - datetime.now(UTC if eta.tzinfo else None), timedelta())
    return max(timedelta(seconds=countdown or 0), timedelta())
