"""What operators ask of a breaker by remote control, which every worker hears."""

from __future__ import annotations

from webhooks import parts


def reset_once(merchant_id: str, who: str) -> str | None:
    """Reset a breaker for all workers that were asked at the same time; returns who was faster, None if nobody.

    Raises NotPossible as `Views.holding` does, and GateUnavailable, after which the audit has no line of it.
    """
    parts.views().holding(merchant_id)
    with parts.audit().once(f"breaker reset of {merchant_id}", who=who, why="by celery control") as faster:
        if faster is None:
            parts.gate().reset(merchant_id)
    return faster
