"""`celery purge` and whatever else loses messages costs time, and never a delivery."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from signal import Signals

import pytest

from tests import courier
from tests.merchant import Reply
from tests.system import System
from webhooks import app, deliver, parts
from webhooks.accepting import reading
from webhooks.celery import messages
from webhooks.celery.app import DELIVERIES
from webhooks.model import State

PAID = {"type": "payment.status_changed", "status": "paid", "merchant_id": "acme"}


@pytest.mark.parametrize(("each", "countdown_s"), [(200, 8), pytest.param(1000, 15, marks=pytest.mark.long)])
def test_purged_deliveries_arrive_once(system: System, each: int, countdown_s: int) -> None:
    """As many queued as wait on their countdown: after a purge all arrive, each once, within 60 s.

    The product's bound is recover_after (5 s here) and a tick; the rest is the work itself on a busy machine.
    """
    system.set(recover_after=5, lane=1000)
    merchant = system.merchant("acme")
    worker = system.start()
    for number in range(each):
        _count_down({**PAID, "id": f"waits-{number}"}, timedelta(seconds=countdown_s))
    system.wait_until(lambda: not len(courier.waiting(system.redis())), "the worker has taken what waits")
    worker.send(Signals.SIGSTOP)
    for number in range(each):
        deliver.delay({**PAID, "id": f"queued-{number}"})
    purged = system.run("celery", "-A", "webhooks", "purge", "-f")
    assert "messages" in purged.stdout, purged.stderr
    assert len(courier.waiting(system.redis())) == 0
    worker.send(Signals.SIGCONT)
    system.wait_for_count(State.DELIVERED, 2 * each, timeout=60)
    assert set(Counter(request.webhook_id for request in merchant.requests).values()) == {1}
    assert len(merchant.requests) == 2 * each


def test_messages_that_no_worker_can_read_lose_nothing(system: System) -> None:
    """An unknown task, an extra argument, a missing one (another release wrote them): the deliveries still arrive."""
    system.set(recover_after=1)
    merchant = system.merchant("acme")
    for number in range(3):
        deliver.delay({**PAID, "id": f"evt-{number}"})
    courier.forget(system.redis())
    identities = [{"id": f"evt-{number}", "merchant_id": "acme", "type": PAID["type"]} for number in range(3)]
    app.send_task("webhooks.deliver_v2", args=[identities[0]], queue=DELIVERIES)
    app.send_task("webhooks.deliver", args=[identities[1]], kwargs={"priority": 1})
    app.send_task("webhooks.deliver", args=[])
    system.start()
    system.wait_for_count(State.DELIVERED, 3)
    assert sorted(str(request.webhook_id) for request in merchant.requests) == ["evt-0", "evt-1", "evt-2"]


def test_what_waits_in_a_long_queue_is_not_published_again(system: System) -> None:
    """While nobody consumes, ticks past recover_after add nothing; what the queue lost comes back (I7)."""
    system.set(recover_after=0.3)
    for number in range(200):
        deliver.delay({**PAID, "id": f"evt-{number}"})
    redis = system.redis()
    overdue = "SELECT 1 FROM deliveries HAVING min(now() - due_at) > interval '1.2 seconds'"
    system.wait_until(lambda: _tick() and system.sql(overdue), "four times recover_after have passed")
    assert len(courier.waiting(redis)) == 200
    redis.ltrim(DELIVERIES, 0, 99)  # workers take from the right: the oldest hundred are gone
    system.wait_until(lambda: _tick() and len(courier.waiting(redis)) == 200, "the lost are published again")
    overdue = overdue.replace("1.2 seconds", "2.4 seconds")
    system.wait_until(lambda: _tick() and system.sql(overdue), "another four have passed")
    assert len(courier.waiting(redis)) == 200


def test_a_message_sent_by_name_hides_nothing(system: System) -> None:
    """Where the oldest message is somebody's complete event by name, what waits behind it is not published again."""
    system.set(recover_after=0.3)
    app.send_task("webhooks.deliver", args=[{**PAID, "id": "by-name"}])
    for number in range(20):
        deliver.delay({**PAID, "id": f"evt-{number}"})
    overdue = "SELECT 1 FROM deliveries HAVING min(now() - due_at) > interval '1 second'"
    system.wait_until(lambda: _tick() and system.sql(overdue), "three times recover_after have passed")
    assert len(courier.waiting(system.redis())) == 21


def test_a_slow_worker_is_not_overtaken_by_the_sweep(system: System) -> None:
    """What waits behind slow attempts well past recover_after is sent once, although the sweep runs all the while."""
    system.set(recover_after=1)
    merchant = system.merchant("acme")
    merchant.answers(Reply(200, after=0.5))
    for number in range(16):
        deliver.delay({**PAID, "id": f"evt-{number}"})
    system.start("-c", "2")
    system.wait_for_count(State.DELIVERED, 16)
    assert len(merchant.requests) == 16


def _count_down(event: dict[str, str], wait: timedelta) -> None:
    """Accept an event and have it wait in a worker's memory, as a retry does."""
    (message,) = parts.ledger().record(reading.read(event), wait=wait)
    messages.publish(message, wait)


def _tick() -> bool:
    parts.sweeper().tick()
    return True
