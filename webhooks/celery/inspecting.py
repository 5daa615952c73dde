"""Remote control that looks at the whole: `celery -A webhooks inspect held`, `inspect overdue`, `inspect sweep`.

A worker answers within a second or says in a line why not: it hears nothing else meanwhile, and Celery waits no longer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from functools import wraps
from typing import Any

from celery.worker.control import inspect_command

from webhooks import parts, watching
from webhooks.celery.control import plain
from webhooks.errors import NotPossible, WebhooksError
from webhooks.observing.facts import Fact

_WITHIN = timedelta(seconds=0.8)
_MOST = 100


def _answered(command: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Answer a mistake, a part that is away and one that is slow with one line."""

    @wraps(command)
    def answered(_state: Any, *arguments: int, **named: int) -> dict[str, Any]:
        try:
            with parts.database().within(_WITHIN):
                return command(*arguments, **named)
        except WebhooksError as error:
            return {"error": str(error)}

    return answered


@inspect_command(args=[("most", int)], signature="[N]")  # type: ignore[untyped-decorator]
@_answered
def held(most: int = 10) -> dict[str, Any]:
    """Show how many deliveries are held for what, and the N endpoints that hold the most; 10 unless told."""
    _check(most)
    by_cause = parts.views().count_held()
    return {
        "held": sum(by_cause.values()),
        "held_for": {cause.value: number for cause, number in by_cause.items()},
        "endpoints": [
            {name: plain(value) for name, value in asdict(heap).items()} for heap in parts.views().holding_most(most)
        ],
    }


@inspect_command(args=[("most", int)], signature="[N]")  # type: ignore[untyped-decorator]
@_answered
def overdue(most: int = 10) -> dict[str, Any]:
    """Show the N deliveries that are longest past their due time, and since when; 10 unless told."""
    _check(most)
    return {
        "overdue": [
            {
                "id": each.delivery_id,
                "merchant_id": each.merchant_id,
                "type": each.type,
                "attempts": each.attempts,
                "due_at": plain(each.due_at),
                "overdue_s": plain(each.span),
            }
            for each in parts.views().overdue(most)
        ]
    }


@inspect_command()  # type: ignore[untyped-decorator]
@_answered
def sweep() -> dict[str, Any]:
    """Show when a sweep was last done, and by which process; of the worker that does them, what it did and how long."""
    done = parts.pulse().last_done()
    here = {name.partition(".")[2]: _as_told(*kept) for name, kept in watching.latest_sweeps().all().items()}
    return {"last_done": plain(done.finished_at), "ago_s": plain(done.ago), "by": done.by, "here": here or None}


def _check(most: int) -> None:
    if not 1 <= most <= _MOST:
        raise NotPossible(f"say how many to show: 1 to {_MOST}")


def _as_told(fact: Fact, ago: timedelta) -> dict[str, Any]:
    """Return a fact in its own words."""
    told = {**asdict(fact), "ago": ago}
    return {f"{name}_s" if isinstance(value, timedelta) else name: plain(value) for name, value in told.items()}
