"""Asking several parts at once, in bounded time: one that is frozen or away keeps no answer of the others back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from webhooks.errors import LedgerBusy, Unavailable, WebhooksError

Questions = Mapping[str, Callable[[], object]]
Answers = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with which part, in one line for a person."""

    part: str
    text: str


def ask(parts: Mapping[str, Questions], *, within: timedelta) -> Answers:
    """Ask each part its questions one after the other, and all parts at once.

    Returns the answers by question; a Fault in place of one that could not be had.
    """
    answers: dict[str, object] = {}
    ends_s = time.monotonic() + within.total_seconds()
    # A thread that waits for a frozen server waits for ever: it must not keep this process from ending.
    threads = [
        threading.Thread(target=_ask, args=(part, questions, answers), name=f"asks {part}", daemon=True)
        for part, questions in parts.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(ends_s - time.monotonic(), 0))
    silent = f"it has not answered within {within.total_seconds():g} s"
    return {name: answers.get(name, Fault(_part(part), silent)) for part, asked in parts.items() for name in asked}


def _ask(part: str, questions: Questions, answers: dict[str, object]) -> None:
    away: Fault | None = None
    for name, question in questions.items():
        try:
            answers[name] = away or question()
        except WebhooksError as error:
            answers[name] = fault = Fault(_part(part), str(error))
            if isinstance(error, Unavailable) and not isinstance(error, LedgerBusy):
                away = fault  # asking the rest would only take as long again
        except Exception as error:
            answers[name] = Fault(_part(part), f"{type(error).__name__}: {error}".partition("\n")[0])


def _part(name: str) -> str:
    """Two threads may ask one part: `ledger` and `ledger, writing`."""
    return name.partition(",")[0]
