"""What operators ask of a breaker, by command or by remote control."""

from __future__ import annotations

from dataclasses import dataclass

from webhooks import parts
from webhooks.ledger.merchants import unknown
from webhooks.ledger.views import Wanted
from webhooks.model import HeldFor


@dataclass(frozen=True, slots=True)
class Held:
    """How many deliveries a merchant has held, and what keeps all of them whatever its breaker says."""

    number: int
    stay_for: HeldFor | None


def held_of(merchant_id: str) -> Held:
    """Count. Raises NotPossible for a merchant nobody has heard of: not registered, and without any delivery."""
    found = parts.merchants().find(merchant_id)
    if found is None and not parts.views().deliveries(Wanted(merchant_id=merchant_id), 1):
        raise unknown(merchant_id)
    number = sum(parts.views().count_held(merchant_id).values())
    if found is None or found.url is None:
        return Held(number, HeldFor.ADDRESS)
    return Held(number, HeldFor.OPERATOR if found.paused_at else None)


def reset_once(merchant_id: str, who: str) -> str | None:
    """Reset a breaker for all workers that were asked at the same time; returns who was faster, None if nobody.

    Raises NotPossible as `held_of` does, and GateUnavailable, after which the audit has no line of it.
    """
    held_of(merchant_id)
    with parts.audit().once(f"breaker reset of {merchant_id}", who=who, why="by celery control") as faster:
        if faster is None:
            parts.gate().reset(merchant_id)
    return faster
