"""The breaker with real workers: one merchant's dead endpoint costs nobody anything."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import pairwise
from signal import SIGKILL
from typing import Any

import pytest

from tests.merchant import Merchant, Reply, Stall
from tests.system import System
from webhooks import deliver, parts, tasks
from webhooks.model import HeldFor, State
from webhooks.policy.breaker import BreakerState, Effect

PAID = {"type": "payment.status_changed", "status": "paid"}

EVERY_THREAD = 40  # a lane in which nothing is held: what is released to an endpoint that fails goes once a second
SHORT = {"breaker_pause": 1, "breaker_max_pause": 6, "fast_waits": "60,60,60,60,60,60,60,60,60"}


def accept(count: int, merchant_id: str, prefix: str = "evt") -> list[str]:
    """Accept so many money events for a merchant; returns their ids."""
    return [
        deliver.delay({**PAID, "id": f"{merchant_id}-{prefix}-{number}", "merchant_id": merchant_id}).id
        for number in range(count)
    ]


def state_of(merchant_id: str) -> BreakerState:
    """Return where a merchant's breaker stands."""
    return parts.gate().show(merchant_id).state


def open_breaker(system: System, merchant: Merchant, merchant_id: str) -> list[str]:
    """Have five deliveries fail, and wait until the breaker has opened."""
    merchant.answers(503)
    ids = accept(5, merchant_id, "opener")
    system.wait_until(lambda: state_of(merchant_id) is not BreakerState.WORKING, "the breaker opens")
    return ids


def test_five_failing_deliveries_open_it(system: System) -> None:
    """Five failures open the breaker; what comes after is held, without a POST and without an attempt spent."""
    system.set(breaker_pause=60, breaker_max_pause=60)
    merchant = system.merchant("acme")
    system.start()
    open_breaker(system, merchant, "acme")
    posts = len(merchant.requests)
    fresh = accept(10, "acme", "fresh")
    system.wait_for_state(State.HELD, *fresh)
    assert len(merchant.requests) == posts
    for delivery_id in fresh:
        delivery = system.delivery(delivery_id)
        assert (delivery["held_for"], delivery["attempts"], delivery["fast_spent"]) == (HeldFor.BREAKER, 0, 0)


def test_one_delivery_that_fails_five_times_opens_it(system: System) -> None:
    """Attempts count, not deliveries: one that fails five times opens it as well, and is then held itself."""
    system.set(breaker_pause=60, breaker_max_pause=60, fast_waits="0.1,0.1,0.1,0.1,0.1,0.1,0.1,0.1,0.1")
    merchant = system.merchant("acme")
    merchant.answers(503)
    system.start()
    (only,) = accept(1, "acme")
    system.wait_for_state(State.HELD, only)
    assert len(merchant.requests) == 5
    assert system.delivery(only)["fast_spent"] == 5
    assert state_of("acme") is BreakerState.PAUSED


@pytest.mark.parametrize("status", [404, 429, 302])
def test_what_answers_never_opens_it(system: System, status: int) -> None:
    """A hundred answers of 404, of 429 or of 302 leave it closed: the endpoint is there."""
    system.set(fast_waits="60,60", slow_waits="60,60", lane=EVERY_THREAD)
    merchant = system.merchant("acme")
    merchant.answers(status)
    system.start()
    accept(100, "acme")
    merchant.wait_for(100, timeout=60)
    system.wait_until(lambda: system.sql("SELECT count(*) AS n FROM attempts")[0].n == 100, "100 attempts are recorded")
    assert state_of("acme") is BreakerState.WORKING
    assert system.counted() == {State.PENDING: 100}


def test_four_in_five_open_it_and_fewer_do_not(system: System) -> None:
    """79 failures in 100 attempts do not open it; the next failures, at 80 %, do."""
    system.set(**{**SHORT, "breaker_pause": 60, "breaker_max_pause": 60, "lane": EVERY_THREAD})
    merchant = system.merchant("acme")
    system.start()
    merchant.answers(200)
    system.wait_for_state(State.DELIVERED, *accept(21, "acme", "good"))
    merchant.answers(503)
    accept(79, "acme", "bad")
    merchant.wait_for(100)
    system.wait_until(lambda: parts.gate().show("acme").failures == 79, "79 failures are counted")
    assert state_of("acme") is BreakerState.WORKING
    accept(5, "acme", "worse")  # 84 of 105 are 80 %
    system.wait_until(lambda: state_of("acme") is BreakerState.PAUSED, "the breaker opens")
    assert len(merchant.requests) == 105


def test_pauses_double_up_to_the_most_and_each_has_one_post(system: System) -> None:
    """The merchant sees one POST a cycle, after pauses of 1, 2, 4, 6, 6 (5, 10, 20, 30, 30 minutes, shortened)."""
    system.set(**SHORT)
    merchant = system.merchant("acme")
    system.start()
    open_breaker(system, merchant, "acme")
    accept(10, "acme", "held")
    merchant.wait_for(5 + 5, timeout=60)
    times = [request.at.timestamp() for request in merchant.requests[4:]]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    for seen, wanted in zip(pauses, (1, 2, 4, 6, 6), strict=True):
        assert wanted <= seen <= wanted + 2.2, pauses  # up to a tick of the sweep, and a busy machine


def test_after_a_success_all_that_was_held_arrives_once(system: System) -> None:
    """When a probe succeeds the breaker closes, and everything that was held arrives, each delivery once."""
    system.set(**{**SHORT, "breaker_pause": 6})
    merchant = system.merchant("acme")
    system.start()
    open_breaker(system, merchant, "acme")
    accept(60, "acme", "held")
    # On a slow machine a few of them have probed by the time the last one is held.
    system.wait_until(lambda: sum(parts.views().count_held("acme").values()) >= 50, "they are held")
    merchant.forget()
    merchant.answers(200)
    held = [row.id for row in system.sql("SELECT id FROM deliveries WHERE state = 'held'")]
    system.wait_for_state(State.DELIVERED, *held, timeout=60)
    assert state_of("acme") is BreakerState.WORKING
    posts = Counter(request.webhook_id for request in merchant.requests)
    assert {delivery_id: posts[delivery_id] for delivery_id in held} == dict.fromkeys(held, 1)
    first, second = (request.at for request in merchant.requests[:2])
    assert second - first <= timedelta(seconds=2), "the release begins within two seconds of the probe's success"
    system.sql("UPDATE deliveries SET due_at = now(), sweep_at = now(), queued_at = NULL WHERE state = 'pending'")
    system.wait_for_count(State.DELIVERED, 65)


def test_no_delivery_burns_its_attempts_as_the_eternal_probe(system: System) -> None:
    """With more held deliveries than probes, none has spent two attempts more than another."""
    # A failed probe's retry comes well within the pause, so that it is held again before the next probe is chosen.
    system.set(fast_waits=",".join(["0.2"] * 9), breaker_pause=1, breaker_max_pause=1, sweep_interval=0.1)
    merchant = system.merchant("acme")
    merchant.answers(503)
    system.start()
    open_breaker(system, merchant, "acme")
    accept(8, "acme", "held")  # younger than the five that have spent one
    merchant.wait_for(5 + 12, timeout=90)
    spent = [row.fast_spent for row in system.sql("SELECT fast_spent FROM deliveries")]
    assert max(spent) - min(spent) <= 1, spent
    assert system.counted().get("failed", 0) == 0


def test_other_merchants_notice_nothing(system: System) -> None:
    """While 10,000 deliveries of one merchant are held, and while they are released, another one's arrive at once."""
    system.set(breaker_pause=4, breaker_max_pause=4, fast_waits="60,60")
    dead, healthy = system.merchant("dead"), system.merchant("healthy")
    worker = system.start()
    open_breaker(system, dead, "dead")
    hold_rows(system, "dead", 10_000)
    for number in range(10):
        deliver.delay({**PAID, "id": f"healthy-{number}", "merchant_id": "healthy"})
    healthy.wait_for(10, timeout=10)
    assert parts.views().count_held("dead")[HeldFor.BREAKER] >= 9_990
    dead.answers(200)
    dead.wait_until(lambda requests: len(requests) > 50, timeout=30, what="the release is under way")
    before = len(healthy.requests)
    ids = [deliver.delay({**PAID, "id": f"meanwhile-{number}", "merchant_id": "healthy"}).id for number in range(20)]
    healthy.wait_for(before + 20, timeout=10)
    assert sum(parts.views().count_held("dead").values()) > 0, "the release should still be under way"
    system.wait_for_state(State.DELIVERED, *ids)
    assert "Traceback" not in worker.log.read_text()


def hold_rows(system: System, merchant_id: str, count: int) -> None:
    """Put held deliveries of a merchant straight into the ledger."""
    system.sql(
        """
        INSERT INTO deliveries (id, merchant_id, type, money, body, body_sha256, state, held_for, due_at, accepted_at,
                                expires_at)
        SELECT :merchant || '-row-' || n, :merchant, 'refund.completed', true, convert_to('{}', 'UTF8'), sha256('{}'),
               'held', 'breaker', now(), now() - make_interval(secs => n), now() + interval '30 days'
        FROM generate_series(1, :count) AS n
        """,
        merchant=merchant_id,
        count=count,
    )
    system.sql("ANALYZE deliveries")


def test_operators_look_and_reset(system: System) -> None:
    """`inspect breaker` and `breaker show` tell how it stands; a reset, by either command, releases at once."""
    system.set(breaker_pause=600, breaker_max_pause=600, fast_waits="60,60")
    merchant = system.merchant("acme")
    system.start()
    open_breaker(system, merchant, "acme")
    held = accept(3, "acme", "held")
    system.wait_for_state(State.HELD, *held)
    told = system.run("celery", "-A", "webhooks", "inspect", "breaker", "acme", "--json").stdout
    assert '"state": "paused"' in told
    assert '"held": 3' in told
    assert '"failures": 5' in told
    assert "paused" in system.run("webhooks", "breaker", "list").stdout
    merchant.answers(200)
    assert system.run("celery", "-A", "webhooks", "control", "reset_breaker", "acme").returncode == 0
    assert parts.audit().latest(1)[0]["what"] == "breaker reset of acme"
    system.wait_for_state(State.DELIVERED, *held)
    pause(parts.gate(), "acme")
    more = accept(3, "acme", "more")
    system.wait_for_state(State.HELD, *more)
    merchant.answers(200)
    assert "3 held deliveries are being released" in system.run("webhooks", "breaker", "reset", "acme").stdout
    system.wait_for_state(State.DELIVERED, *more)


def test_a_new_address_starts_afresh(system: System) -> None:
    """Setting a new address closes the breaker, and what was held goes to the new one."""
    system.set(breaker_pause=600, breaker_max_pause=600, fast_waits="60,60")
    merchant = system.merchant("acme")
    system.start()
    open_breaker(system, merchant, "acme")
    held = accept(3, "acme", "held")
    system.wait_for_state(State.HELD, *held)
    moved = system.merchant("acme", registered=False)
    done = system.run("webhooks", "merchant", "set", "acme", "--url", moved.url())
    assert done.returncode == 0, done.stderr
    system.wait_for_state(State.DELIVERED, *held)
    assert {request.webhook_id for request in moved.requests} >= set(held)


def test_gate_away_is_no_outage(system: System) -> None:
    """With the gate's Redis out of reach deliveries arrive all the same, and the log says so once."""
    system.set(redis_url="redis://127.0.0.1:1/0")
    merchant = system.merchant("acme")
    worker = system.start()
    accept(30, "acme")
    merchant.wait_for(30)
    system.wait_for_count(State.DELIVERED, 30)
    assert worker.log.read_text().count("gate.away") == 1


@pytest.mark.parametrize("held", [1_000, 100_000])
def test_an_idle_tick_costs_the_same_however_many_are_held(
    system: System, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    """The statements sent and the rows touched by a tick do not depend on the number of held deliveries."""
    system.set(breaker_pause=600, breaker_max_pause=600)
    parts.merchants().set("acme", url="https://acme.example/", secret="s")
    hold_rows(system, "acme", held)
    pause(parts.gate(), "acme")
    statements: list[str] = []
    run = parts.database().rows

    def counting(statement: Any, values: Any = None, **how: Any) -> Any:
        statements.append(str(statement))
        return run(statement, values, **how)

    monkeypatch.setattr(parts.database(), "rows", counting)
    before = touched(system)
    statements.clear()
    tasks.sweeper().tick()
    assert len(statements) == 5, statements
    assert touched(system) - before <= 12


def pause(gate: Any, merchant_id: str) -> None:
    """Open a merchant's breaker by failed attempts."""
    for number in range(50):
        if gate.show(merchant_id).state is BreakerState.PAUSED:
            return
        gate.report(merchant_id, gate.admit(merchant_id, f"d{number}"), Effect.FAILURE)
    raise AssertionError("fifty failures did not open the breaker")


def touched(system: System) -> int:
    """Return how many rows of the deliveries have been read so far, by any scan."""
    system.sql("SELECT pg_stat_force_next_flush()")
    (row,) = system.sql(
        "SELECT sum(seq_tup_read + idx_tup_fetch) AS read FROM pg_stat_user_tables WHERE relname = 'deliveries'"
    )
    (index,) = system.sql(
        "SELECT coalesce(sum(idx_tup_read), 0) AS read FROM pg_stat_user_indexes WHERE relname = 'deliveries'"
    )
    return int(row.read) + int(index.read)


def test_a_probe_whose_worker_was_killed_is_given_up_after_its_lease(system: System) -> None:
    """The next probe comes when the lease is over and not before, and its success closes the breaker."""
    lease = timedelta(seconds=3)
    system.set(**SHORT, deadline=2, lease_margin=1)
    merchant = system.merchant("acme")
    worker = system.start()
    open_breaker(system, merchant, "acme")
    held = accept(5, "acme", "held")
    merchant.answers(Reply.raw(Stall()))
    merchant.wait_for(5 + 1)
    system.wait_until(lambda: state_of("acme") is BreakerState.PROBING, "a probe is out")
    worker.stop(SIGKILL)
    merchant.answers(200)
    system.stage.worker("another")
    merchant.wait_for(5 + 2)
    killed, after = merchant.requests[5], merchant.requests[6]
    assert after.at - killed.at >= lease
    assert after.webhook_id != killed.webhook_id
    system.wait_for_state(State.DELIVERED, *held, timeout=60)
    assert state_of("acme") is BreakerState.WORKING
    assert [step["outcome"] for step in system.delivery(str(killed.webhook_id))["journey"]] == ["unknown", "delivered"]
