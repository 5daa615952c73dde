"""The breaker on the real ledger, gate and broker, attempt by attempt, in the test's own time.

What of it needs workers stands below, and in tests/worker; the rules alone, and their numbers, in tests/gate.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from signal import SIGKILL
from typing import Any

import pytest

from tests import courier
from tests.gate.clock import Clock, scripts_under_test
from tests.merchant import Merchant, Reply, Stall
from tests.system import System
from webhooks import deliver, parts
from webhooks.delivery import SetAside
from webhooks.gate.gate import Gate
from webhooks.model import Changes, HeldFor, Message, State
from webhooks.policy.breaker import BreakerRules, BreakerState, Effect
from webhooks.policy.decisions import Delivered, RetryAt
from webhooks.settings import get_settings

PAID = {"type": "payment.status_changed", "status": "paid"}
OPENERS = BreakerRules().min_attempts
AN_INSTANT = timedelta(microseconds=1)


@pytest.fixture
def clock(system: System, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of this process's gate, which stands where the test sets it."""
    clock = Clock(system.redis())
    gate = Gate(system.servers.redis.url, get_settings().breaker, scripts_under_test())
    monkeypatch.setattr(parts.gate, "_made", [gate])
    return clock


def accept(count: int, merchant_id: str, prefix: str = "evt") -> list[str]:
    """Accept so many money events for a merchant; returns their ids."""
    return [deliver.delay(event(merchant_id, f"{prefix}-{number}")).id for number in range(count)]


def event(merchant_id: str, name: str) -> dict[str, str]:
    """Return a money event for a merchant."""
    return {**PAID, "id": f"{merchant_id}-{name}", "merchant_id": merchant_id}


def state_of(merchant_id: str) -> BreakerState:
    """Return where a merchant's breaker stands."""
    return parts.gate().show(merchant_id).state


def opened(merchant: Merchant, merchant_id: str) -> None:
    """Have as many attempts fail as open the breaker; their retries are far."""
    merchant.answers(Reply(503, headers=[("Retry-After", "3600")]))
    for number in range(OPENERS):
        assert state_of(merchant_id) is BreakerState.WORKING
        assert isinstance(courier.send(event(merchant_id, f"opener-{number}")), RetryAt)
    assert state_of(merchant_id) is BreakerState.PAUSED
    merchant.answers(503)


def held_now(merchant_id: str) -> SetAside:
    """Return what becomes of a delivery while the breaker is paused: it is held, and until when is known."""
    breaker = parts.gate().show(merchant_id)
    assert breaker.state is BreakerState.PAUSED
    return SetAside(HeldFor.BREAKER, breaker.until)


def held(count: int, merchant_id: str) -> list[Message]:
    """Accept so many deliveries, which an open breaker holds."""
    messages = [courier.accept(event(merchant_id, f"held-{number}")) for number in range(count)]
    assert [courier.attempt(message) for message in messages] == [held_now(merchant_id)] * count
    return messages


def the_probe(system: System) -> Message:
    """Have the sweep offer a probe, and no second one; returns its message."""
    courier.forget(system.redis())  # retries that count down
    assert parts.sweeper().tick().probes == 1
    assert parts.sweeper().tick().probes == 0
    message = courier.take(system.redis())
    assert message
    assert message.slot
    return message


def test_failing_deliveries_open_it(system: System, clock: Clock) -> None:
    """Five failures open the breaker; what comes after is held, without a POST and without an attempt spent."""
    merchant = system.merchant("acme")
    opened(merchant, "acme")
    for message in held(10, "acme"):
        delivery = system.delivery(message.id)
        assert (delivery["held_for"], delivery["attempts"], delivery["fast_spent"]) == (HeldFor.BREAKER, 0, 0)
    assert len(merchant.requests) == OPENERS


def test_one_delivery_that_fails_five_times_opens_it(system: System) -> None:
    """Attempts count, not deliveries: one that fails five times opens it as well, and is then held itself."""
    merchant = system.merchant("acme")
    merchant.answers(503)
    only = courier.accept(event("acme", "only"))
    courier.attempt(only)
    for _ in range(OPENERS - 1):
        assert state_of("acme") is BreakerState.WORKING
        assert isinstance(courier.attempt_again(only), RetryAt)
    assert state_of("acme") is BreakerState.PAUSED
    assert courier.attempt_again(only) == held_now("acme")
    assert len(merchant.requests) == OPENERS
    assert system.delivery(only.id)["fast_spent"] == OPENERS


@pytest.mark.parametrize("status", [404, 429, 302])
def test_what_answers_never_opens_it(system: System, status: int) -> None:
    """Twenty answers of 404, of 429 or of 302 leave it closed, and count as what was answered."""
    merchant = system.merchant("acme")
    merchant.answers(status)
    for number in range(20):
        assert isinstance(courier.send(event("acme", str(number))), RetryAt)
    shown = parts.gate().show("acme")
    assert (shown.state, shown.successes, shown.failures) == (BreakerState.WORKING, 20, 0)
    assert system.counted() == {State.PENDING: 20}


def test_pauses_double_up_to_the_most_and_each_has_one_post(system: System, clock: Clock) -> None:
    """The merchant sees one POST a cycle, after pauses of 5, 10, 20, 30, 30 minutes, and neither a moment earlier."""
    merchant = system.merchant("acme")
    opened(merchant, "acme")
    held(10, "acme")
    for number, minutes in enumerate((5, 10, 20, 30, 30), OPENERS):
        assert len(merchant.requests) == number
        clock.advance(timedelta(minutes=minutes) - AN_INSTANT)
        assert parts.sweeper().tick().probes == 0
        clock.advance(AN_INSTANT)
        message = the_probe(system)
        assert isinstance(courier.attempt(message), RetryAt)
        assert courier.attempt_again(message) == held_now("acme")
    assert len(merchant.requests) == OPENERS + 5


def test_after_a_success_all_that_was_held_arrives_once(system: System, clock: Clock) -> None:
    """The probe's success closes it, lets the next one go at once, and everything that was held arrives, each once."""
    merchant = system.merchant("acme")
    opened(merchant, "acme")
    messages = held(60, "acme")
    merchant.forget()
    merchant.answers(200)
    clock.advance(timedelta(minutes=5))
    assert courier.attempt(the_probe(system)) == Delivered()
    assert state_of("acme") is BreakerState.WORKING
    redis = system.redis()
    while message := courier.take(redis):  # no tick of the sweep is needed: each success lets the next ones go
        clock.advance(AN_INSTANT)
        assert courier.attempt(message) == Delivered()
    posts = Counter(request.webhook_id for request in merchant.requests)
    assert posts == {message.id: 1 for message in messages}


def test_no_delivery_burns_its_attempts_as_the_eternal_probe(system: System, clock: Clock) -> None:
    """With more held deliveries than probes, none has spent two attempts more than another."""
    merchant = system.merchant("acme")
    opened(merchant, "acme")
    held(8, "acme")
    for _ in range(20):
        clock.advance(timedelta(minutes=30))
        message = the_probe(system)
        courier.attempt(message)
        assert courier.attempt_again(message) == held_now("acme")
    spent = [row.fast_spent for row in system.sql("SELECT fast_spent FROM deliveries WHERE state = 'held'")]
    assert (len(spent), min(spent), max(spent)) == (8, 2, 3)


def test_gate_away_is_no_outage(system: System, caplog: pytest.LogCaptureFixture) -> None:
    """With the gate's Redis out of reach deliveries arrive all the same, and the log says so once."""
    system.set(redis_url="redis://127.0.0.1:1/0")
    merchant = system.merchant("acme")
    assert [courier.send(event("acme", str(number))) for number in range(10)] == [Delivered()] * 10
    assert len(merchant.requests) == 10
    assert [record.getMessage().partition(":")[0] for record in caplog.records].count("gate.away") == 1


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


@pytest.mark.parametrize("held", [1_000, 20_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_an_idle_tick_costs_the_same_however_many_are_held(
    system: System, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    """The statements sent and the rows touched by a tick do not depend on the number of held deliveries."""
    system.set(breaker_pause=600, breaker_max_pause=600)
    parts.endpoints().set("acme", Changes(url="https://acme.example/", secret="s"))
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
    parts.sweeper().tick()
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
    """The next probe comes when the lease is over and not before; its success closes the breaker, and all arrive."""
    lease = timedelta(seconds=3)
    system.set(breaker_pause=1, deadline=2, lease_margin=1, fast_waits="60,60")
    merchant = system.merchant("acme")
    worker = system.start()
    merchant.answers(503)
    accept(OPENERS, "acme", "opener")
    system.wait_until(lambda: state_of("acme") is not BreakerState.WORKING, "the breaker opens")
    waiting = accept(20, "acme", "held")
    merchant.answers(Reply.raw(Stall()))
    merchant.wait_for(OPENERS + 1)
    system.wait_until(lambda: state_of("acme") is BreakerState.PROBING, "a probe is out")
    worker.stop(SIGKILL)
    merchant.answers(200)
    system.stage.worker("another")
    merchant.wait_for(OPENERS + 2)
    killed, after = merchant.requests[OPENERS : OPENERS + 2]
    assert after.at - killed.at >= lease
    assert after.webhook_id != killed.webhook_id
    system.wait_for_state(State.DELIVERED, *waiting, timeout=60)
    assert state_of("acme") is BreakerState.WORKING
    assert [step["outcome"] for step in system.delivery(str(killed.webhook_id))["journey"]] == ["unknown", "delivered"]
    posts = Counter(request.webhook_id for request in merchant.requests[OPENERS:])
    assert {delivery_id: posts[delivery_id] for delivery_id in waiting} == {
        **dict.fromkeys(waiting, 1),
        str(killed.webhook_id): 2,
    }
