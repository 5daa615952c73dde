"""A random walk through a duel, quick enough to be taken again for every mutation of the Lua."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TypeVar

from tests.breaker_model import US
from tests.gate.duel import RULES, Duel, seconds, took_of
from webhooks.gate.values import Admitted
from webhooks.policy.breaker import Effect

T = TypeVar("T")

_EFFECTS = (Effect.FAILURE, Effect.SUCCESS, Effect.THROTTLED, Effect.NOTHING)
_MOVES = {
    "admit": 20,
    "report": 20,
    "report_old": 5,
    "answer": 15,
    "fail": 8,
    "crowd": 4,
    "offer": 12,
    "approach": 14,
    "straddle": 8,
    "pass_time": 5,
    "await_pause": 3,
    "await_tokens": 6,
    "earn": 6,
    "drained": 3,
    "reset": 1,
}


class Walk:
    """Moves drawn by weight from `seed`; the effects lean to one side for a while, as merchants do."""

    def __init__(self, duel: Duel, seed: int) -> None:
        self._duel = duel
        self._dice = random.Random(seed)
        self._delivery = 0

    def go(self, moves: int) -> None:
        """Take so many moves; Disagreement ends it."""
        for number in range(moves):
            if number % 25 == 0:
                weights = self._dice.choice([(8, 1, 1, 1), (1, 8, 1, 1), (2, 4, 3, 1)])
            move = self._dice.choices(list(_MOVES), list(_MOVES.values()))[0]
            getattr(self, f"_{move}")(self._dice.choices(_EFFECTS, weights)[0])

    def _admit(self, _: Effect) -> None:
        self._delivery += self._dice.randrange(2)
        slot = self._recent(self._duel.slots) if self._dice.random() < 0.6 else None
        self._duel.admit(f"delivery-{self._delivery % 12}", slot, slow=self._slow())

    def _report(self, effect: Effect) -> None:
        live = [admitted for _, admitted in self._duel.model.leases.values()]
        if live:
            self._duel.report(self._dice.choice(live), effect, self._took())

    def _report_old(self, effect: Effect) -> None:
        admitted = self._recent(self._duel.admissions)
        if admitted:
            self._duel.report(admitted, effect, self._took())

    def _answer(self, effect: Effect) -> None:
        for _ in range(self._dice.randrange(1, 5)):
            self._delivery += 1
            slot = self._recent(self._duel.slots)
            answer = self._duel.admit(f"delivery-{self._delivery % 12}", slot, slow=self._slow())
            if isinstance(answer, Admitted):
                self._duel.report(answer, effect, self._took())

    def _crowd(self, effect: Effect) -> None:
        """Come all at once, sometimes to a lane that was just drained."""
        if self._dice.random() < 0.5:
            self._drained(effect)
        for _ in range(5):
            self._delivery += 1
            self._duel.admit(f"delivery-{self._delivery % 12}", None, slow=self._slow())

    def _fail(self, _: Effect) -> None:
        self._answer(Effect.FAILURE)

    def _offer(self, _: Effect) -> None:
        self._duel.offer()

    def _approach(self, _: Effect) -> None:
        self._duel.approach(self._dice.randrange(4), self._dice.choice((-1, 0, 0, 0, 1)))

    def _straddle(self, effect: Effect) -> None:
        """Answer just before something ends, and again when it has ended."""
        self._duel.approach(self._dice.randrange(12), -1)
        self._answer(effect)
        self._duel.approach(0, 0)
        self._answer(effect)

    def _pass_time(self, _: Effect) -> None:
        self._duel.pass_time(self._dice.choice((seconds(0.001), seconds(1), seconds(7), seconds(61), seconds(200))))

    def _await_pause(self, effect: Effect) -> None:
        """Come just when the pause is over."""
        self._duel.await_pause(self._dice.choice((-1, 0, 0, 1)))
        self._dice.choice((self._offer, self._admit))(effect)

    def _await_tokens(self, effect: Effect) -> None:
        """Come just when the rate allows another attempt, or a few."""
        self._duel.await_tokens(self._dice.randrange(1, 4), self._dice.choice((-1, 0, 0, 1)))
        self._dice.choice((self._offer, self._admit, self._crowd, self._report))(effect)

    def _earn(self, _: Effect) -> None:
        """Answer quickly a few times."""
        for _quick in range(self._dice.randrange(2, 8)):
            self._delivery += 1
            slot = self._recent(self._duel.slots)
            answer = self._duel.admit(f"delivery-{self._delivery % 12}", slot, slow=self._slow())
            if isinstance(answer, Admitted):
                self._duel.report(answer, Effect.SUCCESS, timedelta(milliseconds=10))

    def _drained(self, _: Effect) -> None:
        if self._dice.random() < 0.5:
            self._duel.offer()
        self._duel.drained(tuple(self._duel.slots[-self._dice.randrange(1, 4) :]))

    def _reset(self, _: Effect) -> None:
        self._duel.reset()

    def _slow(self) -> bool:
        return self._dice.random() < 0.6

    def _took(self) -> timedelta | None:
        """Let a POST take one of the usual times, or so long that the endpoint just becomes slow by it, or just not."""
        if self._dice.random() < 0.1:
            just_slow = 4 * RULES.slow_after - 3 * self._duel.model.pace * US
            return max(just_slow - self._dice.randrange(2) * US, timedelta())
        return took_of(self._dice.randrange(8))

    def _recent(self, things: list[T]) -> T | None:
        return things[-self._dice.randrange(1, min(len(things), 4) + 1)] if things else None
