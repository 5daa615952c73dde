"""How an endpoint or a merchant does, as its `show` prints it: breaker, answers of late, what is held and failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from webhooks.cli.output import print_table, words
from webhooks.gate.values import Breaker
from webhooks.ledger.answering import Answered, Performance
from webhooks.operating.looking import Look
from webhooks.policy.breaker import BreakerState


def as_json(performance: Performance) -> dict[str, Any]:
    """Return how it does, by names that stay."""
    return {
        "held": dict(performance.held),
        "failed": dict(performance.failed),
        "last_hour": _answered(performance.hour),
        "last_day": _answered(performance.day),
    }


def _answered(answered: Answered) -> dict[str, Any]:
    facts: dict[str, Any] = {"attempts": answered.attempts, "delivered": answered.delivered}
    return {**facts, "share": answered.share, "median": answered.median}


def in_lines(performance: Performance) -> dict[str, object]:
    """Return how it does, a line for each fact."""
    return {
        "held": listed(performance.held),
        "failed": listed(performance.failed),
        "last hour": _in_line(performance.hour),
        "last day": _in_line(performance.day),
    }


def _in_line(answered: Answered) -> str:
    if answered.share is None:
        return "no attempts"
    half = "" if answered.median is None else f", half of the answers within {words(answered.median)}"
    return f"{answered.attempts} attempts, {_percent(answered.share)} answered 2xx{half}"


def _percent(share: float) -> str:
    """Write a share; what is not all is never written as 100 %."""
    return f"{int(share * 1000) / 10:g} %"


def listed(counts: Mapping[Any, int]) -> str:
    """Write how many are held or have failed for what."""
    return ", ".join(f"{count} for {what}" for what, count in sorted(counts.items())) or "none"


def breaker_of(look: Look) -> str:
    """Say in a line how an endpoint's breaker stands."""
    return look.gate or "unknown" if look.breaker is None else _standing(look.breaker)


def _standing(breaker: Breaker) -> str:
    match breaker.state:
        case BreakerState.PAUSED:
            told = f"paused until {words(breaker.until)}"
        case BreakerState.PROBING:
            told = f"probing, by {breaker.probe or 'nobody yet'}"
        case BreakerState.WORKING:
            told = "working, and drains what was held" if breaker.draining else "working"
    more = (f"{breaker.in_flight} in flight" if breaker.in_flight else "", "slow" if breaker.slow else "")
    return ", ".join(filter(None, (told, *more)))


def last_as_json(look: Look | None) -> list[dict[str, Any]]:
    """Return an endpoint's last answers; of none there are none."""
    return [asdict(made) for made in look.last] if look else []


def print_last(look: Look) -> None:
    """Print an endpoint's last answers."""
    rows = [
        (
            *(made.started_at, made.delivery_id, made.number, made.outcome, made.status),
            *(None if made.duration_ms is None else timedelta(milliseconds=made.duration_ms), made.cause),
        )
        for made in look.last
    ]
    columns = ["when", "delivery", "attempt", "outcome", "status", "took", "cause"]
    print_table(f"the last {len(rows)} attempts", columns, rows)


def print_each(looks: Sequence[Look]) -> None:
    """Print a merchant's endpoints, each in a line."""
    rows = [
        (
            look.endpoint.id,
            breaker_of(look),
            _in_line(look.performance.hour),
            *(sum(look.performance.held.values()), sum(look.performance.failed.values())),
        )
        for look in looks
    ]
    print_table(f"{len(rows)} endpoints", ["endpoint", "breaker", "last hour", "held", "failed"], rows)


def each_as_json(looks: Sequence[Look]) -> list[dict[str, Any]]:
    """Return how each of a merchant's endpoints does."""
    return [{"id": look.endpoint.id, "breaker": breaker_as_json(look), **as_json(look.performance)} for look in looks]


def breaker_as_json(look: Look) -> dict[str, Any] | None:
    """Return how an endpoint's breaker stands, None where the gate cannot be asked."""
    return None if look.breaker is None else asdict(look.breaker)
