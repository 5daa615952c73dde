"""Model and Lua side by side: every call goes to both, under a clock that the test sets, and must come out the same."""

from __future__ import annotations

from datetime import timedelta
from itertools import count
from typing import TypeVar

from tests.breaker_model import US, BreakerModel
from tests.gate.clock import START_US
from tests.gate.watched import Watched
from webhooks.gate.values import Admitted, Busy, Held, MayProbe, MayRelease, Offer
from webhooks.policy.breaker import BreakerRules, Effect

# Small numbers, so that a short walk meets every corner; no time below is ever waited for.
RULES = BreakerRules(
    window=timedelta(minutes=1),
    min_attempts=4,
    failure_percent=75,
    pause=timedelta(seconds=20),
    max_pause=timedelta(seconds=50),
    lease=timedelta(seconds=15),
    lane=4,
    slot_lease=timedelta(seconds=20),
)

_T = TypeVar("_T")
_merchants = count()


class Disagreement(AssertionError):
    """The Lua did not do what the model did."""


class Duel:
    """One merchant's gate and its model; `steps` counts the calls in which they agreed."""

    def __init__(self, gate: Watched) -> None:
        self.merchant_id = f"merchant {next(_merchants)}"
        self.model = BreakerModel(RULES)
        self.steps = 0
        self.slots: list[str] = []
        self.admissions: list[Admitted] = []
        self._gate = gate
        self._now = START_US

    def pass_time(self, wait_us: int) -> None:
        """Let time pass."""
        self._now += wait_us

    def approach(self, which: int, offset_us: int) -> None:
        """Go to where one of the model's times ends, or a little to either side of it, if that lies ahead."""
        ahead = sorted(end for end in self.model.moments_of_interest() if end > self._now)
        if ahead:
            # The call that follows is one microsecond later.
            self._now = max(ahead[which % len(ahead)] + offset_us - 1, self._now)

    def admit(self, delivery: str, slot: str | None) -> Admitted | Held | Busy:
        """Ask both."""
        now = self._tick()
        answer = self._same(
            self._gate.admit(self.merchant_id, delivery, slot), self.model.admit(now, delivery, slot), "admit"
        )
        if isinstance(answer, Admitted):
            self.admissions.append(answer)
        return answer

    def report(self, admitted: Admitted, effect: Effect) -> None:
        """Tell both."""
        now = self._tick()
        told = self._same(
            self._gate.report(self.merchant_id, admitted, effect), self.model.report(now, admitted, effect), "report"
        )
        self.slots.extend(told.slots)

    def offer(self) -> None:
        """Let both offer."""
        now = self._tick()
        offer: Offer = self._same(
            self._gate.offer([self.merchant_id])[self.merchant_id], self.model.offer(now), "offer"
        )
        match offer:
            case MayProbe(slot):
                self.slots.append(slot)
            case MayRelease(slots):
                self.slots.extend(slots)
            case _:
                pass

    def drained(self, unused: tuple[str, ...]) -> None:
        """Say to both that nothing is held."""
        self._tick()
        self._gate.drained(self.merchant_id, unused)
        self.model.drained(unused)
        self._same(None, None, "drained")

    def reset(self) -> None:
        """Reset both."""
        now = self._tick()
        self._gate.reset(self.merchant_id)
        self.model.reset(now)
        self._same(None, None, "reset")

    def _tick(self) -> int:
        self._now += 1
        self._gate.now_us = self._now
        return self._now

    def _same(self, lua: _T, model: _T, call: str) -> _T:
        shown, expected = self._gate.show(self.merchant_id), self.model.show(self._now, self.merchant_id)
        if (lua, shown) != (model, expected):
            sides = f"  Lua   {lua}\n        {shown}\n  model {model}\n        {expected}"
            raise Disagreement(f"{call} at {self._now}:\n{sides}")
        self.steps += 1
        return lua


def seconds(number: float) -> int:
    """Return seconds as microseconds."""
    return timedelta(seconds=number) // US
