"""The gate under a clock that the test sets, and a plain client to look behind it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from tests.gate.clock import Clock, scripts_under_test
from webhooks.gate.gate import Gate
from webhooks.policy.breaker import BreakerRules


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    """A client of the gate's database."""
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        yield client


@pytest.fixture
def clock(client: redis.Redis) -> Clock:
    """The clock that `gate` reads."""
    return Clock(client)


@pytest.fixture
def gate(redis_url: str, clock: Clock) -> Iterator[Gate]:
    """A gate with the product's numbers, under the test's clock."""
    gate = Gate(redis_url, BreakerRules(), scripts_under_test())
    yield gate
    gate.close()


@pytest.fixture
def wide_gate(redis_url: str, clock: Clock) -> Iterator[Gate]:
    """A gate where every endpoint may have its whole lane from the start."""
    gate = Gate(redis_url, BreakerRules(narrow=BreakerRules().lane), scripts_under_test())
    yield gate
    gate.close()
