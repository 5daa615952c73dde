"""How a merchant died and came back, as its breaker saw it, judged by the rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from webhooks.demo.cast import PAUSES
from webhooks.demo.journey import TOLERANCE, Journey
from webhooks.ledger.rows import AttemptRow
from webhooks.model import Outcome


@dataclass(frozen=True, slots=True)
class Probe:
    """One probe: when it ended, and how."""

    at: datetime
    delivery_id: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Timeline:
    """`opened_at` and `closed_at` are the breaker's, the rest is read from the ledger's attempts."""

    opened_at: datetime
    closed_at: datetime
    failures: int
    probes: Sequence[Probe]
    released: Sequence[datetime]

    @property
    def events(self) -> list[tuple[float, str]]:
        """What happened, in seconds since the breaker opened."""
        first, last = min(self.released), max(self.released)
        told = [
            (self.opened_at, f"opened, after {self.failures} failures; everything is held from here"),
            *((probe.at, f"probe {probe.delivery_id}: {probe.outcome}") for probe in self.probes),
            (self.closed_at, "closed; the release begins"),
            (first, "first released delivery arrives"),
            (last, f"last of {len(self.released)} arrives"),
        ]
        return [((at - self.opened_at).total_seconds(), what) for at, what in told]

    @property
    def faults(self) -> list[str]:
        """Where it is not what the rules demand; empty when all is well."""
        pauses = [later - earlier for earlier, later in self._pauses()]
        checks = {
            "it opened too early": self.failures >= 5,  # noqa: PLR2004 - the rules' five
            "there is not one failed probe and one that was answered": [probe.outcome for probe in self.probes]
            == [Outcome.UNAVAILABLE, Outcome.DELIVERED],
            "its pauses are not the rules'": all(
                wanted <= seen.total_seconds() <= wanted + TOLERANCE
                for wanted, seen in zip(PAUSES, pauses, strict=False)
            ),
            "the release did not begin within 2 s": min(self.released) - self.closed_at <= timedelta(seconds=2),
        }
        return [fault for fault, well in checks.items() if not well]

    def _pauses(self) -> list[tuple[datetime, datetime]]:
        begins = [self.opened_at, *(probe.at for probe in self.probes)]
        return list(zip(begins, [probe.at for probe in self.probes], strict=False))


def read_timeline(opened_at: datetime, closed_at: datetime, journeys: Sequence[Journey]) -> Timeline:
    """Put the timeline together from one merchant's deliveries."""
    steps = [step for journey in journeys for step in journey.history.attempts]
    probes = [Probe(_ended(step), step.delivery_id, step.outcome) for step in steps if step.probe]
    return Timeline(
        opened_at=opened_at,
        closed_at=closed_at,
        failures=sum(step.outcome == Outcome.UNAVAILABLE and not step.probe for step in steps),
        probes=sorted(probes, key=lambda probe: probe.at),
        released=[_ended(step) for step in steps if step.outcome == Outcome.DELIVERED and not step.probe],
    )


def _ended(step: AttemptRow) -> datetime:
    return step.started_at + timedelta(milliseconds=step.duration_ms or 0)
