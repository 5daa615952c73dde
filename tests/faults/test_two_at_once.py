"""Two on one delivery by force: one POST, or, where the lease ran out, a final state that nothing overwrites."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from signal import Signals

import pytest

from tests import courier
from tests.faults.conftest import MakeRows
from tests.merchant import Reply
from tests.system import System
from webhooks import deliver, parts
from webhooks.celery.app import DELIVERIES
from webhooks.ledger.leases import Term
from webhooks.model import Outcome, Reason, State

EVENT = {"type": "kyc.status_changed", "merchant_id": "acme"}


def test_doubled_messages_are_one_post(system: System) -> None:
    """Every message five times in the queue, and two workers: one POST for each delivery."""
    merchant = system.merchant("acme")
    merchant.answers(Reply(200, after=0.3))
    for number in range(20):
        deliver.delay({**EVENT, "id": f"evt-{number}"})
    redis = system.redis()
    for message in redis.lrange(DELIVERIES, 0, -1):
        redis.lpush(DELIVERIES, *[message] * 4)
    system.start()
    system.stage.worker("another")
    system.wait_for_count(State.DELIVERED, 20)
    system.wait_until(lambda: not redis.llen(DELIVERIES) and not redis.hlen("unacked"), "every copy has been read")
    assert len(merchant.requests) == 20
    assert all(system.delivery(f"evt-{number}")["attempts"] == 1 for number in range(20))


@pytest.mark.parametrize(
    ("second", "state", "reason"), [(404, State.FAILED, Reason.REJECTED), (200, State.DELIVERED, None)]
)
def test_a_frozen_worker_does_not_overwrite(system: System, second: int, state: State, reason: Reason | None) -> None:
    """A worker stopped past its lease comes back late: what was decided stays, and the attempts are honest."""
    system.set(deadline=2, lease_margin=0.5, recover_after=1)
    merchant = system.merchant("acme")
    merchant.answers(Reply(503, after=1), second)
    frozen = system.stage.worker("frozen")
    deliver.delay({**EVENT, "id": "evt-1"})
    merchant.wait_for(1)
    frozen.send(Signals.SIGSTOP)
    system.start()
    system.wait_for_state(state, "evt-1")
    before = system.delivery("evt-1")
    assert before["journey"][0]["outcome"] == Outcome.UNKNOWN
    frozen.send(Signals.SIGCONT)
    system.wait_until(
        lambda: system.delivery("evt-1")["journey"][0]["outcome"] == Outcome.UNAVAILABLE, "the late result is known"
    )
    after = system.delivery("evt-1")
    assert (after["state"], after["reason"], after["finished_at"]) == (state, reason, before["finished_at"])
    assert (after["attempts"], after["fast_spent"], after["slow_spent"]) == (2, 0, 0)
    assert after["journey"][0]["ladder"] is None
    assert len(merchant.requests) == 2


def test_a_lease_that_a_lost_report_left_behind(system: System) -> None:
    """What the gate takes for being sent is asked for at every tick until the lease is over; 30 s need not pass."""
    system.set(deadline=1, lease_margin=1)
    merchant = system.merchant("acme")
    parts.gate().admit("acme", "evt-1")  # nobody will report
    system.start()
    deliver.delay({**EVENT, "id": "evt-1"})
    system.wait_for_state(State.DELIVERED, "evt-1", timeout=20)
    assert len(merchant.requests) == 1


def test_three_sweeps_at_once_send_once(system: System, make_rows: MakeRows) -> None:
    """Three beats, and two workers that take their sweeps, over 150 due rows: 150 POSTs (D6)."""
    system.set(recover_after=2, lane=100)
    merchant = system.merchant("acme")
    make_rows(150)
    for number in range(3):
        system.stage.run(
            f"beat-{number}", "-m", "celery", "-A", "webhooks", "beat", "-l", "INFO", ready="beat: Starting..."
        )
    for number in range(2):
        system.stage.worker(f"worker-{number}")
    system.wait_for_count(State.DELIVERED, 150, timeout=60)
    assert set(Counter(request.webhook_id for request in merchant.requests).values()) == {1}


@pytest.mark.parametrize("rows", [600, pytest.param(2000, marks=pytest.mark.long)])
def test_sweeps_without_their_lease_publish_once(
    system: System, make_rows: MakeRows, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """Even where each believes that it is alone, eight sweeps at once take every row once."""
    system.set(max_queued=10_000)
    system.merchant("acme")
    make_rows(rows)
    monkeypatch.setattr(parts.sweep_lease(), "alone", lambda _rest: _everybody())
    redis = system.redis()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: parts.sweeper().tick(), range(8)))
    assert len(courier.waiting(redis)) == rows


@contextmanager
def _everybody() -> Iterator[Term]:
    yield Term(parts.database(), {}, timedelta(hours=1), asked=True)
