"""However many are due: the queue stays within its bound, nothing is published twice, and the sweep keeps up."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tests import courier
from tests.faults.conftest import MakeRows
from tests.system import System
from webhooks import app, deliver, parts
from webhooks.celery.app import DELIVERIES
from webhooks.model import HeldFor, State

_TICKS_OF_RECOVERY = 10  # after so many, time passes for what was published: ten minutes in all
_TIME_PASSES = """
UPDATE deliveries SET sweep_at = sweep_at - interval '30 seconds' WHERE state = 'pending' AND queued_at IS NOT NULL
"""


@pytest.mark.parametrize(("rows", "ticks"), [(100_000, 200), pytest.param(1_000_000, 600, marks=pytest.mark.long)])
def test_more_due_rows_than_anybody_can_work_on(system: System, make_rows: MakeRows, rows: int, ticks: int) -> None:
    """Ten minutes of ticks leave 1,000 messages, none of them doubled, in the memory that they took at first."""
    system.merchant("acme")
    make_rows(rows)
    redis, sweeper = system.redis(), parts.sweeper()
    assert sweeper.tick().published == 1000
    memory = redis.info("memory")["used_memory"]
    for tick in range(1, ticks):
        assert sweeper.tick().published == 0
        if tick % _TICKS_OF_RECOVERY == 0:
            system.sql(_TIME_PASSES)
    messages = courier.waiting(redis)
    assert len(messages) == len({json.loads(message)["headers"]["id"] for message in messages}) == 1000
    assert redis.info("memory")["used_memory"] < 1.1 * memory


def test_a_backlog_shrinks_at_the_rate_of_workers(system: System, make_rows: MakeRows) -> None:
    """1,000 overdue rows are published in as many ticks as it takes to empty the queue 20 times, each row once."""
    system.set(max_queued=50)
    system.merchant("acme")
    make_rows(1000)
    redis, seen = system.redis(), Counter[str]()
    ticks = 0
    while parts.sweeper().tick().published:
        ticks += 1
        taken = [json.loads(message)["headers"]["id"] for message in courier.waiting(redis)]
        courier.forget(redis)
        seen.update(taken)
        system.sql(
            "UPDATE deliveries SET state = 'delivered', finished_at = now(), sweep_at = NULL WHERE id = ANY(:ids)",
            ids=taken,
        )
    assert ticks == 20
    assert len(seen) == seen.total() == 1000


def test_a_worker_takes_no_more_countdowns_than_its_memory_should_hold(system: System) -> None:
    """Past two thousand waiting messages a retry waits in the ledger (I7)."""
    system.set(fast_waits="60")
    merchant = system.merchant("acme")
    merchant.answers(503)
    system.start()
    deliver.delay({"id": "few", "type": "kyc.status_changed", "merchant_id": "acme"})
    system.wait_until(lambda: system.sql("SELECT 1 FROM attempts"), "it has failed once")
    _count_down(system.redis(), 2000)
    system.wait_until(lambda: system.redis().hlen("unacked") >= 2000, "they wait in the worker")
    deliver.delay({"id": "many", "type": "kyc.status_changed", "merchant_id": "acme"})
    system.wait_until(lambda: system.sql("SELECT count(*) AS n FROM attempts")[0].n == 2, "both have")
    rows = system.sql("SELECT id, queued_at IS NOT NULL AS queued FROM deliveries")
    assert {row.id: row.queued for row in rows} == {"few": True, "many": False}


def _count_down(redis: Any, count: int) -> None:
    """Put so many messages on the broker that are due in five minutes: copies of one, with names of their own."""
    app.send_task("webhooks.deliver", args=[{"id": "old", "merchant_id": "acme"}], countdown=300, queue="aside")
    message = json.loads(redis.rpop("aside"))
    message["properties"]["delivery_info"].update(exchange=DELIVERIES, routing_key=DELIVERIES)
    for number in range(count):
        # Long stale, but a worker finds that out only when it is time.
        message["properties"] |= {"delivery_tag": f"old-{number}", "correlation_id": f"old-{number}"}
        message["headers"]["id"] = f"old-{number}"
        redis.lpush(DELIVERIES, json.dumps(message))


def test_no_state_is_left_alone(system: System, make_rows: MakeRows) -> None:
    """Rows in every state that is not final, due an hour ago and without a message, are delivered, each once."""
    system.set(recover_after=2)
    merchant = system.merchant("acme")
    make_rows(3, prefix="unpublished-")
    make_rows(3, prefix="published-", queued=True)
    make_rows(3, prefix="sending-", queued=True, sending=True)
    for held_for in HeldFor:
        make_rows(3, prefix=f"{held_for}-", state="held", held_for=held_for)
    system.start()
    wanted = 9 + 3 * len(HeldFor)
    system.wait_for_count(State.DELIVERED, wanted)
    assert len({request.webhook_id for request in merchant.requests}) == len(merchant.requests) == wanted
