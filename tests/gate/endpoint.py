"""An endpoint that can take so many requests a second and answers 503 above that, with its backlog and a sweep."""

from __future__ import annotations

import heapq
from collections import Counter
from datetime import timedelta

from tests.breaker_model import US
from tests.gate.clock import Clock
from tests.gate.script import MERCHANT
from webhooks.gate.gate import Gate
from webhooks.gate.values import Admitted, MayRelease, Slow
from webhooks.policy.breaker import Effect

_TICK_US = timedelta(seconds=1) // US


class Endpoint:
    """Plays worker, sweep and merchant on the test's clock."""

    def __init__(self, gate: Gate, clock: Clock, per_second: int, latency: timedelta) -> None:
        self.reopened = 0
        self.most_at_once = 0
        self.slow = 0
        self.ticks = 0
        self._gate = gate
        self._clock = clock
        self._per_second = per_second
        self._latency_us = latency // US
        self._served: Counter[int] = Counter()
        self._in_flight: list[tuple[int, int, Admitted, Effect]] = []
        self._held = 0
        self._sent = 0

    def work_off(self, held: int, slots: tuple[str, ...]) -> timedelta:
        """Deliver so many held deliveries, of which the bearers of `slots` go first. Returns how long it took."""
        self._held = held
        start_us = next_tick_us = self._clock.now_us
        self._release(slots)
        while self._held or self._in_flight:
            answer_us = self._in_flight[0][0] if self._in_flight else next_tick_us
            if answer_us < next_tick_us:
                self._answer()
            else:
                self._clock.set(next_tick_us)
                next_tick_us += _TICK_US
                self._sweep()
        return (self._clock.now_us - start_us) * US

    def _sweep(self) -> None:
        self.ticks += 1
        offer = self._gate.offer([MERCHANT])[MERCHANT] if self._held else None
        if isinstance(offer, MayRelease):
            self._release(offer.slots)

    def _release(self, slots: tuple[str, ...]) -> None:
        used = slots[: self._held]
        for slot in used:
            self._held -= 1
            self._send(slot)
        if len(used) < len(slots):
            self._gate.drained(MERCHANT, slots[len(used) :])

    def _send(self, slot: str) -> None:
        self._sent += 1
        self._clock.advance(US)
        answer = self._gate.admit(MERCHANT, f"held-{self._sent}", slot)
        if isinstance(answer, Slow):
            self._clock.advance(US)
            answer = self._gate.admit(MERCHANT, f"held-{self._sent}", answer.slot, slow=True)
            self.slow += 1
        assert isinstance(answer, Admitted), answer
        arrival_us = self._clock.now_us
        self._served[arrival_us // _TICK_US] += 1
        can = self._served[arrival_us // _TICK_US] <= self._per_second
        effect = Effect.SUCCESS if can else Effect.FAILURE
        heapq.heappush(self._in_flight, (arrival_us + self._latency_us, self._sent, answer, effect))
        self.most_at_once = max(self.most_at_once, len(self._in_flight))

    def _answer(self) -> None:
        now_us, _, admitted, effect = heapq.heappop(self._in_flight)
        self._clock.set(max(now_us, self._clock.now_us + 1))
        self._held += effect is Effect.FAILURE
        report = self._gate.report(MERCHANT, admitted, effect, took=self._latency_us * US)
        self.reopened += report.opened
        self._release(report.slots)
