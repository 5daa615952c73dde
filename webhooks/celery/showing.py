"""What Flower is told of a task: how it ended, in the few words that it returned."""

from __future__ import annotations

from typing import Any

from celery.states import FAILURE, IGNORED, RETRY, SUCCESS
from celery.worker.request import Request as CeleryRequest

from webhooks.celery import endings
from webhooks.celery.endings import Ending

_EVENTS = {SUCCESS: "task-succeeded", RETRY: "task-retried", FAILURE: "task-failed"}


def event_of(ending: Ending) -> tuple[str, dict[str, Any]]:
    """Return the event that tells an ending. What Flower still knows of the task's earlier ones goes."""
    exception = None if ending.state == SUCCESS else ending.words
    return _EVENTS[ending.state], {"result": ending.words, "exception": exception, "traceback": None}


class Request(CeleryRequest):  # type: ignore[misc]
    """A message of ours in a worker. Celery acknowledges and counts it as one whose task returned."""

    def send_event(self, type: str, **fields: Any) -> None:  # noqa: A002 - Celery's name for it
        """Tell Flower; the result of a task that waits or failed says so."""
        if type == "task-succeeded":
            ending = endings.read(fields["result"])
            if ending is None or ending.state == IGNORED:
                return
            type, told = event_of(ending)  # noqa: A001
            fields |= told
        elif "exception" in fields:  # of an event by name, or a mistake of ours
            fields["result"] = fields["exception"]
        super().send_event(type, **fields)
