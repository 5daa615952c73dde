"""Short words for what the gate's tests do again and again."""

from __future__ import annotations

from datetime import timedelta
from itertools import count

from webhooks.gate.gate import Gate
from webhooks.gate.values import Admitted, MayProbe, MayRelease, Report
from webhooks.policy.breaker import BreakerRules, Effect

MERCHANT = "shop"
QUICK = timedelta(milliseconds=10)
_deliveries = count()


def admitted(gate: Gate, delivery: str | None = None, slot: str | None = None, merchant: str = MERCHANT) -> Admitted:
    """Have a delivery admitted, a new one unless it is named."""
    answer = gate.admit(merchant, delivery or f"delivery-{next(_deliveries)}", slot)
    assert isinstance(answer, Admitted), answer
    return answer


def attempts(
    gate: Gate, effect: Effect, times: int = 1, merchant: str = MERCHANT, took: timedelta | None = None
) -> list[Report]:
    """Let so many attempts of different deliveries end like this, one after the other."""
    return [gate.report(merchant, admitted(gate, merchant=merchant), effect, took=took) for _ in range(times)]


def widen(gate: Gate, lane: int = BreakerRules().lane, merchant: str = MERCHANT) -> None:
    """Let a merchant answer until its lane is as wide as it can be."""
    attempts(gate, Effect.SUCCESS, lane - BreakerRules().narrow, merchant, QUICK)


def widen_only(gate: Gate, lane: int = BreakerRules().lane, merchant: str = MERCHANT) -> None:
    """Let its lane be as wide as it can be, and none of those answers count against failures to come."""
    widen(gate, lane, merchant)
    gate.reset(merchant)


def offered_probe(gate: Gate, merchant: str = MERCHANT) -> str:
    """Return the slot of the probe that the gate offers."""
    offer = gate.offer([merchant])[merchant]
    assert isinstance(offer, MayProbe), offer
    return offer.slot


def released(gate: Gate, merchant: str = MERCHANT) -> tuple[str, ...]:
    """Return the slots that the gate offers."""
    offer = gate.offer([merchant])[merchant]
    assert isinstance(offer, MayRelease), offer
    return offer.slots
