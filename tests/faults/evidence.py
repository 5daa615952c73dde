"""What is known when a drill is over: the ledger's rows beside the merchants' books, and what was done meanwhile."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from itertools import pairwise
from typing import Any

from sqlalchemy import text

from tests.faults.cast import RESET, Visit
from tests.faults.faults import DEADLY, Fault
from webhooks import parts
from webhooks.wire.adapter import OF_THE_CONNECTION

_DELIVERIES = """
SELECT id, merchant_id, body, state, reason, attempts, fast_spent, slow_spent, accepted_at, finished_at FROM deliveries
"""
_ATTEMPTS = """
SELECT delivery_id, number, started_at, duration_ms, outcome, status, cause, ladder, probe FROM attempts
ORDER BY delivery_id, number
"""
_CALLS_FOR_A_FAULT = timedelta(seconds=4)  # a fault that began so long after a POST can have cost its answer
_SLACK = timedelta(seconds=1)


@dataclass(frozen=True)
class Evidence:
    """The facts that the checks judge."""

    accepted: Mapping[str, str]
    visits: Mapping[str, Sequence[Visit]]
    deliveries: Mapping[str, Any]
    attempts: Mapping[str, Sequence[Any]]
    overwritten: Sequence[Any]
    faults: Sequence[Fault]
    unacknowledged: Sequence[bool]
    broken: Sequence[str]
    deepest: int
    most_copies: int
    longest_overdue: float

    @property
    def posts(self) -> int:
        """How many POSTs the merchants saw."""
        return sum(map(len, self.visits.values()))

    @property
    def unfinished(self) -> list[str]:
        """Accepted, and neither delivered nor failed."""
        return [
            delivery_id
            for delivery_id in self.accepted
            if delivery_id not in self.deliveries or self.deliveries[delivery_id].state not in {"delivered", "failed"}
        ]

    def ended(self) -> Counter[str]:
        """Count the deliveries by state and reason."""
        return Counter(row.reason or row.state for row in self.deliveries.values())

    def outcomes(self) -> Counter[str]:
        """Count the ledger's attempts by outcome."""
        return Counter(row.outcome for rows in self.attempts.values() for row in rows)

    @cached_property
    def unheard(self) -> list[Visit]:
        """Return the POSTs whose kept connection died or said goodbye: the attempt went on, once, on a new one."""
        return [
            earlier
            for visits in self.visits.values()
            for earlier, later in pairwise(visits)
            if earlier.attempt == later.attempt and earlier.status in {RESET, *OF_THE_CONNECTION}
        ]

    def copies(self) -> Iterator[tuple[Visit, str | None]]:
        """Give each POST that came after the merchant had said that it has it, and the fault that explains it."""
        for visits in self.visits.values():
            received: Visit | None = None
            for visit in visits:
                if received:
                    yield visit, self.explanation(received.request.at)
                received = received or (visit if visit.received else None)

    def explanation(self, at: datetime, kinds: AbstractSet[str] = DEADLY) -> str | None:
        """Return the fault that can have cost the result of a POST that began at this time."""
        for fault in self.faults:
            if fault.name in kinds and at - _SLACK <= fault.ended and fault.began <= at + _CALLS_FOR_A_FAULT:
                return fault.name
        return None

    def overlapping(self) -> list[tuple[Visit, Visit]]:
        """Return the POSTs of one delivery that were in flight at the same time."""
        return [
            (earlier, later)
            for visits in self.visits.values()
            for earlier, later in pairwise(visits)
            if later.request.at < earlier.until
        ]


def gather(**facts: Any) -> Evidence:
    """Read the ledger, and put the facts together."""
    visits: defaultdict[str, list[Visit]] = defaultdict(list)
    for visit in facts.pop("book"):
        visits[visit.id].append(visit)
    for seen in visits.values():
        seen.sort(key=lambda visit: visit.request.at)
    attempts: defaultdict[str, list[Any]] = defaultdict(list)
    for row in parts.database().rows(text(_ATTEMPTS)):
        attempts[row.delivery_id].append(row)
    return Evidence(
        visits=visits,
        attempts=attempts,
        deliveries={row.id: row for row in parts.database().rows(text(_DELIVERIES))},
        overwritten=parts.database().rows(text("SELECT * FROM overwritten")),
        **facts,
    )
