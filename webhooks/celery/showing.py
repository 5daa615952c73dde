"""What Flower is told of a task: how it ended, in the few words that it returned."""

from __future__ import annotations

from typing import Any

from celery.states import IGNORED
from celery.worker.request import Request as CeleryRequest

from webhooks.celery import endings, watchers


class Request(CeleryRequest):  # type: ignore[misc]
    """A message of ours in a worker. Celery acknowledges and counts it as one whose task returned."""

    def send_event(self, type: str, **fields: Any) -> None:  # noqa: A002 - Celery's name for it
        """Tell Flower; the result of a task that waits or failed says so."""
        if type == "task-succeeded":
            ending = endings.read(fields["result"])
            if ending is None or ending.state == IGNORED:
                return
            type, told = watchers.event_of(ending.state, ending.words)  # noqa: A001
            fields |= told
        elif "exception" in fields:  # of an event by name, or a mistake of ours
            fields["result"] = fields["exception"]
        super().send_event(type, **fields)
