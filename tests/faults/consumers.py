"""What the drill's consumers hold, asked by remote control; and that in the end they hold nothing."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tests.faults.theatre import DELIVERERS
from webhooks import app
from webhooks.demo.stage import wait_until
from webhooks.errors import NotPossible


def ask(what: str) -> Mapping[str, Any]:
    """Return what each worker answers, by the drill's name for it; nobody may."""
    answers = None
    with contextlib.suppress(Exception):  # whatever it is that keeps them from answering
        answers = app.control.inspect(timeout=2)._request(what)
    return {name.partition("@")[0]: answer for name, answer in (answers or {}).items()}


def left_over(within: float) -> Sequence[str]:
    """Wait until no worker is at anything, and each can take as much as at first; returns what stays in the way."""
    seen: list[str] = []

    def is_nothing() -> bool:
        seen[:] = _in_the_way()
        return not seen

    with contextlib.suppress(NotPossible):
        wait_until(is_nothing, "nothing is left over", timeout=within)
    return seen


def _in_the_way() -> list[str]:
    windows, active = ask("window"), ask("active")
    wrong = [f"{name} does not answer" for name in (*DELIVERERS, "sweep") if name not in windows or name not in active]
    for name, window in windows.items():
        if not window.get("consuming"):
            wrong.append(f"{name} consumes nothing")
        elif name in DELIVERERS and window["holds"]:
            wrong.append(f"{name} has not let go of {', '.join(window['holds'])}")
        elif not window["takes more"]:
            wrong.append(f"{name} is deaf: {', '.join(window['holds'])}")
    for name in DELIVERERS:
        wrong += [f"{name} has been at {request['id']} for {_age(request)}" for request in active.get(name, ())]
    return wrong


def _age(request: Mapping[str, Any]) -> str:
    return f"{time.time() - request['time_start']:.0f} s" if request.get("time_start") else "some time"
