"""The broker is cut off, full, read-only or away for long: the same worker process goes on when it is back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from redis import Redis

from tests import courier
from tests.faults.conftest import MakeRows
from tests.faults.proxy import Proxy
from tests.merchant import Merchant, Reply
from tests.system import System
from webhooks import deliver, parts, publishing
from webhooks.celery import messages
from webhooks.demo.stage import Program, wait_until
from webhooks.errors import BrokerUnavailable, LedgerUnavailable
from webhooks.model import Message, State

PAID = {"type": "payment.status_changed", "status": "paid", "merchant_id": "acme"}
_SHORT = {"recover_after": 2, "deadline": 3, "lease_margin": 1}


def test_connections_cut_four_times_within_three_seconds(system: System, proxy: Proxy) -> None:
    """With retries waiting and POSTs under way, neither deaf nor ended: all arrive within 20 s, once each (A5)."""
    system.set(**_SHORT)
    merchant = system.merchant("acme")
    merchant.answers(Reply(200, after=0.7))
    worker = system.start()
    for number in range(20):
        deliver.apply_async(({**PAID, "id": f"evt-{number}"},), countdown=0.1 * number)
    redis = system.redis()
    system.wait_until(lambda: redis.hlen("unacked") >= 10, "the worker has taken some")
    for number in range(4):
        wait_until(lambda: proxy.connections >= 4, f"it is connected again, before cut {number + 1}", timeout=10)
        with proxy.refusing():
            proxy.cut()
            wait_until(lambda: proxy.refused, "somebody has tried in vain", timeout=3)
    deliver.delay({**PAID, "id": "evt-20"})
    system.wait_for_count(State.DELIVERED, 21, timeout=20)
    assert len(merchant.requests) == 21
    assert is_alive(worker)


def test_consuming_again_soon_after_a_long_absence(system: System) -> None:
    """After 21 s without a broker, when Celery's own next try would come at 30 s, it consumes within 8 s."""
    system.set(**_SHORT)
    merchant = system.merchant("acme")
    worker = system.start()
    system.servers.redis.stop()
    try:
        deliver.delay({**PAID, "id": "evt-1"})
        old = "SELECT 1 FROM deliveries WHERE accepted_at < now() - interval '21 seconds'"
        system.wait_until(lambda: system.sql(old), "21 seconds have passed")
    finally:
        system.servers.redis.start()
    system.wait_for_state(State.DELIVERED, "evt-1", timeout=8)
    assert len(merchant.requests) == 1
    assert is_alive(worker)


@contextmanager
def full(redis: Any) -> Iterator[None]:
    """Redis refuses every write for want of memory."""
    redis.config_set("maxmemory", 1)
    try:
        yield
    finally:
        redis.config_set("maxmemory", 0)


@contextmanager
def read_only(redis: Any) -> Iterator[None]:
    """Redis refuses every write as a replica."""
    redis.replicaof("127.0.0.1", "1")
    try:
        yield
    finally:
        redis.replicaof("NO", "ONE")


@pytest.mark.parametrize("refusing", [full, read_only])
def test_a_redis_that_refuses_writes(system: System, refusing: Callable[[Redis], Any]) -> None:
    """Full or read-only under load: events are accepted, no budget is spent, and the same worker goes on (A8, A14)."""
    system.set(**_SHORT)
    merchant = system.merchant("acme")
    worker = system.start()
    accepted = _accept(0)
    redis = system.redis()
    with refusing(redis):
        accepted += [number for start in range(1, 5) for number in _accept(20 * start)]
        old = "SELECT 1 FROM deliveries HAVING max(accepted_at) < now() - interval '4 seconds'"
        system.wait_until(lambda: system.sql(old), "four seconds have passed")
    system.wait_for_count(State.DELIVERED, len(accepted), timeout=30)
    _assert_once(merchant, accepted)
    assert system.sql("SELECT max(fast_spent) AS most FROM deliveries")[0].most == 0
    assert is_alive(worker)


def _accept(first: int) -> list[str]:
    return [deliver.delay({**PAID, "id": f"evt-{number}"}).id for number in range(first, first + 20)]


def _assert_once(merchant: Merchant, accepted: list[str]) -> None:
    assert sorted(str(request.webhook_id) for request in merchant.requests) == sorted(accepted)


def test_a_broker_lost_in_the_middle_of_a_tick(
    system: System, make_rows: MakeRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one tick could not publish the next one does: nothing waits for recover_after."""
    make_rows(10)
    publish, three = messages.publish_all, iter(range(3))

    def lost_after_three(given: Sequence[Message], wait: timedelta) -> None:
        if next(three, None) is None:
            raise BrokerUnavailable("lost")
        publish(given, wait)

    with monkeypatch.context() as patched:
        patched.setattr(parts.publisher(), "_send", lost_after_three)
        patched.setattr(publishing, "AT_ONCE", 1)
        assert parts.sweeper().tick().published == 3
    assert parts.sweeper().tick().published == 7
    assert len(courier.waiting(system.redis())) == 10


def test_a_producer_hears_of_the_ledger_and_not_of_the_broker(system: System) -> None:
    """With the broker away an event is accepted; with the ledger away it is refused, and the same id is free."""
    system.merchant("acme")
    system.servers.redis.stop()
    try:
        deliver.delay({**PAID, "id": "evt-1"})
    finally:
        system.servers.redis.start()
    system.servers.postgres.control("-w", "-m", "fast", "stop")
    try:
        with pytest.raises(LedgerUnavailable):
            deliver.delay({**PAID, "id": "evt-2"})
    finally:
        system.servers.postgres.restart()
    deliver.delay({**PAID, "id": "evt-2"})
    assert system.counted() == {State.PENDING: 2}


def is_alive(worker: Program) -> bool:
    """Whether it is still the same process."""
    return worker.process is not None and worker.process.poll() is None
