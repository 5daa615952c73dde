"""The verdict on what concerns endpoints: where events go, within which limits, claimed by whom, what removal ends."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from tests.faults.addressees import ADDRESSEES
from tests.faults.evidence import Evidence
from tests.faults.kinds import DEADLY, GATE

_AT_ONCE = timedelta(seconds=1)  # so long an endpoint's rate may be saved up
_MAY_STILL_ARRIVE = timedelta(seconds=2)  # what was claimed just before its endpoint was removed


def events_go_where_they_are_wanted(evidence: Evidence) -> Iterator[str]:
    """Routing: an event has a delivery to each endpoint of its merchant that wants it, and nowhere else."""
    for event in evidence.events.values():
        found = evidence.places.get(event.id, frozenset())
        wanted, perhaps = _wanted(event.merchant_id, event.type, event.accepted_at, evidence)
        yield from (f"{event.id} ({event.type}) does not go to {missing}" for missing in sorted(wanted - found))
        for unwanted in sorted(found - wanted - perhaps):
            yield f"{event.id} ({event.type}) goes to {unwanted}, which does not want it"
        if event.unmatched == bool(found):
            yield f"{event.id} has {len(found)} deliveries, and is {'' if event.unmatched else 'not '}unmatched"
    for delivery_id in evidence.visits.keys() - evidence.deliveries.keys():
        yield f"{delivery_id} was sent, and there is no such delivery"


def _wanted(merchant_id: str, type_: str, accepted_at: datetime, evidence: Evidence) -> tuple[set[str], set[str]]:
    """Return the endpoints that must have an event, and those that may, since they were removed at that moment."""
    wanted = {each.endpoint_id for each in ADDRESSEES.values() if each.merchant_id == merchant_id and each.wants(type_)}
    if accepted_at < evidence.removal.began:
        return wanted, set()
    gone = {evidence.removal.endpoint_id}
    return wanted - gone, gone if accepted_at <= evidence.removal.ended else set()


def removed_is_removed(evidence: Evidence) -> Iterator[str]:
    """Removal: once an endpoint is removed nothing is sent to it, and what was unfinished ends as cancelled."""
    removal = evidence.removal
    its = [row for row in evidence.deliveries.values() if row.endpoint_id == removal.endpoint_id]
    if not any(row.finished_at is None or row.finished_at > removal.began for row in its):
        yield f"{removal.endpoint_id} had nothing unfinished by which to judge"
    for visit in evidence.posts_at(removal.endpoint_id):
        if visit.request.at > removal.ended + _MAY_STILL_ARRIVE and evidence.explanation(visit) is None:
            yield f"{visit.id}: attempt {visit.attempt} came {visit.request.at - removal.ended} after the removal"
    for row in evidence.deliveries.values():
        if row.reason == "cancelled" and (row.endpoint_id != removal.endpoint_id or row.finished_at < removal.began):
            yield f"{row.id} was cancelled, and {row.endpoint_id} was not removed"


def lanes_are_kept(evidence: Evidence) -> Iterator[str]:
    """Lanes: where an endpoint has a lane of its own, no more POSTs are out to it at once, while the gate is there."""
    for each in ADDRESSEES.values():
        posts = evidence.posts_at(each.endpoint_id) if each.lane else []
        for post in posts:
            out = [other for other in posts if other.request.at <= post.request.at < other.until]
            excused = any(evidence.explanation(other, GATE | DEADLY) for other in out)
            if each.lane and len(out) > each.lane and not excused:
                yield f"{post.id} was one of {len(out)} at once, in a lane of {each.lane}"


def rates_are_kept(evidence: Evidence) -> Iterator[str]:
    """Rates: no endpoint gets more attempts than its rate allows, at any time, while the gate is there."""
    for each in ADDRESSEES.values():
        if each.rate and each.lane:
            # What was allowed may be late on its way, for which its lane has so much room.
            room = each.rate * _AT_ONCE.total_seconds() + each.lane
            yield from _too_fast(evidence, each.endpoint_id, each.rate, room)


def _too_fast(evidence: Evidence, endpoint_id: str, rate: float, room: float) -> Iterator[str]:
    """Have what an endpoint saw run through a bucket of tokens, which is full again after a fault."""
    left, before = room, None
    for post in evidence.posts_at(endpoint_id):
        if post in evidence.unheard:
            continue  # the same attempt comes again
        saved = rate * (post.request.at - before).total_seconds() if before else 0
        excused = evidence.explanation(post, GATE | DEADLY)
        left = (room if excused else min(room, left + saved)) - 1
        before = post.request.at
        if left < 0:
            left = 0
            yield f"{post.id} came too soon to {endpoint_id}, whose rate is {rate:g} a second"


def claims_are_of_attempts(evidence: Evidence) -> Iterator[str]:
    """Claims: whatever is sent is claimed, and what nobody sends any more is not."""
    yield from (f"{delivery_id} was sent, and not claimed" for delivery_id in evidence.unclaimed)
    yield from (f"{delivery_id} is still claimed, and nobody sends it" for delivery_id in evidence.claims)
