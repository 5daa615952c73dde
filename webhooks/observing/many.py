"""What becomes of several deliveries at once, and without an attempt: by the sweep, or by hand."""

from __future__ import annotations

from dataclasses import dataclass

from webhooks.model import Reason
from webhooks.observing.facts import Fact


@dataclass(frozen=True, slots=True)
class EndedApart(Fact):
    """Deliveries have failed without an attempt: they were past their age, or an operator wanted it.

    `money`: so many of them are; None where nobody has looked.
    """

    name = "deliveries.ended"
    delivery_ids: tuple[str, ...]
    reason: Reason
    money: int | None = None


@dataclass(frozen=True, slots=True)
class WaitingAgain(Fact):
    """Deliveries wait again, without an attempt that came to an end: replayed, or taken back from the dead."""

    name = "deliveries.waiting_again"
    delivery_ids: tuple[str, ...]
    why: str
