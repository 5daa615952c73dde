"""A worker is killed: what it held is sent by another, and never a second time by the broker's old copies."""

from __future__ import annotations

from collections import Counter
from signal import Signals
from typing import Any

import pytest
from kombu.connection import Connection

from tests import courier
from tests.gate.script import widen_only
from tests.merchant import Reply
from tests.system import System
from webhooks import deliver, parts
from webhooks.model import Outcome, State

PAID = {"type": "payment.status_changed", "status": "paid", "merchant_id": "acme"}

_VISIBILITY = 20  # seconds after which the broker takes a message back whose worker says nothing


@pytest.mark.parametrize("retries", [50, pytest.param(100, marks=pytest.mark.long)])
def test_waiting_retries_of_a_killed_worker_arrive_once(system: System, retries: int) -> None:
    """Retries due within 5 s are sent within 30 s by a new worker, and not again when the broker restores them.

    The bound: the wait itself, recover_after (2 s here), a tick, and a worker's start.
    """
    system.set(
        fast_waits="5,5,5",
        recover_after=2,
        deadline=1,
        horizon=6,
        visibility_timeout=_VISIBILITY,
        lane=100,
        breaker_min_attempts=1000,
    )
    merchant = system.merchant("acme")
    merchant.answer_with(lambda request: 503 if request.header("X-Webhook-Attempt") == "1" else 200)
    widen_only(parts.gate(), lane=100, merchant="acme")
    worker = system.start()
    for number in range(retries):
        deliver.delay({**PAID, "id": f"evt-{number}"})
    system.wait_until(lambda: _waiting(system) == retries, "all retries wait")
    redis = system.redis()
    # A message that a killed worker had just taken may be with nobody; the sweep publishes that one again.
    system.wait_until(lambda: not courier.waiting(redis) and redis.hlen("unacked") == retries, "the worker holds them")
    worker.stop(Signals.SIGKILL)
    system.stage.worker("another")
    system.wait_for_count(State.DELIVERED, retries, timeout=30)
    assert len(merchant.requests) == 2 * retries
    assert redis.hlen("unacked") >= retries  # the old copies are still with the broker
    system.wait_until(
        lambda: _restored(system.servers.redis.url) and not redis.hlen("unacked") and not courier.waiting(redis),
        "the old copies have been restored and dropped",
    )
    assert set(Counter(request.webhook_id for request in merchant.requests).values()) == {2}
    assert system.counted() == {State.DELIVERED: retries}


def _restored(redis_url: str) -> bool:
    """Restore what is past the visibility timeout, as every worker does; but that looks every 100 s only."""
    options = {"visibility_timeout": _VISIBILITY}
    connection: Any = Connection(redis_url, transport_options=options)  # type: ignore[no-untyped-call]
    with connection, connection.channel() as channel:
        channel.qos.restore_visible(num=1000)
    return True


def test_killed_in_mid_post_three_times(system: System) -> None:
    """Each kill is an attempt of unknown outcome that spends nothing; the fourth attempt delivers (A10)."""
    system.set(deadline=3, lease_margin=0.5, recover_after=1)
    merchant = system.merchant("acme")
    merchant.answers(Reply(200, after=2), Reply(200, after=2), Reply(200, after=2), 200)
    system.stage.beat()
    deliver.delay({**PAID, "id": "evt-1"})
    for times in range(1, 4):
        worker = system.stage.worker(f"worker-{times}")
        merchant.wait_for(times, timeout=30)
        worker.stop(Signals.SIGKILL)
    system.stage.worker("worker-4")
    system.wait_for_state(State.DELIVERED, "evt-1")
    delivery = system.delivery("evt-1")
    assert [step["outcome"] for step in delivery["journey"]] == [Outcome.UNKNOWN] * 3 + [Outcome.DELIVERED]
    assert (delivery["attempts"], delivery["fast_spent"], delivery["slow_spent"]) == (4, 0, 0)
    assert [request.header("X-Webhook-Attempt") for request in merchant.requests] == ["1", "2", "3", "4"]


def test_broken_bookkeeping_of_the_broker_stops_nothing(system: System) -> None:
    """The restore lock stuck, the bindings gone, and the worker killed in mid-POST: all is delivered (A9)."""
    system.set(deadline=2, lease_margin=0.5, recover_after=1)
    merchant = system.merchant("acme")
    merchant.answers(Reply(200, after=1), 200)
    worker = system.start()
    deliver.delay({**PAID, "id": "evt-1"})
    merchant.wait_for(1)
    redis = system.redis()
    redis.set("unacked_mutex", "somebody who died")
    redis.delete(*redis.keys("_kombu.binding.*"))
    worker.stop(Signals.SIGKILL)
    for number in range(2, 12):
        deliver.delay({**PAID, "id": f"evt-{number}"})
    system.stage.worker("another")
    system.wait_for_count(State.DELIVERED, 11)
    assert len(merchant.requests) == 12


def _waiting(system: System) -> int:
    (row,) = system.sql("SELECT count(*) AS n FROM deliveries WHERE fast_spent = 1 AND queued_at IS NOT NULL")
    return int(row.n)
