"""What the process imports from which others are forked: each of them starts in a tenth of the time."""

from __future__ import annotations

import gc
from importlib import import_module
from pathlib import Path

from tests import measuring
from webhooks import cli

gc.disable()
if measuring.is_on():
    measuring.begin(d_miss_threshold=-1)  # to take probes out again would not pay in processes that live for seconds

# Nothing of these opens a connection, starts a thread or reads a setting when it is imported.
for _name in (
    *(f"webhooks.cli.{path.stem}" for path in Path(cli.__file__).parent.glob("[!_]*.py") if path.stem != "demo"),
    "webhooks.ledger.schema",
    "celery.bin.celery",
    "celery.apps.worker",
    "celery.apps.beat",
    "celery.concurrency.thread",
    "celery.worker.consumer",
    "celery.worker.autoscale",
    "kombu.transport.redis",
    "webhooks.celery.attempting",
    "webhooks.celery.chores",
    "webhooks.celery.commands",
    "webhooks.celery.consuming",
    "webhooks.celery.scheduling",
    "webhooks.celery.starting",
    "webhooks.metrics.exporting",
):
    import_module(_name)

gc.freeze()  # what is here stays: the forked ones need not look at it, and share its memory for longer
gc.enable()
