"""The Lua does what the model does, whatever comes in whatever order."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from tests.gate.duel import RULES, Duel, seconds, took_of
from tests.gate.watched import Watched
from webhooks.gate.values import Admitted
from webhooks.model import Limits
from webhooks.policy.breaker import Effect

_MANY = settings(max_examples=100, stateful_step_count=80, database=None, suppress_health_check=list(HealthCheck))
_DELIVERIES = st.integers(0, 7).map("delivery-{}".format)
_EFFECTS = st.sampled_from(Effect)
_TOOK = st.integers(0, 7).map(took_of)
_RECENT = st.integers(1, 5)


class _Machine(RuleBasedStateMachine):
    """Random deliveries, answers and time steps; the test sets the gate of all runs."""

    gate: ClassVar[Watched]
    agreed: ClassVar = 0

    def __init__(self) -> None:
        super().__init__()
        self.duel = Duel(self.gate)

    @initialize(rate=st.sampled_from((None, None, 0.4, 2.5)))
    def limits(self, rate: float | None) -> None:
        self.duel = Duel(self.gate, Limits(rate=rate))

    def teardown(self) -> None:
        _Machine.agreed += self.duel.steps

    @rule(delivery=_DELIVERIES, slow=st.booleans())
    def fresh(self, delivery: str, slow: bool) -> None:
        self.duel.admit(delivery, None, slow=slow)

    @precondition(lambda self: self.duel.slots)
    @rule(delivery=_DELIVERIES, back=_RECENT, slow=st.booleans())
    def released(self, delivery: str, back: int, slow: bool) -> None:
        self.duel.admit(delivery, self.duel.slots[-min(back, len(self.duel.slots))], slow=slow)

    @precondition(lambda self: self.duel.admissions)
    @rule(effect=_EFFECTS, took=_TOOK, back=_RECENT)
    def report(self, effect: Effect, took: timedelta | None, back: int) -> None:
        self.duel.report(self.duel.admissions[-min(back, len(self.duel.admissions))], effect, took)

    @rule(effect=_EFFECTS, took=_TOOK, times=st.integers(1, 5), slow=st.booleans())
    def answers(self, effect: Effect, took: timedelta | None, times: int, slow: bool) -> None:
        for number in range(times):
            slot = self.duel.slots[-1] if self.duel.slots else None
            answer = self.duel.admit(f"delivery-{number}", slot, slow=slow)
            if isinstance(answer, Admitted):
                self.duel.report(answer, effect, took)

    @rule(number=st.integers(1, 3), offset_us=st.sampled_from((-1, 0, 1)))
    def await_tokens(self, number: int, offset_us: int) -> None:
        self.duel.await_tokens(number, offset_us)

    @rule()
    def offer(self) -> None:
        self.duel.offer()

    @rule(which=st.integers(0, 8), offset_us=st.sampled_from((-1, 0, 1)))
    def approach(self, which: int, offset_us: int) -> None:
        self.duel.approach(which, offset_us)

    @rule(wait_us=st.one_of(st.integers(0, 1_000_000), st.integers(0, seconds(400))))
    def pass_time(self, wait_us: int) -> None:
        self.duel.pass_time(wait_us)

    @rule(unused=_RECENT)
    def drained(self, unused: int) -> None:
        self.duel.drained(tuple(self.duel.slots[-unused:]))

    @rule(sure=st.integers(0, 3))
    def reset(self, sure: int) -> None:
        if not sure:
            self.duel.reset()


@pytest.mark.parametrize("steps", [8_000, pytest.param(20_000, marks=pytest.mark.long)])
def test_model_and_lua_agree_on_every_step(redis_url: str, steps: int) -> None:
    """Hypothesis looks for calls after which they differ, and finds none in so many steps."""
    _Machine.gate, _Machine.agreed = Watched(redis_url, RULES), 0

    while _Machine.agreed < steps:
        run_state_machine_as_test(_Machine, settings=_MANY)

    assert _Machine.agreed >= steps
    _Machine.gate.close()
