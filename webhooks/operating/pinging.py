"""Sending an endpoint a test event now, to see how far one gets, and what is in its way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import uuid4

from webhooks import parts
from webhooks.accepting import reading
from webhooks.ledger.endpoints import noun
from webhooks.model import Answer, Operator
from webhooks.wire.deadline import Phase
from webhooks.wire.diagnosis import diagnose
from webhooks.wire.request import signed_headers

PING = "webhooks.ping"
"""The type of a test event."""

_LONGEST_EXCERPT = 200


@dataclass(frozen=True, slots=True)
class Pinged:
    """What came of a test event: `fine` for a 2xx, else what was `found` and, where there is something, `advice`.

    `origin` is the address without path and query, `addresses` what its name was resolved to. `phases` says how long
    each took, None for one that was not reached. `excerpt` is the beginning of an answer that was no 2xx.
    """

    endpoint_id: str
    merchant_id: str
    origin: str | None
    event_id: str
    sent_at: datetime
    addresses: Sequence[str]
    phases: Mapping[Phase, timedelta | None]
    fine: bool
    found: str
    advice: str | None
    status: int | None
    cause: str | None
    excerpt: str | None

    @property
    def took(self) -> timedelta:
        """How long all of it took."""
        return sum((span for span in self.phases.values() if span is not None), timedelta())


def ping(by: Operator, endpoint_id: str) -> Pinged:
    """Send an endpoint a signed test event, now, and say what came of it; a pause or an open breaker is no hindrance.

    It is no delivery: nothing is recorded but the line in the audit, no breaker hears of it, and it is not repeated.
    Raises NotPossible for an unknown endpoint or one without an address, and LocalFault for what this machine could not
    do.
    """
    found = parts.endpoints().get(endpoint_id)
    event = reading.read({"id": f"ping_{uuid4().hex}", "type": PING, "merchant_id": found.merchant_id})
    delivery = parts.pings().to(endpoint_id, event)
    headers = signed_headers(delivery, delivery.started_at)
    with parts.act(by, f"{endpoint_id} was sent a ping", f"webhooks {noun(endpoint_id)} show {endpoint_id}") as act:
        act.note(f"ping of {endpoint_id}, {event.id}")
    traced = parts.sender().traced(delivery.url, headers, delivery.body)
    told, result = diagnose(traced.result, traced.target), traced.result
    answer = result if isinstance(result, Answer) else None
    return Pinged(
        endpoint_id=endpoint_id,
        merchant_id=found.merchant_id,
        origin=traced.target.origin if traced.target else None,
        event_id=event.id,
        sent_at=delivery.started_at,
        addresses=traced.addresses,
        phases=traced.phases,
        fine=told.fine,
        found=told.found,
        advice=told.advice,
        status=answer.status if answer else None,
        cause=None if isinstance(result, Answer) else result.cause,
        excerpt=answer.excerpt[:_LONGEST_EXCERPT] or None if answer and not told.fine else None,
    )
