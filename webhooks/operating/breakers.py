"""Looking at breakers, and resetting them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from webhooks import parts
from webhooks.accepting.reading import is_of_an_endpoint
from webhooks.gate.values import Breaker
from webhooks.ledger.holding import Holding
from webhooks.model import HeldFor, Operator


@dataclass(frozen=True, slots=True)
class BreakerStanding:
    """How a breaker stands, whose it is (None: of an endpoint that is no more), and how many deliveries are held."""

    merchant_id: str | None
    breaker: Breaker
    held: int


@dataclass(frozen=True, slots=True)
class Reset:
    """A breaker that is closed again: how many deliveries its endpoint holds, and what keeps them all the same.

    `faster` is who has just done it, where this was not the first to ask.
    """

    endpoint_id: str
    held: int
    stay_for: HeldFor | None
    faster: str | None = None

    @property
    def released(self) -> int:
        """How many go now, paced."""
        return 0 if self.stay_for else self.held


def reset(by: Operator, endpoint_id: str) -> Reset:
    """Close an endpoint's breaker and let go what it holds.

    Raises NotPossible for an endpoint nobody has heard of, and GateUnavailable, after which the audit has no line.
    """
    held = _holding(endpoint_id)  # before they go
    with parts.act(by, f"the breaker of {endpoint_id} was reset", f"webhooks breaker show {endpoint_id}") as act:
        act.note(_what(endpoint_id))
        parts.gate().reset(endpoint_id)  # last, so that nothing is reset without its line
    return Reset(endpoint_id, held.number, held.stay_for)


def reset_once(by: Operator, endpoint_id: str) -> Reset:
    """As `reset`, for all workers that were asked at the same time: one of them does it."""
    held = _holding(endpoint_id)
    with parts.audit().once(by, _what(endpoint_id)) as faster:
        if faster is None:
            parts.gate().reset(endpoint_id)
    return Reset(endpoint_id, held.number, held.stay_for, faster)


def show(endpoint_id: str) -> BreakerStanding:
    """Return how an endpoint's breaker stands. Raises NotPossible for an endpoint nobody has heard of."""
    held = _holding(endpoint_id)
    return BreakerStanding(owners([endpoint_id])[endpoint_id], parts.gate().show(endpoint_id), held.number)


def owners(endpoint_ids: Sequence[str]) -> dict[str, str | None]:
    """Return whose each is, None for one that is no more. The ledger is asked only where an id does not say it."""
    named = [each for each in endpoint_ids if is_of_an_endpoint(each)]
    known = {each.id: each.merchant_id for each in parts.endpoints().all()} if named else {}
    return {each: each for each in endpoint_ids} | {each: known.get(each) for each in named}


def _holding(endpoint_id: str) -> Holding:
    """Return what an endpoint has held; a merchant that has others only is asked which of them is meant."""
    found = parts.endpoints().of(endpoint_id)
    is_there = not found or any(each.id == endpoint_id for each in found)
    if not is_there and not parts.views().count_held_at(endpoint_id):
        raise parts.endpoints().missing(endpoint_id)
    return parts.views().holding(endpoint_id)


def _what(endpoint_id: str) -> str:
    return f"breaker reset of {endpoint_id}"
