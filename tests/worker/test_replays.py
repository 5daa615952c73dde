"""Sent again by an operator's hand, and the merchant sees it; a revoke stops nothing."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.command import done, refused, run
from tests.integration.test_breaker import pause
from tests.merchant import Merchant, Reply
from tests.system import System
from webhooks import app, deliver, parts
from webhooks.errors import NotPossible
from webhooks.model import HeldFor, State

EVENT = {"type": "kyc.status_changed", "status": "approved"}


def accept(merchant_id: str, *delivery_ids: str) -> None:
    """Accept events that are no money: a 404 ends them at once."""
    for delivery_id in delivery_ids:
        deliver.delay({**EVENT, "id": delivery_id, "merchant_id": merchant_id})


def fail(system: System, merchant: Merchant, merchant_id: str, *delivery_ids: str) -> None:
    """Have deliveries end as failed: rejected."""
    merchant.answers(404)
    accept(merchant_id, *delivery_ids)
    system.wait_for_state(State.FAILED, *delivery_ids)
    merchant.answers(200)


def test_a_replay_keeps_id_and_bytes_and_starts_afresh(system: System, acme: str) -> None:
    """The same id and bytes, fresh budgets and age, and attempt numbers that go on."""
    merchant = system.merchant(acme)
    fail(system, merchant, acme, f"{acme}-1")
    system.sql("UPDATE deliveries SET fast_spent = 9, slow_spent = 5, expires_at = now() + interval '1 minute'")
    replayed = run("delivery", "replay", f"{acme}-1", "--why", "they fixed their route")
    assert (replayed.exit_code, replayed.stdout) == (0, f"{acme}-1: is being sent again\n")
    system.wait_for_state(State.DELIVERED, f"{acme}-1")
    first, second = merchant.requests
    assert first.body == second.body
    assert [request.header("X-Webhook-Attempt") for request in merchant.requests] == ["1", "2"]
    delivery = system.delivery(f"{acme}-1")
    assert (delivery["fast_spent"], delivery["slow_spent"], delivery["attempts"]) == (0, 0, 2)
    assert (delivery["expires_at"] - delivery["accepted_at"]).days >= 30
    (line,) = done("audit")
    assert (line["what"], line["why"], line["deliveries"]) == (f"replay of {acme}-1", "they fixed their route", 1)
    assert line["who"]


def test_replaying_twice_in_a_row_sends_twice(system: System, acme: str) -> None:
    """Each accepted replay of a delivered one gives one POST with a new number, and only with --again."""
    merchant = system.merchant(acme)
    accept(acme, f"{acme}-1")
    for expected in (2, 3):
        system.wait_for_state(State.DELIVERED, f"{acme}-1")
        assert refused("delivery", "replay", f"{acme}-1", "--why", "lost") == (
            f"{acme}-1: it was delivered; add --again to send it once more"
        )
        assert run("delivery", "replay", f"{acme}-1", "--again", "--why", "lost").exit_code == 0
        merchant.wait_for(expected)
    system.wait_for_state(State.DELIVERED, f"{acme}-1")
    assert [request.header("X-Webhook-Attempt") for request in merchant.requests] == ["1", "2", "3"]


def test_a_bulk_replay_takes_what_was_chosen_and_nothing_else(system: System, acme: str) -> None:
    """By merchant and reason; `--dry-run` counts first, and changes nothing."""
    other_id = f"{acme}-other"
    merchant, other = system.merchant(acme), system.merchant(other_id)
    failed, good = [f"{acme}-{number}" for number in range(30)], f"{acme}-good"
    fail(system, merchant, acme, *failed)
    fail(system, other, other_id, f"{other_id}-1")
    accept(acme, good)
    system.wait_for_state(State.DELIVERED, good)
    chosen = ("--merchant", acme, "--reason", "rejected")
    counted = done("delivery", "replay", *chosen, "--dry-run")
    assert (counted["matching"], counted["by_merchant"], counted["replayed"]) == (30, {acme: 30}, 0)
    assert system.counted() == {State.FAILED: 31, State.DELIVERED: 1}
    assert run("delivery", "replay", *chosen, "--why", "route fixed").stdout == "30 deliveries are being sent again\n"
    system.wait_for_count(State.DELIVERED, 31)
    posts = Counter(request.webhook_id for request in merchant.requests)
    assert {posts[delivery_id] for delivery_id in failed} == {2}
    assert posts[good] == 1
    assert len(other.requests) == 1
    (line,) = done("audit")
    chosen_by, _, named = line["what"].partition(": ")
    assert (chosen_by, line["deliveries"]) == (f"replay of merchant_id {acme}, reason rejected", 30)
    assert set(named.split(", ")) == set(failed)


def test_a_replay_respects_an_open_breaker(system: System, acme: str) -> None:
    """What is replayed while its merchant's breaker is open stays held, and nothing is sent."""
    merchant = system.merchant(acme)
    fail(system, merchant, acme, f"{acme}-1")
    pause(parts.gate(), acme)
    assert run("delivery", "replay", f"{acme}-1", "--why", "try").exit_code == 0
    assert system.delivery(f"{acme}-1")["held_for"] == HeldFor.REPLAY
    accept(acme, f"{acme}-after")
    system.wait_for_state(State.HELD, f"{acme}-after", f"{acme}-1")
    assert len(merchant.requests) == 1


def test_a_revoke_is_refused_and_says_what_to_use(system: System, acme: str, caplog: pytest.LogCaptureFixture) -> None:
    """A revoke, by Flower or `celery control`, would only stop messages: it is refused, and the delivery arrives."""
    merchant = system.merchant(acme)
    merchant.answers(Reply(503, headers=[("Retry-After", "2")]), 200)
    accept(acme, f"{acme}-1")
    merchant.wait_for(1)
    told = system.run("celery", "-A", "webhooks", "control", "revoke", f"{acme}-1")
    assert "webhooks delivery cancel ID" in told.stdout
    for revoke in (app.control.revoke, app.control.terminate, app.control.revoke_by_stamped_headers):  # as Flower does
        with pytest.raises(NotPossible, match="webhooks delivery cancel ID"):
            revoke(f"{acme}-1")
    app.control.broadcast("revoke", {"task_id": f"{acme}-1", "terminate": True})  # as another's Celery does
    system.wait_until(lambda: caplog.text.count("a revoke was refused") == 2, "both were refused")
    system.wait_for_state(State.DELIVERED, f"{acme}-1")
    assert len(merchant.requests) == 2
