"""Everything at a glance, with a line for each part that is away: all are asked at once, and for a moment only."""

from __future__ import annotations

import threading
import time
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
from webhooks.process.once import once

_PATIENCE = timedelta(seconds=3)
_FRESH_S = 3.0
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


class Glance:
    """What ledger and gate answer, shared by all who look within a few seconds: it is read from large tables."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: Answers = {}
        self._at_s = 0.0

    def answers(self) -> Answers:
        """Return the answers; whoever comes while they are asked for gets the same."""
        with self._lock:
            if not self._answers or time.monotonic() - self._at_s > _FRESH_S:
                self._answers = ask(_questions(), within=_PATIENCE)
                self._at_s = time.monotonic()
            return self._answers


@once
def glance() -> Glance:
    """Return this process's."""
    return Glance()


def look_around(*, wait: bool = False) -> Overview:
    """Return how everything was within the last seconds; `wait` for the workers, where they have not been asked yet."""
    answers = glance().answers()
    said = rounds.rounds().fresh() if wait else rounds.rounds().latest()
    seen = rounds.state_of(said or {})
    ledger, breakers = _known(answers, "standing", Standing), answers["breakers"]
    away = list(judging.unanswered(answers))
    others = [each for each in seen.faults if each.part not in {fault.part for fault in away}]  # two asked it: one line
    overdue = judging.judge_overdue({"overdue": ledger.most_overdue if ledger else None})
    return Overview(
        asked=said is not None,
        faults=list(dict.fromkeys([*away, *others, *overdue])),
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
