"""What a worker looks at when it starts, and what it does when it is told to stop."""

from __future__ import annotations

import gc
from importlib import import_module
from typing import Any

from celery.signals import celeryd_after_setup, worker_init, worker_ready, worker_shutting_down

from webhooks import parts, watching
from webhooks.celery.app import SWEEP, app
from webhooks.errors import LedgerOutdated, LedgerUnavailable, LocalFault, SettingsError
from webhooks.observing.facts import LedgerAwayAtStart
from webhooks.process.ending import end
from webhooks.settings import get_settings


@worker_init.connect  # type: ignore[untyped-decorator]
def _count_for_metrics(sender: Any, **_: Any) -> None:
    """Count from the beginning, where somebody wants it; what that takes is loaded nowhere else."""
    if sender.app is app and get_settings().metrics_port:
        from webhooks.metrics import exporting  # noqa: PLC0415

        exporting.count(sender.hostname)


@celeryd_after_setup.connect  # type: ignore[untyped-decorator]
def _serve_metrics(instance: Any, **_: Any) -> None:
    """Serve what is counted, once there is a log to say that no port is free; whoever sweeps looks around as well."""
    if instance.app is app and get_settings().metrics_port:
        from webhooks.metrics import exporting  # noqa: PLC0415

        exporting.serve(sweeps=SWEEP in app.amqp.queues.consume_from)


# What a worker's parts are made of: it is loaded here, and not while the first message waits.
for _name in (
    "celery.countdowns",
    "celery.lookouts",
    "delivery",
    "gate.resilient",
    "ledger.backlog",
    "ledger.leases",
    "ledger.pruning",
    "ledger.replays",
    "process.strangers",
    "release",
    "sweep",
    "wire.awaited",
):
    import_module(f"webhooks.{_name}")


@worker_init.connect  # type: ignore[untyped-decorator]
def _check_start(sender: Any, **_: Any) -> None:
    """Say at start, in one line, what would keep this worker from sending; a ledger that is away may come back."""
    if sender.app is not app:
        return  # a producer's own worker
    from webhooks.ledger import schema  # noqa: PLC0415 - Alembic: producers and most commands start without it

    try:
        parts.sender()  # reads the CA bundle and the proxy's URL
        watching.notice_recipients()
        schema.check(parts.database(), parts.observers())
    except (LedgerOutdated, LocalFault, SettingsError) as error:
        end(error)
    except LedgerUnavailable as error:
        parts.observers().tell(LedgerAwayAtStart(str(error)))


@worker_ready.connect  # type: ignore[untyped-decorator]
def _keep_for_good(sender: Any, **_: Any) -> None:
    """Have the garbage collector look no more at what is there by now, and stays.

    Now and then it looks at everything, and all threads stand still for it: for 50 ms, were it not for this.
    """
    if sender.app is app:
        gc.collect()
        gc.freeze()


@worker_shutting_down.connect  # type: ignore[untyped-decorator]
def _stop(**_: Any) -> None:
    """Let nobody wait for the ledger any longer than this process has."""
    parts.stopping().set()
