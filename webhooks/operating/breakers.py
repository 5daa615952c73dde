"""Resetting breakers."""

from __future__ import annotations

from dataclasses import dataclass

from webhooks import parts
from webhooks.model import HeldFor, Operator


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
    held = parts.views().holding(endpoint_id)  # before they go
    with parts.act(by, f"the breaker of {endpoint_id} was reset", f"webhooks breaker show {endpoint_id}") as act:
        act.note(_what(endpoint_id))
        parts.gate().reset(endpoint_id)  # last, so that nothing is reset without its line
    return Reset(endpoint_id, held.number, held.stay_for)


def reset_once(by: Operator, endpoint_id: str) -> Reset:
    """As `reset`, for all workers that were asked at the same time: one of them does it."""
    held = parts.views().holding(endpoint_id)
    with parts.audit().once(by, _what(endpoint_id)) as faster:
        if faster is None:
            parts.gate().reset(endpoint_id)
    return Reset(endpoint_id, held.number, held.stay_for, faster)


def _what(endpoint_id: str) -> str:
    return f"breaker reset of {endpoint_id}"
