"""Types of events: which are money, and which an endpoint wants.

A 4xx ends the notice of anything else, but money keeps knocking (rules, part 1).
"""

from __future__ import annotations

from collections.abc import Iterable

from webhooks.errors import NotPossible

MOST_WANTED = 100
_ALL_UNDER = ".*"

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


def checked_wanted(types: Iterable[str]) -> tuple[str, ...]:
    """Return the types of events that an endpoint wants, each once; `payment.*` stands for all under that name.

    Raises NotPossible for a star anywhere else, for none and for more than 100.
    """
    wanted = tuple(dict.fromkeys(types))
    if not wanted:
        raise NotPossible("types: there is none, and nothing would be sent; name one, or leave them out for all")
    for each in wanted:
        if "*" in each.removesuffix(_ALL_UNDER) or each == _ALL_UNDER:
            raise NotPossible(f"type {each}: a star only stands for all types under a name, as in payment.*")
    if len(wanted) > MOST_WANTED:
        raise NotPossible(f"types: at most {MOST_WANTED}, not {len(wanted)}; payment.* stands for many")
    return wanted
