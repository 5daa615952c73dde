"""What the system says about itself: a wide log line for each attempt, one when a breaker moves; no secrets (I9)."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from typing import Any

from webhooks.accepting.reading import RefusedEvent
from webhooks.gate.values import Report
from webhooks.model import Attempt, Delivery
from webhooks.policy.decisions import Decision, Delivered, Failed, RetryAt

log = logging.getLogger("webhooks")


def attempted(delivery: Delivery, attempt: Attempt, decision: Decision) -> None:
    """Write the line `delivery.attempted`."""
    say(
        "delivery.attempted",
        id=delivery.id,
        merchant=delivery.merchant_id,
        type=delivery.type,
        attempt=attempt.number,
        outcome=attempt.outcome.value,
        status=attempt.status,
        cause=attempt.cause,
        ms=None if attempt.duration is None else round(attempt.duration.total_seconds() * 1000),
        ladder=attempt.ladder and attempt.ladder.value,
        probe=attempt.probe or None,
        **_next(decision),
    )


def breaker(merchant_id: str, report: Report) -> None:
    """Write `breaker.opened` or `breaker.closed` when a report moved it."""
    if report.opened:
        say("breaker.opened", merchant=merchant_id)
    if report.closed:
        say("breaker.closed", merchant=merchant_id)


def refused(event: RefusedEvent) -> None:
    """Write `event.refused`, an error: its producer hears nothing."""
    say("event.refused", logging.ERROR, **asdict(event))


def say(event: str, level: int = logging.INFO, /, **facts: Any) -> None:
    """Write one line: the event's name and its facts as compact JSON; facts that are None are left out."""
    known = {name: value for name, value in facts.items() if value is not None}
    log.log(level, "%s %s", event, json.dumps(known, ensure_ascii=False))


def _next(decision: Decision) -> dict[str, str]:
    match decision:
        case Delivered():
            return {"then": "delivered"}
        case RetryAt(due_at=due_at):
            return {"then": "retry", "due": due_at.isoformat(timespec="milliseconds")}
        case Failed(reason=reason):
            return {"then": "failed", "reason": reason.value}
