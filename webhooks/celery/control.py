"""Remote control of one breaker or worker: `celery -A webhooks inspect breaker M`, `control reset_breaker M`.

M is a merchant, which stands for its default endpoint, or the id of another endpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from functools import wraps
from typing import Any, NoReturn

from celery.app.control import Control as CeleryControl
from celery.signals import task_received, worker_ready
from celery.worker.control import Panel, control_command, inspect_command

from webhooks import parts
from webhooks.celery import messages, watchers
from webhooks.celery.app import SWEEP, app
from webhooks.errors import NotPossible, WebhooksError
from webhooks.model import Operator
from webhooks.observing.surroundings import RevokeRefused
from webhooks.operating import breakers, terminal

_NOT_REVOKED = "deliveries are not revoked; use: webhooks delivery cancel ID --why …"


class Control(CeleryControl):  # type: ignore[misc]
    """Remote control that says who asks: workers cannot know, and the audit wants a name."""

    def broadcast(self, command: str, arguments: dict[str, Any] | None = None, **options: Any) -> Any:
        """Send a command to the workers."""
        if command == "reset_breaker":
            arguments = {"who": terminal.operator().name, **(arguments or {})}
        return super().broadcast(command, arguments, **options)

    def revoke(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse what workers would refuse: Flower and `AsyncResult.revoke()` wait for no answer of theirs."""
        raise NotPossible(_NOT_REVOKED)

    revoke_by_stamped_headers = revoke


def _answered(command: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Answer a mistake and a part that is away with one line."""

    @wraps(command)
    def answered(_state: Any, merchant_id: str = "", **more: str) -> dict[str, Any]:
        try:
            if not merchant_id:
                raise NotPossible(f"which merchant? Say: {command.__name__} MERCHANT")
            return command(_state, merchant_id, **more)
        except WebhooksError as error:
            return {"error": str(error)}

    return answered


@inspect_command(args=[("merchant_id", str)], signature="MERCHANT")  # type: ignore[untyped-decorator]
@_answered
def breaker(_state: Any, merchant_id: str) -> dict[str, Any]:
    """Show a breaker: state, window counts, pause, since when, who probes, how many are held. Or name an endpoint."""
    found = breakers.show(merchant_id)
    shown = {"merchant_id": found.merchant_id, **asdict(found.breaker), "held": found.held}
    return {name: plain(value) for name, value in shown.items()}


@inspect_command()  # type: ignore[untyped-decorator]
def consuming(state: Any) -> dict[str, Any]:
    """Show from which queues this worker takes messages, for how long it has taken none, and whether it has room."""
    consumer = state.consumer.task_consumer
    queues = sorted(queue.name for queue in consumer.queues) if consumer else []
    now_s = time.monotonic()
    return {
        "queues": queues,
        "cancelled": sorted(_started_with.keys() - set(queues)),
        "quiet_s": {queue: round(now_s - _took_s.get(queue, _started_with.get(queue, now_s)), 3) for queue in queues},
        "room": bool(consumer and consumer.channel.qos.can_consume()),
    }


_started_with: dict[str, float] = {}  # this worker's queues, and since when it takes from them
_took_s: dict[str, float] = {}  # when it last took a message from which


@worker_ready.connect  # type: ignore[untyped-decorator]
def _note_start(sender: Any, **_: Any) -> None:
    if sender.app is not app:
        return  # a producer's own worker
    _started_with.update(dict.fromkeys(sender.app.amqp.queues.consume_from, time.monotonic()))


@task_received.connect  # type: ignore[untyped-decorator]
def _note_message(request: Any, **_: Any) -> None:
    queue = request.delivery_info["routing_key"]
    _took_s[queue] = time.monotonic()
    queued_at = messages.queued_at(request.message.headers)
    if queued_at is not None:
        parts.lookout().took(queue, queued_at)


@control_command(args=[("merchant_id", str), ("who", str)], signature="MERCHANT [WHO]")  # type: ignore[untyped-decorator]
@_answered
def reset_breaker(_state: Any, merchant_id: str, who: str = "somebody") -> dict[str, Any]:
    """Close a breaker; what it holds is released at once, paced. However many workers hear it: once."""
    faster = breakers.reset_once(Operator(who, "by celery control"), merchant_id).faster
    return {"ok": f"breaker of {merchant_id} " + ("reset" if faster is None else f"was just reset, by {faster}")}


@control_command(name=watchers.COMMAND)  # type: ignore[untyped-decorator]
def _tell_ended(state: Any, **told: Any) -> None:
    """Tell Flower what became of deliveries by hand, where this worker sweeps; `webhooks` asks for it."""
    consumer = state.consumer.task_consumer
    if state.app is app and consumer and any(queue.name == SWEEP for queue in consumer.queues):
        watchers.tell(told["delivery_ids"][: watchers.TOGETHER], told["ending"], told["words"])


def _refused_here(original: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse a command for workers of this application; a producer's own workers keep theirs."""

    @wraps(original)
    def command(state: Any, *arguments: Any, **options: Any) -> Any:
        if state.app is not app:
            return original(state, *arguments, **options)
        parts.observers().tell(RevokeRefused())
        return {"error": _NOT_REVOKED}

    return command


# Celery's revoke lives in the workers' memory: the ledger would publish the delivery again and again, and each worker
# drop it until it forgets or restarts. An operator who presses the button in Flower gets a clear no instead (F5).
for _name in ("revoke", "terminate", "revoke_by_stamped_headers"):
    Panel.data[_name] = _refused_here(Panel.data[_name])


def plain(value: Any) -> Any:
    """Write moments as text and durations as seconds: control replies are JSON."""
    if isinstance(value, datetime):
        return value.isoformat()
    return value.total_seconds() if hasattr(value, "total_seconds") else value
