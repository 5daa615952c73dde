"""Tells merchants, by signed webhook, that money has moved.

Producers need two names: `deliver.delay(event)` returns once the event is in the ledger, and
`record(connection, event)` accepts one inside the caller's own database transaction; `deliver.many(events)` and
`record_many(connection, events)` accept many. The errors here are the ones
that they tell apart. A name is loaded when it is first asked for: `webhooks.signing` needs the standard library only.
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from webhooks import signing
    from webhooks.celery.app import app
    from webhooks.celery.tasks import deliver
    from webhooks.errors import EventConflict, InvalidEvent, LedgerFault, LedgerUnavailable
    from webhooks.producing import record, record_many

__all__ = [
    "EventConflict",
    "InvalidEvent",
    "LedgerFault",
    "LedgerUnavailable",
    "app",
    "deliver",
    "record",
    "record_many",
    "signing",
]

logging.getLogger("webhooks").addHandler(logging.NullHandler())  # where nothing is set up, nothing is said on stderr

_FROM = {
    "app": "webhooks.celery.tasks",  # so that it knows the task
    "deliver": "webhooks.celery.tasks",
    **dict.fromkeys(("record", "record_many"), "webhooks.producing"),
    **dict.fromkeys(("EventConflict", "InvalidEvent", "LedgerFault", "LedgerUnavailable"), "webhooks.errors"),
}

if not TYPE_CHECKING:  # a type checker would believe that there is every name

    def __getattr__(name: str) -> Any:
        if name == "signing":
            return import_module("webhooks.signing")
        if name not in _FROM:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_FROM[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
