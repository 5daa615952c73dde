"""What our worker is compared with: a Celery task that POSTs and forgets, without ledger, gate or signature.

As people write it: `requests.post`, acknowledged late, results ignored, Celery's defaults for everything else (prefork,
four messages in hand for each process, no task events). `pooled` differs in one thing, a session for each process.
"""

from __future__ import annotations

import os
from functools import cache

import requests
from celery import Celery
from requests.adapters import HTTPAdapter

QUEUE = "plain"
HEADERS = {"Content-Type": "application/json"}
_CA = os.environ["WEBHOOKS_CA_BUNDLE"]

app = Celery("plain", broker=os.environ["PLAIN_BROKER_URL"], set_as_current=False)
app.conf.update(task_acks_late=True, task_ignore_result=True, task_default_queue=QUEUE)


@app.task(name="plain.post")  # type: ignore[untyped-decorator]
def post(url: str, body: str, event_id: str) -> None:
    """POST a body."""
    requests.post(url, data=body, headers=HEADERS | {"X-Webhook-Id": event_id}, timeout=10, verify=_CA)


@app.task(name="plain.pooled")  # type: ignore[untyped-decorator]
def pooled(url: str, body: str, event_id: str) -> None:
    """POST a body on a connection that was kept."""
    _session().post(url, data=body, headers=HEADERS | {"X-Webhook-Id": event_id}, timeout=10, verify=_CA)


@cache
def _session() -> requests.Session:
    session = requests.Session()
    session.mount("https://", HTTPAdapter(pool_connections=200))  # a connection for each merchant, not for ten of them
    return session
