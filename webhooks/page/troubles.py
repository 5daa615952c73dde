"""What went wrong, as a status of HTTP and one line for a person; never a trace."""

from __future__ import annotations

from dataclasses import dataclass

from webhooks.errors import (
    AnswerLost,
    BrokerUnavailable,
    GateUnavailable,
    LedgerFault,
    LedgerUnavailable,
    NotPossible,
    Refused,
    Unavailable,
    WebhooksError,
)
from webhooks.page.operations import NotAllowed
from webhooks.page.sessions import Forged, NotLoggedIn, TooOften
from webhooks.page.typed import Unreadable

_STATUSES: dict[type[Exception], int] = {
    NotLoggedIn: 401,
    NotAllowed: 403,
    Forged: 403,
    TooOften: 429,
    NotPossible: 409,
    Unreadable: 422,
    Refused: 422,
    LedgerFault: 500,
    Unavailable: 503,
}
_PARTS: dict[type[Exception], str] = {
    AnswerLost: "ledger",
    LedgerUnavailable: "ledger",
    LedgerFault: "ledger",
    GateUnavailable: "gate",
    BrokerUnavailable: "broker",
}


@dataclass(frozen=True, slots=True)
class Trouble:
    """A status and a line."""

    status: int
    text: str


def trouble_of(error: Exception, *, looking: bool = False) -> Trouble:
    """Say it. `looking`: what is not possible, is not there. Whatever nobody has foreseen is not told in its words."""
    if not isinstance(error, WebhooksError):
        return Trouble(500, "a fault of this page, told in its log")
    status = next((status for kind, status in _STATUSES.items() if isinstance(error, kind)), 500)
    part = next((f"{part}: " for kind, part in _PARTS.items() if isinstance(error, kind)), "")
    if looking and isinstance(error, NotPossible):
        status = 404
    return Trouble(status, f"{part}{error}".replace("\n", " "))
