"""What is known when a drill is over: the ledger's rows beside the endpoints' books, and what was done meanwhile."""

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
from tests.faults.kinds import DEADLY, GATE, Fault
from tests.faults.removal import Removal
from webhooks import parts
from webhooks.wire.adapter import OF_THE_CONNECTION

_EVENTS = "SELECT id, merchant_id, type, body, accepted_at, unmatched FROM events"
_DELIVERIES = """
SELECT id, event_id, merchant_id, endpoint_id, state, reason, attempts, fast_spent, slow_spent, accepted_at, finished_at
FROM deliveries
"""
_ATTEMPTS = """
SELECT delivery_id, number, started_at, duration_ms, outcome, status, cause, ladder, probe FROM attempts
ORDER BY delivery_id, number
"""
_CALLS_FOR_A_FAULT = timedelta(seconds=4)  # a fault that began so long after a POST can have cost its answer
_SLACK = timedelta(seconds=1)
# A process that found the gate away finds it back with the next message that it gets, for which it has to reach its
# broker first; what comes together with that message goes without.
_GATE_SLACK = timedelta(seconds=5)
_LEAST_LOOKED_AT = timedelta(seconds=2)  # how long what was accepted in a calm is looked at, before a fault may come


@dataclass(frozen=True, slots=True)
class Calm:
    """A time without faults, once all have recovered from the one before: `since` that moment, `until` the next."""

    since: datetime
    until: datetime


@dataclass(frozen=True)
class Evidence:
    """The facts that the checks judge.

    `accepted` and `events` are by the event's id, `visits`, `deliveries` and `attempts` by the delivery's. `claims` are
    the deliveries that were still claimed in the end, and `unclaimed` those that were sent by nobody.
    """

    accepted: Mapping[str, str]
    events: Mapping[str, Any]
    visits: Mapping[str, Sequence[Visit]]
    deliveries: Mapping[str, Any]
    attempts: Mapping[str, Sequence[Any]]
    overwritten: Sequence[Any]
    faults: Sequence[Fault]
    calms: Sequence[Calm]
    unacknowledged: Sequence[bool]
    broken: Sequence[str]
    left_over: Sequence[str]
    claims: Sequence[str]
    unclaimed: Sequence[str]
    removal: Removal
    deepest: int
    most_copies: int
    longest_overdue: float

    @property
    def posts(self) -> int:
        """How many POSTs the endpoints saw."""
        return sum(map(len, self.visits.values()))

    @property
    def unfinished(self) -> list[str]:
        """What was accepted, and is lost or neither delivered nor failed."""
        lost = [event_id for event_id in self.accepted if event_id not in self.events]
        return lost + [row.id for row in self.deliveries.values() if row.state not in {"delivered", "failed"}]

    @cached_property
    def places(self) -> Mapping[str, AbstractSet[str]]:
        """Return the endpoints to which each event has a delivery."""
        found: defaultdict[str, set[str]] = defaultdict(set)
        for row in self.deliveries.values():
            found[row.event_id].add(row.endpoint_id)
        return found

    def posts_at(self, endpoint_id: str) -> list[Visit]:
        """Return what an endpoint saw, in order."""
        seen = (visit for visits in self.visits.values() for visit in visits if visit.endpoint_id == endpoint_id)
        return sorted(seen, key=lambda visit: visit.request.at)

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
        """Give each POST that came after the endpoint had said that it has it, and the fault that explains it."""
        for visits in self.visits.values():
            received: Visit | None = None
            for visit in visits:
                if received:
                    yield visit, self.explanation(received)
                received = received or (visit if visit.received else None)

    def explanation(self, post: Visit, kinds: AbstractSet[str] = DEADLY) -> str | None:
        """Return the fault that can have cost the result of a POST."""
        return self.explains(post.id, post.request.at, kinds)

    def explains(self, delivery_id: str, at: datetime, kinds: AbstractSet[str] = DEADLY) -> str | None:
        """Return the fault that can have cost the result of an attempt of a delivery that began at this time."""
        for fault in self.faults:
            concerned = fault.name in kinds and fault.only in {None, delivery_id}
            slack = _GATE_SLACK if fault.name in GATE else _SLACK
            if concerned and at - slack <= fault.ended and fault.began <= at + _CALLS_FOR_A_FAULT:
                return fault.name
        return None

    def ways(self, endpoint_ids: AbstractSet[str]) -> tuple[list[float], list[float]]:
        """Return how long events took to endpoints, in seconds: in the quiet at first, and in all later calms."""
        quiet, *calms = (self._ways(endpoint_ids, calm) for calm in self.calms)
        return quiet, [way for ways in calms for way in ways]

    def _ways(self, endpoint_ids: AbstractSet[str], calm: Calm) -> list[float]:
        """Take what was accepted in a calm; where that did not end in it, it took at least so long."""
        return [
            (min(row.finished_at or calm.until, calm.until) - row.accepted_at).total_seconds()
            for row in self.deliveries.values()
            if row.endpoint_id in endpoint_ids and calm.since <= row.accepted_at <= calm.until - _LEAST_LOOKED_AT
        ]

    def overlapping(self) -> list[tuple[Visit, Visit]]:
        """Return the POSTs of one delivery that were in flight at the same time."""
        return [
            (earlier, later)
            for visits in self.visits.values()
            for earlier, later in pairwise(visits)
            if later.request.at < earlier.until
        ]


def gather(**facts: Any) -> Evidence:
    """Read the ledger, and put the facts together; what was deleted by hand is left out."""
    visits: defaultdict[str, list[Visit]] = defaultdict(list)
    deleted = set(facts.pop("deleted"))  # of merchants with a default endpoint alone: their id is that of the event
    for visit in facts.pop("book"):
        if visit.id not in deleted:
            visits[visit.id].append(visit)
    for seen in visits.values():
        seen.sort(key=lambda visit: visit.request.at)
    attempts: defaultdict[str, list[Any]] = defaultdict(list)
    for row in parts.database().rows(text(_ATTEMPTS)):
        attempts[row.delivery_id].append(row)
    return Evidence(
        visits=visits,
        attempts=attempts,
        events={row.id: row for row in parts.database().rows(text(_EVENTS)) if row.id not in deleted},
        deliveries={row.id: row for row in parts.database().rows(text(_DELIVERIES))},
        overwritten=parts.database().rows(text("SELECT * FROM overwritten")),
        **facts,
    )
