"""The verdict: the invariants as named checks, each of which returns what is wrong, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import pairwise
from statistics import median
from typing import Any

from tests.faults import routing
from tests.faults.addressees import ADDRESSEES, OWN_HEADERS, SIBLINGS, STRANGERS
from tests.faults.cast import Visit
from tests.faults.evidence import Evidence
from tests.faults.kinds import DEADLY, LEDGER
from tests.faults.theatre import MAX_QUEUED
from webhooks.delivery import SENT_TWICE, SENT_TWICE_ANSWERED
from webhooks.model import Outcome
from webhooks.settings import get_settings
from webhooks.signing import verify

_BURST = 150  # what producers and workers publish themselves, beside the sweep, while nobody consumes
_ENOUGH = 15  # events of each kind, before a fault and between faults, by which the healthy endpoints are judged
_LONGER = 10  # times as long: a busy machine makes it twice, and waiting behind another endpoint a hundred times

Check = Callable[[Evidence], Iterator[str]]


def everything_ends(evidence: Evidence) -> Iterator[str]:
    """I1: every delivery of an accepted event is delivered, or failed for a reason that its endpoint gave."""
    yield from (f"{delivery_id} has not ended" for delivery_id in evidence.unfinished)
    for row in evidence.deliveries.values():
        if row.reason not in ADDRESSEES[row.endpoint_id].reasons:
            yield f"{row.id} failed: {row.reason}, but {row.endpoint_id} gave no cause for that"
        received = any(visit.received for visit in evidence.visits.get(row.id, ()))
        if row.state == "delivered" and not received:
            yield f"{row.id} is delivered, but {row.endpoint_id} never said so"
    yield from evidence.broken


def attempts_are_alike(evidence: Evidence) -> Iterator[str]:
    """I2: every POST carries its event's id and bytes, wherever it goes, freshly signed with its endpoint's secret."""
    for delivery_id, visits in evidence.visits.items():
        event = evidence.events.get(str(visits[0].request.webhook_id))
        for visit in visits:
            if event is None or visit.request.body != bytes(event.body):
                yield f"{delivery_id}: attempt {visit.attempt} carried other bytes"
            if not _verifies(visit, fresh=evidence.explanation(visit) is None):
                yield f"{delivery_id}: the signature of attempt {visit.attempt} does not verify"
            own = {name: value for name in OWN_HEADERS if (value := visit.request.header(name)) is not None}
            if own != ADDRESSEES[visit.endpoint_id].headers:
                yield f"{delivery_id}: attempt {visit.attempt} carried the headers {own}"


def _verifies(visit: Visit, *, fresh: bool) -> bool:
    """Whether a signature is right, and made just before; a worker may have been frozen in between."""
    request, tolerance = visit.request, 10 if fresh else 60
    timestamp, signature = request.header("X-Webhook-Timestamp"), request.header("X-Webhook-Signature")
    secret, now = ADDRESSEES[visit.endpoint_id].secret, request.at.timestamp()
    return verify(secret, timestamp=timestamp, signature=signature, body=request.body, now=now, tolerance=tolerance)


def one_post_at_a_time(evidence: Evidence) -> Iterator[str]:
    """I3: no two POSTs of a delivery overlap (but for a worker frozen past its lease), none comes before its wait."""
    for earlier, later in evidence.overlapping():
        if evidence.explanation(earlier) is None:
            yield f"{later.id}: attempts {earlier.attempt} and {later.attempt} overlap"
    waits = get_settings().fast_waits
    for delivery_id, attempts in evidence.attempts.items():
        step = 0
        for attempt, following in pairwise(attempts):
            if evidence.explains(delivery_id, attempt.started_at):
                break  # what came late was charged to nobody, and the count of steps is not that of the attempts
            if attempt.ladder != "fast":
                continue
            step += 1
            due_at = attempt.started_at + timedelta(milliseconds=attempt.duration_ms) + waits[step - 1]
            if following.started_at < due_at - timedelta(milliseconds=20):
                yield f"{delivery_id}: attempt {following.number} came {due_at - following.started_at} early"


def attempts_are_posts(evidence: Evidence) -> Iterator[str]:
    """I4: the ledger's attempts are the POSTs that the endpoints saw; only a deadly fault leaves one unknown."""
    for delivery_id, visits in evidence.visits.items():
        heard = [visit for visit in visits if visit not in evidence.unheard]
        numbers = [visit.attempt for visit in heard]
        known = {attempt.number: attempt for attempt in evidence.attempts.get(delivery_id, ())}
        if len(set(numbers)) < len(numbers):
            yield f"{delivery_id}: POSTs with the same attempt number: {numbers}"
        for visit in heard:
            attempt = known.get(visit.attempt)
            if attempt is None:
                yield f"{delivery_id}: POST {visit.attempt} is not in the ledger"
            elif attempt.status is not None and attempt.status != visit.status:
                yield f"{delivery_id}: attempt {visit.attempt} was answered {visit.status}, not {attempt.status}"
    for delivery_id, attempts in evidence.attempts.items():
        seen = {visit.attempt for visit in evidence.visits.get(delivery_id, ())}
        yield from (
            f"{delivery_id}: {wrong}"
            for attempt in attempts
            if (wrong := _dishonest(delivery_id, attempt, seen, evidence))
        )
        counted = evidence.deliveries[delivery_id].attempts
        if counted != len(attempts):
            yield f"{delivery_id}: {counted} attempts counted, {len(attempts)} recorded"


def resends_are_told(evidence: Evidence) -> Iterator[str]:
    """I4: an attempt whose kept connection died or said goodbye, so that it went out twice, says so in the ledger."""
    for visit in evidence.unheard:
        attempt = next((each for each in evidence.attempts.get(visit.id, ()) if each.number == visit.attempt), None)
        told = SENT_TWICE_ANSWERED.format(status=visit.status) if visit.status else SENT_TWICE
        if attempt and attempt.outcome != Outcome.UNKNOWN and told not in (attempt.cause or ""):
            yield f"{visit.id}: attempt {visit.attempt} does not say that it was {told}"


def _dishonest(delivery_id: str, attempt: Any, seen: set[int], evidence: Evidence) -> str | None:
    if attempt.status is not None and attempt.number not in seen:
        return f"attempt {attempt.number} was answered {attempt.status}, but never seen"
    if attempt.outcome == "unknown" and evidence.explains(delivery_id, attempt.started_at, DEADLY | LEDGER) is None:
        return f"attempt {attempt.number} is unknown, and no fault explains it"
    return None


def copies_are_explained(evidence: Evidence) -> Iterator[str]:
    """I4: a POST after the endpoint's 2xx happens only when a deadly fault kept the worker from writing it down."""
    for visit, fault in evidence.copies():
        if fault is None:
            yield f"{visit.id}: attempt {visit.attempt} came after a 2xx, and no fault explains it"


def one_probe(evidence: Evidence) -> Iterator[str]:
    """I5: per endpoint at most one probe at a time, none of one that has not failed itself, and no breaker is stuck."""
    rules = get_settings().breaker
    made: dict[str, list[Any]] = {}
    for delivery_id, attempts in evidence.attempts.items():
        made.setdefault(evidence.deliveries[delivery_id].endpoint_id, []).extend(attempts)
    for endpoint_id, attempts in made.items():
        attempts.sort(key=lambda attempt: attempt.started_at)
        found = [attempt for attempt in attempts if attempt.probe and attempt.duration_ms is not None]
        for earlier, later in pairwise(found):
            ended = earlier.started_at + timedelta(milliseconds=earlier.duration_ms)
            if later.started_at < ended and not evidence.explains(earlier.delivery_id, earlier.started_at):
                yield f"{endpoint_id}: the probes {earlier.delivery_id} and {later.delivery_id} overlap"
        if found:
            before = attempts[: attempts.index(found[0])]
            failed = sum(attempt.outcome in {Outcome.UNAVAILABLE, Outcome.UNKNOWN} for attempt in before)
            if 100 * failed < rules.failure_percent * rules.min_attempts:
                yield f"{endpoint_id} was probed with {found[0].delivery_id} although it had failed {failed} times"


def others_go_on(evidence: Evidence) -> Iterator[str]:
    """I6: beside an endpoint's outage the events of others, its siblings too, take no longer than in the quiet."""
    for whose, endpoint_ids in (("a healthy merchant's", STRANGERS), ("a sick endpoint's sibling's", SIBLINGS)):
        before, beside = evidence.ways(endpoint_ids)
        if min(len(before), len(beside)) < _ENOUGH:
            yield f"{len(before)} and {len(beside)} are too few events to judge {whose} by"
        elif median(beside) > _LONGER * median(before):
            was, became = median(before), median(beside)
            yield f"the median way of {whose} event was {was:.3f} s, and became {became:.3f} s"


def depth_is_bounded(evidence: Evidence) -> Iterator[str]:
    """I7: the queue stays within its bound, and what merely waits in it is not published again."""
    if evidence.deepest > MAX_QUEUED + _BURST + 400 * any(
        fault.name == "messages_doubled" for fault in evidence.faults
    ):
        yield f"{evidence.deepest} messages were queued"
    if evidence.most_copies > 3:
        yield f"{evidence.most_copies} messages of one turn were queued at once"


def final_is_final(evidence: Evidence) -> Iterator[str]:
    """I8: nothing that was delivered or failed has changed since."""
    yield from (f"{row.id} was {row.was} and became {row.became}" for row in evidence.overwritten)


def acknowledged_late(evidence: Evidence) -> Iterator[str]:
    """Late acknowledgement: the broker keeps a delivery's message while it is sent, unless Redis was flushed."""
    kept = sum(evidence.unacknowledged)
    if evidence.unacknowledged and kept < 0.5 * len(evidence.unacknowledged):
        yield f"of {len(evidence.unacknowledged)} deliveries in mid-POST only {kept} had a message on the broker"


def nobody_is_deaf(evidence: Evidence) -> Iterator[str]:
    """I11: in the end no consumer keeps a place, nor a thread, for what is long over."""
    yield from evidence.left_over


def nobody_is_charged(evidence: Evidence) -> Iterator[str]:
    """I10: a fault of ours spends no budget: what is spent is what attempts were charged."""
    for delivery_id, row in evidence.deliveries.items():
        charged = [attempt.ladder for attempt in evidence.attempts.get(delivery_id, ())]
        if row.fast_spent > charged.count("fast") or row.slow_spent > charged.count("slow"):
            yield f"{delivery_id}: spent {row.fast_spent} and {row.slow_spent}, charged {charged}"


CHECKS: tuple[Check, ...] = (
    everything_ends,
    attempts_are_alike,
    one_post_at_a_time,
    routing.events_go_where_they_are_wanted,
    routing.removed_is_removed,
    attempts_are_posts,
    resends_are_told,
    copies_are_explained,
    one_probe,
    others_go_on,
    routing.lanes_are_kept,
    routing.rates_are_kept,
    depth_is_bounded,
    final_is_final,
    acknowledged_late,
    nobody_is_charged,
    nobody_is_deaf,
    routing.claims_are_of_attempts,
)
