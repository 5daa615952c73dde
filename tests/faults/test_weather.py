"""Database weather: what was answered is written down before it could be sent again, and no lock outlives a moment."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import NoReturn

import pytest
from celery.states import RETRY

from tests import courier
from tests.gate.script import widen_only
from tests.integration.test_breaker import hold_rows
from tests.merchant import Reply, Request, Stall
from tests.system import SECRET, System
from webhooks import deliver, parts
from webhooks.celery import attempting
from webhooks.delivery import SetAside
from webhooks.demo.stage import wait_until
from webhooks.errors import LedgerBusy, LedgerFault, LedgerUnavailable
from webhooks.gate.values import MayProbe, MayRelease
from webhooks.ledger.backlog import Backlog
from webhooks.ledger.ledger import Ledger
from webhooks.model import Changes, State, Written

EVENT = {"type": "payment.status_changed", "status": "paid", "merchant_id": "acme"}

_END_SESSIONS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = 'webhooks' AND pid <> pg_backend_pid() AND datname = current_database()
"""
_IDLE_IN_TRANSACTION = """
SELECT pid FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' AND datname = current_database()
"""


def test_sessions_that_end_between_claim_and_post(system: System) -> None:
    """Claimed, the session ends, the POST goes out: one POST, written down, and 20 more through the same process."""
    merchant = system.merchant("acme")
    merchant.greets(before_tls=[Stall(1)])
    system.start()
    deliver.delay({**EVENT, "id": "evt-0"})
    system.wait_until(lambda: merchant.connections, "the worker has claimed and connects")
    system.sql(_END_SESSIONS)
    merchant.greets()
    system.wait_for_state(State.DELIVERED, "evt-0")
    _twenty_more(system)
    assert len(merchant.requests) == 21


def test_sessions_that_end_between_post_and_record(system: System) -> None:
    """The merchant answers, the session is gone: the answer is written down over a new one, without a second POST."""
    merchant = system.merchant("acme")
    merchant.answers(Reply(200, after=1), 200)
    system.start()
    deliver.delay({**EVENT, "id": "evt-0"})
    merchant.wait_for(1)
    system.sql(_END_SESSIONS)
    system.wait_for_state(State.DELIVERED, "evt-0")
    _twenty_more(system)
    assert len(merchant.requests) == 21
    assert system.delivery("evt-0")["attempts"] == 1


def test_postgres_away_right_after_the_answer(system: System) -> None:
    """Down past the lease since the merchant's 200: the answer is written down first, and never sent again (D5)."""
    system.set(deadline=1, lease_margin=0.5, recover_after=1)
    merchant = system.merchant("acme")
    worker = system.start()
    postgres = system.servers.postgres

    def stop_the_ledger(_request: Request) -> int:
        postgres.control("-w", "-m", "fast", "stop")
        return 200

    merchant.answer_with(stop_the_ledger)
    deliver.delay({**EVENT, "id": "evt-0"})
    merchant.wait_for(1)
    merchant.answers(200)
    away_since = time.monotonic()
    try:
        wait_until(lambda: "ledger.away" in worker.last_lines(50), "the worker knows")
        wait_until(lambda: time.monotonic() - away_since > 4, "the lease has run out")
    finally:
        postgres.restart()
    system.wait_for_state(State.DELIVERED, "evt-0")
    _twenty_more(system)
    assert set(Counter(request.webhook_id for request in merchant.requests).values()) == {1}
    assert system.delivery("evt-0")["attempts"] == 1


def test_no_lock_is_held_during_a_post(system: System) -> None:
    """While a merchant takes its time no session is idle in a transaction, and operators' edits take no second (D7)."""
    merchant = system.merchant("acme")
    merchant.answers(Reply(200, after=2))
    widen_only(parts.gate(), merchant="acme")
    system.start()
    for number in range(10):
        deliver.delay({**EVENT, "id": f"evt-{number}"})
    merchant.wait_for(10)
    edits = 0
    while not system.counted().get(State.DELIVERED):
        assert not system.sql(_IDLE_IN_TRANSACTION)
        began = time.monotonic()
        parts.endpoints().set("acme", Changes(url=merchant.url(f"/{edits}"), secret=SECRET))
        parts.endpoints().pause("acme", paused=True)
        parts.endpoints().pause("acme", paused=False)
        assert time.monotonic() - began < 1
        edits += 1
    assert edits > 10
    system.wait_for_count(State.DELIVERED, 10)
    assert len(merchant.requests) == 10


def test_a_probe_that_the_ledger_refuses_stops_no_other_merchant(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tick goes on to the merchants that come after it."""
    for merchant_id in ("first", "second"):
        system.merchant(merchant_id)
        hold_rows(system, merchant_id, 1)
    monkeypatch.setattr(
        parts.gate(), "offer", lambda _ids, _lanes: {"first": MayProbe("probe:1"), "second": MayRelease(("slot:1",))}
    )

    def refuse(_self: Backlog, _merchant_ids: object) -> NoReturn:
        raise LedgerUnavailable("away for a moment")

    monkeypatch.setattr(Backlog, "release_probes", refuse)
    swept = parts.sweeper().tick()
    assert (swept.probes, swept.released) == (0, 1)


def test_a_removed_endpoint_whose_rows_cannot_be_ended_stops_no_other_merchant(system: System) -> None:
    """What is held for others goes on, and the tick says what stands still."""
    for merchant_id in ("gone", "acme"):
        system.merchant(merchant_id)
        hold_rows(system, merchant_id, 1)
    system.sql("UPDATE endpoints SET removed_at = now() WHERE id = 'gone'")
    system.sql("ALTER TABLE deliveries ADD CHECK (merchant_id <> 'gone' OR reason IS NULL) NOT VALID")
    with pytest.raises(LedgerFault):
        parts.sweeper().tick()
    assert parts.views().count_held() == {"breaker": 1}
    assert parts.views().count_held("acme") == {}


def test_a_result_that_came_too_late_decides_nothing(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its decision had no effect, and is not shown as if it had."""
    system.merchant("acme").answers(404)
    message = courier.accept({**EVENT, "id": "evt-1", "type": "kyc.status_changed"})
    monkeypatch.setattr(Ledger, "finish", lambda *_given, **_more: Written.LATE)
    assert courier.attempt(message) == SetAside(None)


def test_after_a_failover_everything_goes_on_by_itself(system: System) -> None:
    """Sessions that take no writes are left behind: producer, worker and sweep go on within 5 s, without a person."""
    merchant = system.merchant("acme")
    merchant.answers(Reply(200, after=1), 200)
    late = system.merchant("late", registered=False)
    worker = system.start()
    deliver.delay({**EVENT, "id": "evt-0"})
    deliver.delay({**EVENT, "id": "held", "merchant_id": "late"})
    merchant.wait_for(1)
    system.wait_for_state(State.HELD, "held")
    with system.taking_no_writes():
        wait_until(lambda: worker.log.read_text().count("ledger.away"), "the worker has met it")
        with pytest.raises(LedgerUnavailable):
            deliver.delay({**EVENT, "id": "evt-1"})
        # The sessions that come from here on were opened read-only, and nobody ends them.
    deliver.delay({**EVENT, "id": "evt-2"})
    system.wait_for_state(State.DELIVERED, "evt-0", "evt-2", timeout=5)
    system.register("late", late)
    system.wait_for_state(State.DELIVERED, "held", timeout=5)
    assert worker.log.read_text().count("ledger.away") == 1


def test_a_row_that_is_gone_takes_no_thread_along(system: System, caplog: pytest.LogCaptureFixture) -> None:
    """What can never be written down ends its attempt, with one line that names the delivery."""
    merchant = system.merchant("acme")

    def delete_the_row(_request: Request) -> int:
        system.sql("DELETE FROM deliveries")
        return 200

    merchant.answer_with(delete_the_row)
    message = courier.accept({**EVENT, "id": "evt-1"})
    assert attempting.attempt(message).state == RETRY
    assert [record.message.split(": ")[:2] for record in caplog.records] == [["delivery.interrupted", "delivery evt-1"]]
    assert caplog.records[0].levelname == "ERROR"


def test_a_claim_that_is_refused_keeps_no_place(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the ledger says to a claim, the gate's lease ends with it."""
    system.merchant("acme")
    message = courier.accept({**EVENT, "id": "evt-1"})

    def refuse(*_given: object) -> NoReturn:
        raise LedgerFault("the ledger refuses: not this one")

    monkeypatch.setattr(Ledger, "claim", refuse)
    with pytest.raises(LedgerFault):
        parts.courier().attempt(message)
    assert parts.gate().show("acme").in_flight == 0


def test_a_secret_that_cannot_be_read_is_told(system: System, caplog: pytest.LogCaptureFixture) -> None:
    """The line names its merchant; nothing is sent or spent, and no outage is claimed."""
    merchant = system.merchant("acme")
    message = courier.accept({**EVENT, "id": "evt-1"})
    system.sql("UPDATE endpoints SET secret = decode('00', 'hex')")
    assert attempting.attempt(message).state == RETRY
    assert "a secret of endpoint acme cannot be decrypted" in caplog.text
    assert "ledger.away" not in caplog.text
    assert (merchant.requests, system.delivery("evt-1")["attempts"]) == ([], 0)


def test_who_is_told_to_stop_waits_no_longer_for_the_ledger(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer stays unwritten, the sweep will take the delivery back, and the breaker has counted the outcome."""
    system.merchant("acme").answers(503)
    message = courier.accept({**EVENT, "id": "evt-1"})

    def away(*_given: object, **_more: object) -> NoReturn:
        stopping.set()
        raise LedgerUnavailable("away")

    stopping = threading.Event()
    monkeypatch.setattr(Ledger, "finish", away)
    with pytest.raises(LedgerUnavailable):
        replace(parts.courier(), stopping=stopping).attempt(message)
    assert parts.gate().show("acme").failures == 1
    assert system.delivery("evt-1")["sending_since"]


def test_a_claim_that_took_too_long_is_handed_back(system: System) -> None:
    """The gate's lease would end before the attempt, and another probe could start: nothing is sent or spent (I5)."""
    merchant = system.merchant("acme")
    message = courier.accept({**EVENT, "id": "evt-1"})
    with pytest.raises(LedgerBusy):
        replace(parts.courier(), slowest_claim=timedelta()).attempt(message)
    assert merchant.requests == []
    row = system.delivery("evt-1")
    assert (row["state"], row["attempts"], row["sending_since"]) == (State.PENDING, 0, None)
    assert parts.gate().show("acme").in_flight == 0


_REFUSE_TO_EXPIRE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one'; END $$;
CREATE TRIGGER refuse BEFORE UPDATE ON deliveries FOR EACH ROW WHEN (OLD.id = 'bad') EXECUTE FUNCTION refuse()
"""


def test_a_row_that_cannot_be_changed_stops_one_step_of_the_sweep(system: System) -> None:
    """What is due is published and what is held goes all the same; the tick does not count as done."""
    system.merchant("acme")
    hold_rows(system, "acme", 1)
    for delivery_id in ("bad", "due"):
        courier.accept({**EVENT, "id": delivery_id})
    system.sql("UPDATE deliveries SET expires_at = now(), sweep_at = now() + interval '1 h' WHERE id = 'bad'")
    system.sql(_REFUSE_TO_EXPIRE)
    with pytest.raises(LedgerFault, match="not this one"):
        parts.sweeper().tick()
    assert len(courier.waiting(system.redis())) == 2
    assert parts.pulse().last_done().finished_at is None


def _twenty_more(system: System) -> None:
    ids = [deliver.delay({**EVENT, "id": f"more-{number}"}).id for number in range(20)]
    system.wait_for_state(State.DELIVERED, *ids)
