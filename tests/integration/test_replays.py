"""Ends of life by an operator's hand: cancelled for good, or sent again."""

from __future__ import annotations

import json
import subprocess

import pytest
from sqlalchemy import text

from tests.command import done, refused, run
from tests.system import System
from webhooks import deliver, parts
from webhooks.model import HeldFor, Reason, State

EVENT = {"type": "kyc.status_changed", "status": "approved"}


def accept(*delivery_ids: str, merchant_id: str = "acme", **more: str) -> None:
    """Accept events that are no money: a 404 ends them at once."""
    for delivery_id in delivery_ids:
        deliver.delay({**EVENT, **more, "id": delivery_id, "merchant_id": merchant_id})


def command(system: System, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `webhooks delivery …`."""
    return system.run("webhooks", "delivery", *arguments)


def test_what_will_be_sent_anyway_is_not_replayed(system: System) -> None:
    """A pending or held delivery, and one nobody knows, are refused with a word of why; the others go."""
    accept("pending")
    accept("held", merchant_id="nobody")
    system.sql("UPDATE deliveries SET state = 'held', held_for = 'address', sweep_at = NULL WHERE id = 'held'")
    done = command(system, "replay", "pending", "held", "nothing", "--why", "try")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "pending: it is pending, and will be sent anyway",
        "held: it is held, and will be sent anyway",
        "nothing: there is no such delivery",
    ]
    assert json.loads(system.run("webhooks", "audit", "--json").stdout) == []


@pytest.mark.parametrize("again", [(), ("--again",)], ids=["failed", "again"])
def test_what_somebody_else_holds_is_named_so(system: System, again: tuple[str, ...]) -> None:
    """A failed delivery whose row is locked is not called delivered."""
    accept("evt-1")
    system.sql("UPDATE deliveries SET state = 'failed', reason = 'expired', finished_at = now(), sweep_at = NULL")
    with parts.database().engine.connect().execution_options(isolation_level="READ COMMITTED") as other:
        other.execute(text("SELECT id FROM deliveries FOR UPDATE"))
        assert refused("delivery", "replay", "evt-1", "--why", "x", *again) == (
            "evt-1: somebody else is at it; try again in a moment"
        )


def end(system: System, delivery_id: str, reason: Reason = Reason.REJECTED) -> None:
    """Have a delivery be failed, without a worker."""
    accept(delivery_id)
    system.sql(
        "UPDATE deliveries SET state = 'failed', reason = :reason, finished_at = now(), sweep_at = NULL WHERE id = :id",
        id=delivery_id,
        reason=reason,
    )


@pytest.mark.parametrize("again", [(), ("--again",)], ids=["failed", "again"])
def test_a_cancelled_delivery_is_replayed_only_when_that_is_said(system: System, again: tuple[str, ...]) -> None:
    """Its id alone is not enough, nor is --again: somebody cancelled it for a reason."""
    end(system, "evt-1", Reason.CANCELLED)
    assert refused("delivery", "replay", "evt-1", "--why", "x", *again) == (
        "evt-1: an operator cancelled it; add --cancelled to send it all the same"
    )
    assert done("audit") == []
    assert done("delivery", "replay", "evt-1", "--cancelled", "--why", "x", *again)[0]["refused"] is None
    assert system.delivery("evt-1")["held_for"] == HeldFor.REPLAY


def test_the_same_id_twice_counts_once(system: System) -> None:
    """In the answer and in the audit, for a replay and a cancel alike."""
    end(system, "evt-1")
    assert run("delivery", "replay", "evt-1", "evt-1", "--why", "x").stdout == "evt-1: is being sent again\n"
    assert run("delivery", "cancel", "evt-1", "evt-1", "--why", "x").stdout == "evt-1: cancelled\n"
    assert [(line["what"], line["deliveries"]) for line in done("audit")] == [
        ("cancel of evt-1", 1),
        ("replay of evt-1", 1),
    ]


def test_a_dry_run_goes_with_ids(system: System) -> None:
    """It says of each what would become of it, needs no reason, and changes nothing."""
    end(system, "evt-1")
    end(system, "evt-2", Reason.CANCELLED)
    before = system.sql("SELECT * FROM deliveries ORDER BY id")
    result = run("delivery", "replay", "evt-1", "evt-2", "evt-3", "evt-1", "--dry-run")
    assert (result.exit_code, result.stdout) == (1, "evt-1: would be sent again\n")
    assert result.stderr.splitlines() == [
        "evt-2: an operator cancelled it; add --cancelled to send it all the same",
        "evt-3: there is no such delivery",
    ]
    assert system.sql("SELECT * FROM deliveries ORDER BY id") == before
    assert done("audit") == []


def test_a_failed_delivery_that_the_merchant_has_is_told(system: System) -> None:
    """Its 2xx came too late to change a final state: `show` and `replay` say so, before and when it is sent again."""
    end(system, "evt-1")
    system.sql(
        "INSERT INTO attempts (delivery_id, number, started_at, outcome, status)"
        " VALUES ('evt-1', 1, now(), 'delivered', 200), ('evt-1', 2, now(), 'rejected', 404)"
    )
    told = "its attempt 1 was answered 2xx: the merchant has it"
    assert f"note: {told}\n" in run("delivery", "show", "evt-1").stdout
    assert done("delivery", "show", "evt-1")["note"] == told
    assert run("delivery", "replay", "evt-1", "--dry-run").stdout == f"evt-1: would be sent again; {told}\n"
    assert run("delivery", "replay", "evt-1", "--why", "x").stdout == f"evt-1: is being sent again; {told}\n"
    assert done("delivery", "show", "evt-1")["note"] is None


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["replay", "--why", "x"], "name deliveries, or choose them"),
        (["replay", "evt-1", "--merchant", "acme", "--why", "x"], "name deliveries, or choose them"),
        (["replay", "--merchant", "acme"], "say --why"),
        (["replay", "--merchant", "acme", "--reason", "bored", "--why", "x"], "'bored' is not one of fast_exhausted"),
        (["replay", "--since", "yesterday", "--why", "x"], "'yesterday' is not a moment"),
        (["replay", "--merchant", "acme", "--cancelled", "--why", "x"], "--cancelled goes with ids"),
        (["replay", "--merchant", "acme ", "--why", "x"], "merchant_id: begins or ends with white space"),
        (["cancel", "evt-1"], "--why"),
    ],
    ids=" ".join,
)
def test_mistakes_change_nothing(system: System, arguments: list[str], why: str) -> None:
    """A mistake in a replay or cancel is answered by what is wrong, and nothing is changed."""
    accept("evt-1")
    done = command(system, *arguments)
    assert done.returncode != 0
    assert why in done.stderr
    assert "Traceback" not in done.stderr
    assert system.counted() == {State.PENDING: 1}


def test_cancelled_is_not_sent(system: System) -> None:
    """A waiting retry that was cancelled is not sent, also by a worker that starts later, and stays so."""
    system.set(fast_waits="600,600")
    merchant = system.merchant("acme")
    merchant.answers(503)
    worker = system.start()
    accept("evt-1", "evt-2")
    system.wait_until(lambda: system.sql("SELECT count(*) AS n FROM attempts")[0].n == 2, "both have failed once")
    done = command(system, "cancel", "evt-1", "--why", "the merchant asked")
    assert (done.returncode, done.stdout) == (0, "evt-1: cancelled\n")
    worker.stop()
    merchant.answers(200)
    system.stage.worker("another")
    system.sql("UPDATE deliveries SET due_at = now(), sweep_at = now(), queued_at = NULL WHERE state = 'pending'")
    system.wait_for_state(State.DELIVERED, "evt-2")
    assert system.delivery("evt-1")["reason"] == Reason.CANCELLED
    assert len(merchant.requests_of("evt-1")) == 1
    again = command(system, "cancel", "evt-1", "evt-2", "--why", "again")
    assert again.stderr.splitlines() == ["evt-1: it is failed already", "evt-2: it is delivered already"]
