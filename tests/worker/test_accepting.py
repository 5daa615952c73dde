"""Events on their way in through a worker: by countdown, by a caller's own transaction, by name, for nobody yet."""

from __future__ import annotations

from datetime import timedelta

import psycopg2
import pytest

from tests.system import System
from webhooks import app, deliver, record
from webhooks.accepting import reading
from webhooks.errors import NotPossible
from webhooks.model import State

Event = dict[str, str]


def test_a_countdown_waits_in_the_ledger_and_not_in_a_worker(system: System, acme: str, event: Event) -> None:
    """It comes when it is due, and one past the delivery's age is refused (I7)."""
    merchant = system.merchant(acme)
    deliver.apply_async((event,), countdown=2)
    assert system.redis().llen("deliveries") == 0
    (row,) = system.sql("SELECT queued_at FROM deliveries")
    assert row.queued_at is None
    system.wait_for_state(State.DELIVERED, event["id"])
    (accepted,) = system.sql("SELECT accepted_at FROM deliveries")
    assert merchant.requests[0].at - accepted.accepted_at >= timedelta(seconds=2)
    with pytest.raises(NotPossible, match="expired"):
        deliver.apply_async(({**event, "id": f"{acme}-2"},), countdown=30 * 24 * 3600)


def test_the_sweep_publishes_after_the_commit(system: System, database_url: str, acme: str, event: Event) -> None:
    """An event that was recorded in a transaction arrives soon after its commit, and none that was rolled back."""
    merchant = system.merchant(acme)
    plain = psycopg2.connect(database_url)
    wanted = [f"{acme}-{number}" for number in range(3)]
    for delivery_id in wanted:
        record(plain, {**event, "id": delivery_id})
    plain.commit()
    record(plain, {**event, "id": "never"})
    plain.rollback()
    plain.close()
    system.wait_for_count(State.DELIVERED, 3)
    assert sorted(str(request.webhook_id) for request in merchant.requests) == wanted


def test_many_in_one_call_arrive_once_each(system: System, acme: str, event: Event) -> None:
    """However often the call is made."""
    merchant = system.merchant(acme)
    wanted = [f"{acme}-{number:03}" for number in range(100)]
    for _ in range(2):
        assert deliver.many({**event, "id": event_id} for event_id in wanted) == wanted
    system.wait_for_count(State.DELIVERED, 100)
    assert sorted(str(request.webhook_id) for request in merchant.requests) == wanted


def test_sent_by_name_is_recorded_by_the_worker(system: System, acme: str, event: Event) -> None:
    """A complete event from code without this package is recorded, then delivered; a second copy changes nothing."""
    merchant = system.merchant(acme)
    for _ in range(2):
        app.send_task("webhooks.deliver", args=[event])
    system.wait_for_state(State.DELIVERED, event["id"])
    app.send_task("webhooks.deliver", args=[{name: event[name] for name in ("id", "merchant_id", "type")}])
    app.send_task("webhooks.deliver", args=[{**event, "id": f"{acme}-2"}])
    system.wait_for_state(State.DELIVERED, f"{acme}-2")
    assert [request.webhook_id for request in merchant.requests] == [event["id"], f"{acme}-2"]


@pytest.mark.parametrize("task_id", ["one-message", "order/42"])
def test_by_name_without_an_id_twice_is_one_delivery(system: System, acme: str, event: Event, task_id: str) -> None:
    """A message may come twice: its own id names the event, itself or, where it cannot, by what is made of it."""
    merchant = system.merchant(acme)
    nameless = {name: value for name, value in event.items() if name != "id"}
    for _ in range(2):
        app.send_task("webhooks.deliver", args=[nameless], task_id=f"{acme}-{task_id}")
    deliver.delay({**event, "id": f"{acme}-after"})
    system.wait_for_count(State.DELIVERED, 2)
    system.wait_until(lambda: not system.redis().llen("deliveries"), "both messages have been read")
    assert len(merchant.requests) == 2
    named = reading.id_from(f"{acme}-{task_id}")
    assert {request.webhook_id for request in merchant.requests} == {f"{acme}-after", named}


def test_nonsense_by_name_is_refused_in_one_line(
    system: System, acme: str, event: Event, caplog: pytest.LogCaptureFixture
) -> None:
    """An invalid event by name ends as a failed task with the reason in the log, and the worker goes on."""
    merchant = system.merchant(acme)
    app.send_task("webhooks.deliver", args=[{"type": "kyc.status_changed"}])
    app.send_task("webhooks.deliver", args=[event], kwargs={"surprise": 1})
    app.send_task("webhooks.deliver", args=[])
    deliver.delay({**event, "id": f"{acme}-after"})
    system.wait_for_state(State.DELIVERED, f"{acme}-after")
    system.wait_until(lambda: "merchant_id: must be a non-empty string" in caplog.text, "the reason is logged")
    assert len(merchant.requests) == 1


def test_unknown_merchant_is_held_until_it_is_registered(system: System, acme: str, event: Event) -> None:
    """An event for an unknown merchant is accepted, held without an attempt, and released by an address."""
    merchant = system.merchant(acme, registered=False)
    deliver.delay(event)
    system.wait_for_state(State.HELD, event["id"])
    assert system.delivery(event["id"])["held_for"] == "address"
    assert system.delivery(event["id"])["attempts"] == 0
    system.register(acme, merchant)
    system.wait_for_state(State.DELIVERED, event["id"])
    assert system.delivery(event["id"])["fast_spent"] == 0
    assert len(merchant.requests) == 1
