"""However many are due: the queue stays within its bound, nothing is published twice, and the sweep keeps up."""

from __future__ import annotations

import json
from collections import Counter

from tests.faults.conftest import MakeRows
from tests.system import System
from webhooks import tasks
from webhooks.app import DELIVERIES
from webhooks.model import HeldFor, State

_TICKS = 600  # ten minutes' worth
_TICKS_OF_RECOVERY = 30  # so many later, recover_after has passed for what was published
_TIME_PASSES = """
UPDATE deliveries SET sweep_at = sweep_at - interval '30 seconds' WHERE state = 'pending' AND queued_at IS NOT NULL
"""


def test_a_million_due_rows_and_no_worker(system: System, make_rows: MakeRows) -> None:
    """Ten minutes of ticks leave 1,000 messages, none of them doubled, in the memory that they took at first."""
    system.merchant("acme")
    make_rows(1_000_000)
    redis, sweeper = system.redis(), tasks.sweeper()
    assert sweeper.tick().published == 1000
    memory = redis.info("memory")["used_memory"]
    for tick in range(1, _TICKS):
        assert sweeper.tick().published == 0
        if tick % _TICKS_OF_RECOVERY == 0:
            system.sql(_TIME_PASSES)
    messages = redis.lrange(DELIVERIES, 0, -1)
    assert len(messages) == len({json.loads(message)["headers"]["id"] for message in messages}) == 1000
    assert redis.info("memory")["used_memory"] < 1.1 * memory


def test_a_backlog_shrinks_at_the_rate_of_workers(system: System, make_rows: MakeRows) -> None:
    """4,000 overdue rows are published in as many ticks as it takes to empty the queue 20 times, each row once."""
    system.set(max_queued=200)
    system.merchant("acme")
    make_rows(4000)
    redis, seen = system.redis(), Counter[str]()
    ticks = 0
    while tasks.sweeper().tick().published:
        ticks += 1
        taken = [json.loads(message)["headers"]["id"] for message in redis.lrange(DELIVERIES, 0, -1)]
        redis.delete(DELIVERIES)
        seen.update(taken)
        system.sql(
            "UPDATE deliveries SET state = 'delivered', finished_at = now(), sweep_at = NULL WHERE id = ANY(:ids)",
            ids=taken,
        )
    assert ticks == 20
    assert len(seen) == seen.total() == 4000


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
