"""Who plays in the demo, how each answers, and what the rules demand to come of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from webhooks.model import Reason, State

NOT_FOUND = 404
UNAVAILABLE = 503
OK = 200

# The fast ladder is the real one. The slow ladder's 15 min, 1 h, 4 h … are played as seconds.
SLOW_WAITS = "1s,2s,4s,6s,8s"
FAST = tuple(timedelta(seconds=seconds) for seconds in (1, 2, 4))
SLOW = tuple(timedelta(seconds=seconds) for seconds in (1, 2, 4))


@dataclass(frozen=True, slots=True)
class Role:
    """A merchant's character, and the outcome that the rules demand of every delivery to it."""

    merchant_id: str
    character: str
    answer: Callable[[int], int]
    answers: Sequence[int]
    waits: Sequence[timedelta]
    state: State
    reason: Reason | None = None
    registered_late: bool = False


def _first(*statuses: int) -> Callable[[int], int]:
    """Answer in this order, and with the last one ever after."""
    return lambda visit: statuses[min(visit, len(statuses)) - 1]


ROLES = (
    Role("acme", "answers 200", _first(OK), (OK,), (), State.DELIVERED),
    Role(
        "flaky",
        "answers 503 twice, then 200: the fast ladder",
        _first(UNAVAILABLE, UNAVAILABLE, OK),
        (UNAVAILABLE, UNAVAILABLE, OK),
        FAST[:2],
        State.DELIVERED,
    ),
    Role(
        "moving",
        "answers 404 to money twice, later 200: the slow ladder",
        _first(NOT_FOUND, NOT_FOUND, OK),
        (NOT_FOUND, NOT_FOUND, OK),
        SLOW[:2],
        State.DELIVERED,
    ),
    Role(
        "strict",
        "answers 404 to what is not money: failed at once",
        _first(NOT_FOUND),
        (NOT_FOUND,),
        (),
        State.FAILED,
        Reason.REJECTED,
    ),
    Role(
        "newcomer",
        "has no address yet: held, until it is set",
        _first(OK),
        (OK,),
        (),
        State.DELIVERED,
        registered_late=True,
    ),
)
