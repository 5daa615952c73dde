"""The gate in memory: the plain Python model of an endpoint with which `tests/gate` compares the Lua."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from tests.breaker_model import US, BreakerModel
from tests.fakes.clock import FakeClock
from webhooks.gate.values import Admitted, Breaker, Busy, Held, Offer, Report, Slow
from webhooks.model import NO_LIMITS, Limits
from webhooks.policy.breaker import BreakerRules, Effect

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class FakeGate:
    """Breakers and lanes; while it is `away` everything passes, as through `ResilientGate`."""

    def __init__(self, clock: FakeClock, rules: BreakerRules) -> None:
        self.away = False
        self.reported: list[Effect] = []
        self.took: list[timedelta | None] = []
        self._clock = clock
        self._rules = rules
        self._models = defaultdict[str, BreakerModel](lambda: BreakerModel(rules))

    def admit(
        self,
        endpoint_id: str,
        delivery_id: str,
        slot: str | None = None,
        limits: Limits = NO_LIMITS,
        *,
        slow: bool = False,
    ) -> Admitted | Held | Busy | Slow:
        """As Gate.admit."""
        if self.away:
            return Admitted(None)
        return self._of(endpoint_id, limits).admit(self._tick(), delivery_id, slot, slow=slow)

    def report(
        self,
        endpoint_id: str,
        admitted: Admitted,
        effect: Effect,
        limits: Limits = NO_LIMITS,
        took: timedelta | None = None,
    ) -> Report:
        """As Gate.report."""
        self.reported.append(effect)
        self.took.append(took)
        if self.away:
            return Report()
        return self._of(endpoint_id, limits).report(self._tick(), admitted, effect, took)

    def offer(self, endpoint_ids: Iterable[str]) -> dict[str, Offer]:
        """As Gate.offer."""
        return {endpoint_id: self._models[endpoint_id].offer(self._tick()) for endpoint_id in endpoint_ids}

    def drained(self, endpoint_id: str, unused: Sequence[str] = ()) -> None:
        """As Gate.drained."""
        self._models[endpoint_id].drained(tuple(unused))

    def show(self, endpoint_id: str) -> Breaker:
        """As Gate.show."""
        return self._models[endpoint_id].show(self._now_us(), endpoint_id)

    def _of(self, endpoint_id: str, limits: Limits) -> BreakerModel:
        model = self._models[endpoint_id]
        model.rules = self._rules.with_limits(limits)
        return model

    def _tick(self) -> int:
        self._clock.advance(US)  # no two calls are made in the same microsecond
        return self._now_us()

    def _now_us(self) -> int:
        return (self._clock.now - _EPOCH) // US
