"""One delivery's journey, as its merchant and the ledger tell it, judged by the rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from webhooks.demo.cast import OK, Role
from webhooks.demo.merchants import Visit
from webhooks.ledger.rows import History

TOLERANCE = 2.0  # seconds that a wait may be longer than its ladder says, on a busy machine


@dataclass(frozen=True, slots=True)
class Journey:
    """One delivery, from its event to its end, and what is wrong with it by the rules."""

    event: Mapping[str, Any]
    role: Role
    history: History
    visits: Sequence[Visit]

    @property
    def statuses(self) -> list[int]:
        """What the merchant answered, in order."""
        return [visit.status for visit in self.visits]

    @property
    def waits(self) -> list[float]:
        """Seconds between the visits."""
        return [later.at - earlier.at for earlier, later in pairwise(self.visits)]

    @property
    def verified(self) -> bool:
        """Whether the merchant could verify every signature."""
        return all(visit.verified for visit in self.visits)

    @property
    def faults(self) -> list[str]:
        """Where the journey is not what the rules demand; empty when all is well."""
        checks = {
            f"it is {self.history.delivery.state}": self.history.delivery.state == self.role.state,
            f"its reason is {self.history.delivery.reason}": self.history.delivery.reason == self.role.reason,
            "its answers are others": self.role.answers in {None, tuple(self.statuses)},
            "it was sent again after a 2xx": OK not in self.statuses[:-1],
            "the ledger tells of other attempts": [made.status for made in self.history.attempts] == self.statuses,
            "its attempts are not numbered 1, 2, 3": [visit.attempt for visit in self.visits]
            == list(range(1, len(self.visits) + 1)),
            "a signature did not verify": self.verified,
            "its bodies differ": len({visit.body for visit in self.visits}) == 1,
            "its waits are others": self._waits_fit(),
        }
        return [fault for fault, well in checks.items() if not well]

    def _waits_fit(self) -> bool:
        if self.role.answers is None:
            return True
        return len(self.role.waits) == len(self.waits) and all(
            wanted <= seen <= wanted + TOLERANCE for wanted, seen in zip(self.role.waits, self.waits, strict=True)
        )
