"""What operators do by hand, and what becomes of the notices that they are sent, as facts."""

from __future__ import annotations

from dataclasses import dataclass

from webhooks.observing.facts import Fact


@dataclass(frozen=True, slots=True)
class Acted(Fact):
    """An act, and its line in the audit, count; told where it was done. `deliveries`: how many it concerned."""

    name = "operator.acted"
    who: str
    what: str
    why: str | None
    deliveries: int | None
