"""What the gate leaves in Redis: little, and nothing for ever."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import redis

from tests.gate.clock import Clock, scripts_under_test
from tests.gate.duel import RULES, Duel
from tests.gate.script import MERCHANT, QUICK, admitted, attempts, released
from tests.gate.walk import Walk
from tests.gate.watched import Watched
from webhooks.demo.stage import wait_until
from webhooks.gate.gate import Gate
from webhooks.gate.keys import keys_of
from webhooks.policy.breaker import BreakerRules, Effect

_KEYS = "webhooks:*"


def _bytes_of(client: redis.Redis, merchant_id: str) -> int:
    return sum(client.memory_usage(key, samples=0) or 0 for key in keys_of(merchant_id))


def test_a_busy_merchant_takes_two_kilobytes(client: redis.Redis, redis_url: str, clock: Clock) -> None:
    """A full lane of 20, a full window, a backlog being released: 2 KiB at most, whatever the traffic.

    With ids of the full 128 characters instead of a UUID's 36 it is about 5 KiB more.
    """
    gate = Gate(redis_url, BreakerRules(lane=20), scripts_under_test())
    merchant = str(uuid4())
    gate.reset(merchant)
    for _ in range(60):
        attempts(gate, Effect.SUCCESS, 20, merchant, QUICK)
        clock.advance(timedelta(seconds=5))
    in_flight = [admitted(gate, str(uuid4()), merchant=merchant) for _ in range(20)]
    gate.admit(merchant, "one more")
    before = _bytes_of(client, merchant)
    for one in in_flight[:10]:
        gate.report(merchant, one, Effect.NOTHING)
    released(gate, merchant)
    shown = gate.show(merchant)

    assert (shown.in_flight, shown.slots, shown.successes) == (10, 10, 59 * 20)
    assert max(before, _bytes_of(client, merchant)) <= 2048


def test_every_key_expires_whatever_is_called(client: redis.Redis, redis_url: str) -> None:
    """After each of 600 random moves, no key is without an end."""
    duel = Duel(Watched(redis_url, RULES))
    walk = Walk(duel, seed=1)
    seen = set()
    for _ in range(600):
        walk.go(1)
        for key in client.keys(_KEYS):
            assert client.pttl(key) > 0, key
            seen.add(key)

    assert seen == set(keys_of(duel.merchant_id))


def test_a_quiet_merchant_leaves_nothing(client: redis.Redis, redis_url: str) -> None:
    """A moment after the last call all its keys are gone."""
    moment = timedelta(milliseconds=20)
    rules = BreakerRules(
        window=moment, pause=moment, max_pause=moment, lease=moment, slot_lease=moment, remembered_quick=moment
    )
    gate = Gate(redis_url, rules)
    attempts(gate, Effect.FAILURE, 4, took=QUICK)
    released(gate)
    gate.reset(MERCHANT)
    admitted(gate)
    attempts(gate, Effect.FAILURE, 4)

    wait_until(lambda: not client.keys(_KEYS), "the gate's keys are gone")


def test_a_merchant_without_trouble_leaves_only_its_window_and_pace(client: redis.Redis, gate: Gate) -> None:
    """The normal path keeps no state: nothing in flight, nothing to remember, and nothing that a list would look at."""
    attempts(gate, Effect.SUCCESS, 3, took=QUICK)

    assert sorted(client.keys(_KEYS)) == sorted(keys_of(MERCHANT)[3:])
