"""Model and Lua side by side: every call goes to both, under a clock that the test sets, and must come out the same."""

from __future__ import annotations

from datetime import timedelta
from itertools import count
from typing import TypeVar

from tests.breaker_model import US, BreakerModel
from tests.gate.clock import START_US
from tests.gate.watched import Watched
from webhooks.gate.values import Admitted, Busy, Held, MayProbe, MayRelease, Offer, Slow
from webhooks.model import NO_LIMITS, Limits
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
    narrow=2,
    remembered_quick=timedelta(seconds=30),
    slow_after=timedelta(seconds=1),
)

_T = TypeVar("_T")
_merchants = count()


class Disagreement(AssertionError):
    """The Lua did not do what the model did."""


class Duel:
    """One merchant's gate and its model; `steps` counts the calls in which they agreed."""

    def __init__(self, gate: Watched, limits: Limits = NO_LIMITS) -> None:
        self.merchant_id = f"merchant {next(_merchants)}"
        self.model = BreakerModel(RULES.with_limits(limits))
        self.steps = 0
        self.slots: list[str] = []
        self.admissions: list[Admitted] = []
        self._gate = gate
        self._limits = limits
        self._now = START_US

    def pass_time(self, wait_us: int) -> None:
        """Let time pass."""
        self._now += wait_us

    def approach(self, which: int, offset_us: int) -> None:
        """Go to where one of the model's times ends, or a little to either side of it, if that lies ahead."""
        ahead = sorted(end for end in self.model.moments_of_interest() if end > self._now)
        if ahead:
            self._go_to(ahead[which % len(ahead)] + offset_us)

    def await_pause(self, offset_us: int) -> None:
        """Go to where the pause ends, or a little to either side of it, if that lies ahead."""
        self._go_to(self.model.pause_ends + offset_us)

    def await_tokens(self, number: int, offset_us: int) -> None:
        """Go to where the rate allows so many attempts, or a little to either side of it, if that lies ahead."""
        self._go_to(self.model.moment_of_tokens(number) + offset_us)

    def admit(self, delivery: str, slot: str | None, *, slow: bool) -> Admitted | Held | Busy | Slow:
        """Ask both."""
        now = self._tick()
        told = self._gate.admit(self.merchant_id, delivery, slot, self._limits, slow=slow)
        expected = self.model.admit(now, delivery, slot, slow=slow)
        answer = self._same(told, expected, "admit")
        if isinstance(told, Held) and isinstance(expected, Held):
            self._same(told.until, expected.until, "until")  # which makes none of them another answer
        if isinstance(answer, Admitted):
            self.admissions.append(answer)
        if isinstance(answer, Slow):
            self.slots.append(answer.slot)
        return answer

    def report(self, admitted: Admitted, effect: Effect, took: timedelta | None) -> None:
        """Tell both."""
        now = self._tick()
        told = self._same(
            self._gate.report(self.merchant_id, admitted, effect, self._limits, took),
            self.model.report(now, admitted, effect, took),
            "report",
        )
        self.slots.extend(told.slots)

    def offer(self) -> None:
        """Let both offer."""
        now = self._tick()
        offer: Offer = self._same(
            self._gate.offer([self.merchant_id], {self.merchant_id: self._limits})[self.merchant_id],
            self.model.offer(now),
            "offer",
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

    def _go_to(self, moment_us: int) -> None:
        # The call that follows is one microsecond later.
        self._now = max(moment_us - 1, self._now)

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


def took_of(number: int) -> timedelta | None:
    """Return one of the times that a POST may take: none at all, quick ones, and such as just are slow."""
    return (None, *(timedelta(seconds=each) for each in (0.01, 0.01, 0.5, 0.999999, 1, 3, 10)))[number % 8]


def seconds(number: float) -> int:
    """Return seconds as microseconds."""
    return timedelta(seconds=number) // US
