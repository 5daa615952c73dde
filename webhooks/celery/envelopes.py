"""Our messages as Celery and kombu put them on a Redis, made here: by their ways one costs as much as its row does.

A test sends the same through Celery and compares, so that another form of theirs is noticed.
"""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from celery import Celery
from celery.utils.nodenames import anon_nodename
from celery.utils.saferepr import saferepr

# With these settings of Celery's the form is this one. A deployment may have others: Celery makes its messages then.
_ASSUMED = {
    "task_annotations": None,
    "task_compression": None,
    "task_default_delivery_mode": 2,
    "task_protocol": 2,
    "task_repr_maxlevels": 3,
    "task_send_sent_event": False,
}
_SIMPLE = re.compile(r"[A-Za-z0-9._:~-]{0,300}", re.ASCII)  # Celery shows it as Python does

# What is the same in all of them is written out once: writing it anew takes longer than pushing a message.
_in_json = json.JSONEncoder().encode
_text = json.encoder.encode_basestring_ascii  # a text alone: an encoder takes longer to begin than to write it
_EMBEDDED = json.dumps({"callbacks": None, "errbacks": None, "chain": None, "chord": None})
_HEADERS = json.dumps(
    {
        "lang": "py",
        "shadow": None,
        "expires": None,
        "group": None,
        "group_index": None,
        "timelimit": [None, None],
        "parent_id": None,
        "kwargsrepr": "{}",
        "ignore_result": True,
        "replaced_task_nesting": 0,
        "stamped_headers": None,
        "stamps": {},
    }
)


@cache
def are_ours(app: Celery) -> bool:
    """Whether the application's messages have this form: its broker is a Redis, and Celery is set up as usual."""
    is_redis = urlsplit(app.conf["broker_url"]).scheme in {"redis", "rediss"}
    return is_redis and all(app.conf[name] == usual for name, usual in _ASSUMED.items())


def envelope(
    app: Celery,
    task: str,
    identity: Mapping[str, str],
    headers: Mapping[str, Any],
    eta: str | None,
    queue: str,
    rank: int,
    retries: int,
) -> str:
    """Return the message of a task whose one argument is an identity, and whose id is the identity's.

    `headers` stand beside Celery's own; `eta` says when it is to be looked at, None for at once; `rank` is kombu's
    priority; `retries` is what Flower shows as such.
    """
    named = ", ".join([f'"{name}": {_text(value)}' for name, value in identity.items()])
    body = f"[[{{{named}}}], {{}}, {_EMBEDDED}]"
    own = {
        "task": task,
        "id": identity["id"],
        "eta": eta,
        "retries": retries,
        "root_id": identity["id"],
        "argsrepr": _shown(identity),
        "origin": _origin(os.getpid()),
        **headers,
    }
    return (
        f'{{"body": "{b64encode(body.encode()).decode()}", "content-encoding": "utf-8", '
        f'"content-type": "application/json", "headers": {_HEADERS[:-1]}, {_in_json(own)[1:]}, '
        f'"properties": {{"correlation_id": {_text(identity["id"])}, "reply_to": {_text(app.thread_oid)}, '
        f'"delivery_mode": 2, "delivery_info": {{"exchange": "", "routing_key": {_text(queue)}}}, "priority": {rank}, '
        f'"body_encoding": "base64", "delivery_tag": "{uuid4()}"}}}}'
    )


@cache
def _origin(_pid: int) -> str:
    """Return who sends, as Celery names this process."""
    name: str = anon_nodename()
    return name


def _shown(identity: Mapping[str, str]) -> str:
    """Show the arguments as Celery does in Flower, where that is Python's way without walking through them."""
    args = (identity,)
    return repr(args) if all(map(_SIMPLE.fullmatch, identity.values())) else saferepr(args, 1024)
