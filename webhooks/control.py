"""Remote control: `celery -A webhooks inspect breaker M` and `celery -A webhooks control reset_breaker M`."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from celery.worker.control import control_command, inspect_command

from webhooks import parts
from webhooks.errors import WebhooksError


@inspect_command(args=[("merchant_id", str)], signature="MERCHANT")  # type: ignore[untyped-decorator]
def breaker(_state: Any, merchant_id: str) -> dict[str, Any]:
    """Show a merchant's breaker: state, window counts, pause, since when, who probes, how many are held."""
    try:
        shown = asdict(parts.gate().show(merchant_id))
        held = sum(parts.views().count_held(merchant_id).values())
    except WebhooksError as error:
        return {"error": str(error)}
    return {name: _plain(value) for name, value in shown.items()} | {"held": held}


@control_command(args=[("merchant_id", str)], signature="MERCHANT")  # type: ignore[untyped-decorator]
def reset_breaker(_state: Any, merchant_id: str) -> dict[str, Any]:
    """Close a merchant's breaker; what it holds is released at once, paced."""
    try:
        parts.gate().reset(merchant_id)
    except WebhooksError as error:
        return {"error": str(error)}
    return {"ok": f"breaker of {merchant_id} reset"}


def _plain(value: Any) -> Any:
    """Write moments as text and durations as seconds: control replies are JSON."""
    if isinstance(value, datetime):
        return value.isoformat()
    return value.total_seconds() if hasattr(value, "total_seconds") else value
