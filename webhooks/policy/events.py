"""Is it money? A 4xx ends the notice of anything else, but money keeps knocking (rules, part 1)."""

from __future__ import annotations

_ALWAYS_MONEY = frozenset({"refund.completed", "refund.reversed"})

_MONEY_STATUSES = {
    "payment.status_changed": frozenset({"paid", "settled", "refunded"}),
    "withdrawal.status_changed": frozenset({"completed"}),
    "exchange.status_changed": frozenset({"completed"}),
}


def is_money(event_type: str, status: object) -> bool:
    """Whether money has moved, by the event's `type` and its `status` field (any JSON value, or None)."""
    if event_type in _ALWAYS_MONEY:
        return True
    return isinstance(status, str) and status in _MONEY_STATUSES.get(event_type, ())
