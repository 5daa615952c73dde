"""What our worker is compared with: a Celery task that POSTs and forgets, without ledger, gate or signature."""

from __future__ import annotations

import os
import threading

import requests
from celery import Celery

app = Celery("bare", broker=os.environ["BARE_BROKER_URL"], set_as_current=False)
app.conf.update(
    worker_pool="threads",
    worker_concurrency=20,
    worker_prefetch_multiplier=1,
    task_acks_late=True,
    task_ignore_result=True,
    worker_send_task_events=True,
    task_default_queue="bare",
)

_local = threading.local()


@app.task(name="bare.post")  # type: ignore[untyped-decorator]
def post(url: str, body: str) -> None:
    """POST a body."""
    if not hasattr(_local, "session"):
        _local.session = requests.Session()
        _local.session.trust_env = False
    _local.session.post(url, data=body.encode(), timeout=10, verify=os.environ["WEBHOOKS_CA_BUNDLE"])
