"""Who plays in the demo, how each answers, and what the rules demand to come of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from webhooks.model import Reason, State

NOT_FOUND = 404
UNAVAILABLE = 503
OK = 200

Answering = Callable[[int, int], int]

# The fast ladder is the real one. What takes minutes and hours is played in seconds: the slow ladder's 15 min, 1 h,
# 4 h …, and the breaker's pauses of 5, 10, 20, 30 min.
SHORT_STEPS = (1, 2, 4, 6, 8)
PAUSES = (2, 4, 8, 12)

BORN_AGAIN = "phoenix"
OPENERS = 5
_FAILED_PROBES = 1


@dataclass(frozen=True, slots=True)
class Role:
    """An endpoint's character, and the outcome that the rules demand of every delivery to it.

    `answer` gives the status for a delivery's n-th visit, which is the endpoint's m-th of all. `answers` and `waits`
    (seconds) are what each delivery goes through; without `answers` it is judged by its end, and by the timeline.
    `named` is the id of an endpoint that is not its merchant's default one, and `wants` how the types begin that go to
    it.
    """

    merchant_id: str
    character: str
    answer: Answering
    state: State = State.DELIVERED
    reason: Reason | None = None
    answers: Sequence[int] | None = None
    waits: Sequence[float] = ()
    registered_late: bool = False
    named: str | None = None
    wants: str = ""

    @property
    def endpoint_id(self) -> str:
        """The endpoint's id."""
        return self.named or self.merchant_id


def _in_order(*statuses: int) -> Answering:
    """Answer each delivery's visits in this order, and with the last status ever after."""
    return lambda visit, _of_all: statuses[min(visit, len(statuses)) - 1]


def _dead_at_first(_visit: int, of_all: int) -> int:
    return UNAVAILABLE if of_all <= OPENERS + _FAILED_PROBES else OK


ROLES = (
    Role("acme", "answers 200", _in_order(OK), answers=(OK,)),
    Role(
        "acme",
        "is acme's as well, wants payment.* alone, and answers 503 once, then 200",
        _in_order(UNAVAILABLE, OK),
        answers=(UNAVAILABLE, OK),
        waits=(1,),
        named="ep_books",
        wants="payment.",
    ),
    Role(
        "flaky",
        "answers 503 twice, then 200: the fast ladder",
        _in_order(UNAVAILABLE, UNAVAILABLE, OK),
        answers=(UNAVAILABLE, UNAVAILABLE, OK),
        waits=(1, 2),
    ),
    Role(
        "moving",
        "answers 404 to money twice, later 200: the slow ladder",
        _in_order(NOT_FOUND, NOT_FOUND, OK),
        answers=(NOT_FOUND, NOT_FOUND, OK),
        waits=SHORT_STEPS[:2],
    ),
    Role(
        "strict",
        "answers 404 to what is not money: failed at once",
        _in_order(NOT_FOUND),
        State.FAILED,
        Reason.REJECTED,
        answers=(NOT_FOUND,),
    ),
    Role(
        "newcomer",
        "has no address yet: held, until it is set",
        _in_order(OK),
        answers=(OK,),
        registered_late=True,
    ),
    Role(BORN_AGAIN, "is dead, and comes back: the breaker", _dead_at_first),
)


def seconds(values: Sequence[float]) -> str:
    """Write waits as a setting."""
    return ",".join(str(timedelta(seconds=value).total_seconds()) for value in values)
