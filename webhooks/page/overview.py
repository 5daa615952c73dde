"""Everything at a glance, with a line for each part that is away: all are asked at once, and for a moment only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from webhooks import parts
from webhooks.gate.values import Breaker
from webhooks.health import judging
from webhooks.health.asking import Answers, Fault, Questions, ask
from webhooks.ledger.counting import Standing
from webhooks.ledger.desk import Numbers
from webhooks.ledger.pacing import Pace
from webhooks.ledger.rows import AuditRow
from webhooks.page import rounds
from webhooks.page.rounds import PartsSeen
from webhooks.policy.breaker import BreakerState

_PATIENCE = timedelta(seconds=3)
_ACTS = 8  # of those that were done last

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Overview:
    """How everything is; what is None could not be asked, and a fault says why. `asked`: the parts have answered."""

    asked: bool
    faults: Sequence[Fault]
    seen: PartsSeen
    ledger: Standing | None
    pace: Pace | None
    desk: Numbers | None
    breakers: Sequence[Breaker] | None
    acts: Sequence[AuditRow] | None


def look_around(*, now: bool = False) -> Overview:
    """Return how everything is: the parts as they were within the last seconds, or `now`, which takes a second."""
    answers = ask(_questions(), within=_PATIENCE)
    said = rounds.ask_now() if now else rounds.rounds().latest()
    seen = rounds.state_of(said or {})
    ledger, breakers = _known(answers, "standing", Standing), answers["breakers"]
    overdue = judging.judge_overdue({"overdue": ledger.most_overdue if ledger else None})
    return Overview(
        asked=said is not None,
        faults=list(dict.fromkeys([*judging.unanswered(answers), *seen.faults, *overdue])),
        seen=seen,
        ledger=ledger,
        pace=_known(answers, "pace", Pace),
        desk=_known(answers, "desk", Numbers),
        breakers=breakers if isinstance(breakers, list) else None,
        acts=acts if isinstance(acts := answers["acts"], list) else None,
    )


def _questions() -> dict[str, Questions]:
    """Ask the ledger two things at once, since both have a large table to look at."""
    return {
        "ledger": {"standing": parts.views().standing, "desk": parts.desk().numbers},
        "ledger, pacing": {"pace": parts.views().pace, "acts": _last_acts},
        "gate": {"breakers": _not_working},
    }


def _not_working() -> list[Breaker]:
    return [each for each in parts.gate().list() if each.state is not BreakerState.WORKING]


def _last_acts() -> list[AuditRow]:
    return list(parts.audit().latest(_ACTS).items)


def _known(answers: Answers, name: str, kind: type[_T]) -> _T | None:
    answer: Any = answers[name]
    return answer if isinstance(answer, kind) else None
