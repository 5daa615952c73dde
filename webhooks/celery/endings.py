"""How a delivery's task ends, as Flower shows it: one of Celery's states, and what came of it in a few words."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import assert_never

from celery.exceptions import Retry
from celery.states import FAILURE, IGNORED, RETRY, SUCCESS

from webhooks.delivery import Made, Moved, SetAside
from webhooks.model import Attempt
from webhooks.policy.decisions import Delivered, Failed, RetryAt
from webhooks.process.spans import in_words


@dataclass(frozen=True, slots=True)
class Ending:
    """What a task returns: Celery makes a text of it, from which `read` tells state and words again.

    IGNORED: the message led to nothing, and there is nothing to tell.
    An exception would say the same, and cost a formatted traceback for each message that is held or passed on.
    """

    state: str
    words: str = ""

    def __repr__(self) -> str:
        return f"{self.state} {self.words}"


class Waiting(Exception):
    """Shown in Flower on a RETRY; the text says what is waited for."""


def waiting(what: str) -> Retry:
    """Return what ends the task of an event by name that waits: what else it is linked with waits too."""
    return Retry(what, exc=Waiting(what))


def read(text: object) -> Ending | None:
    """Tell an ending from a task's result as Celery hands it on; None for another."""
    state, _, words = str(text).partition(" ")
    return Ending(state, words) if state in {SUCCESS, RETRY, FAILURE, IGNORED} else None


def ending_of(result: Made | Failed | SetAside | Moved) -> Ending:
    """Say how the task ends to which an attempt came."""
    match result:
        case Made(attempt=attempt, decision=decision):
            return _after(attempt, decision)
        case Failed(reason=reason):
            return Ending(FAILURE, reason)
        case Moved():
            return Ending(RETRY, "in the queue of the slow endpoints")
        case SetAside(held_for=None):
            return Ending(IGNORED)
        case SetAside(held_for=held_for, until=until):
            return Ending(RETRY, f"held for {held_for}" + (f" until {_moment(until)}" if until else ""))
        case never:
            assert_never(never)


def _after(attempt: Attempt, decision: Delivered | RetryAt | Failed) -> Ending:
    took = attempt.duration or timedelta()
    answer = str(attempt.status or attempt.cause or attempt.outcome)
    match decision:
        case Delivered():
            return Ending(SUCCESS, f"delivered {answer} in {in_words(took)}, attempt {attempt.number}")
        case Failed(reason=reason):
            return Ending(FAILURE, f"{reason}: {answer} after {in_words(took)}, attempt {attempt.number}")
        case RetryAt(due_at=due_at):
            wait = in_words(max(due_at - attempt.started_at - took, timedelta()))
            following = f"attempt {attempt.number + 1} in {wait}, at {_moment(due_at)}"
            return Ending(RETRY, f"{answer} after {in_words(took)}; {following}")
        case never:
            assert_never(never)


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
