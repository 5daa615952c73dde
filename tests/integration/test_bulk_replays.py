"""A replay of many, batch by batch: each once, and none untold."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result
from sqlalchemy import text

from tests.command import done, run
from tests.courier import accept
from tests.system import System
from webhooks import parts
from webhooks.ledger import audit
from webhooks.ledger.replays import Resent
from webhooks.operating import deliveries

EVENT = {"type": "kyc.status_changed", "status": "approved", "merchant_id": "acme"}
CHOSEN = ("--merchant", "acme", "--why", "route fixed")


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two deliveries a statement, so that a few make several batches."""
    monkeypatch.setattr(deliveries, "_BATCH", 2)


def fail(system: System, *delivery_ids: str) -> None:
    """Have deliveries be failed: rejected, without a worker."""
    for delivery_id in delivery_ids:
        accept({**EVENT, "id": delivery_id})
    end(system)


def end(system: System) -> None:
    """End all that is under way as failed."""
    system.sql(
        "UPDATE deliveries SET state = 'failed', reason = 'rejected', finished_at = now(), sweep_at = NULL,"
        " held_for = NULL WHERE state IN ('pending', 'held')"
    )


def after_a_batch(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Have something happen whenever a batch was replayed, before its number is known."""
    replay_batch: Callable[..., Resent] = deliveries._replay_batch

    def and_then(*given: Any, **more: Any) -> Resent:
        resent = replay_batch(*given, **more)
        happens()
        return resent

    monkeypatch.setattr(deliveries, "_replay_batch", and_then)


def replay(*arguments: str) -> Result:
    """Type `webhooks delivery replay …`."""
    return run("delivery", "replay", *CHOSEN, *arguments)


def test_what_finishes_again_meanwhile_is_not_taken_twice(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deliveries that fail again while the command runs stay as they are; every other one has its turn."""
    fail(system, *(f"evt-{number}" for number in range(7)))
    after_a_batch(monkeypatch, lambda: end(system))
    assert replay().stdout == "7 deliveries are being sent again\n"
    assert {row.turn for row in system.sql("SELECT turn FROM deliveries")} == {1}


def test_what_somebody_else_had_locked_has_its_turn_after_all(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is passed over while the others go, batch after batch from where they have come to, and looked for again."""
    fail(system, *(f"evt-{number}" for number in range(5)))
    with contextlib.ExitStack() as stack:
        somebody = stack.enter_context(parts.database().transaction())
        somebody.rows(text("SELECT FROM deliveries WHERE id = 'evt-0' FOR UPDATE"))
        left = itertools.count(1)
        after_a_batch(monkeypatch, lambda: stack.close() if next(left) == 3 else None)  # the third finds nothing more
        assert replay().stdout == "5 deliveries are being sent again\n"
    assert system.counted() == {"held": 5}


def test_the_ledgers_clock_says_what_had_finished(system: System) -> None:
    """What finishes later by the ledger's clock is neither counted nor taken."""
    fail(system, "now", "later")
    system.sql("UPDATE deliveries SET finished_at = now() + interval '1 hour' WHERE id = 'later'")
    assert done("delivery", "replay", "--merchant", "acme", "--dry-run")["matching"] == 1
    assert done("delivery", "replay", *CHOSEN)["replayed"] == 1
    assert system.delivery("later")["state"] == "failed"


def test_every_batch_names_its_deliveries_in_the_audit(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger refuses after one batch: the audit names what that one sent again, a few in a line, and no more."""
    monkeypatch.setattr(audit, "_IDS_IN_A_LINE", 1)
    fail(system, "evt-1", "evt-2", "evt-3")
    # By its own transaction: what the third changes is undone with its line.
    system.sql("ALTER TABLE audit ADD CHECK (what NOT LIKE '%evt-3%') NOT VALID")
    result = replay()
    assert (result.exit_code, result.stderr.splitlines()[-1].partition(" ")[0]) == (1, "webhooks:")
    assert [(line["what"], line["why"], line["deliveries"]) for line in done("audit")] == [
        ("replay of merchant_id acme: evt-2", "route fixed", 1),
        ("replay of merchant_id acme: evt-1", "route fixed", 1),
    ]
    assert system.counted() == {"held": 2, "failed": 1}


def test_ctrl_c_ends_a_replay_with_every_batch_counted(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes while a batch runs, which is done all the same: that batch counts, and no other begins."""
    fail(system, "evt-1", "evt-2", "evt-3")
    after_a_batch(monkeypatch, lambda: os.kill(os.getpid(), signal.SIGINT))
    result = replay()
    assert result.exit_code == 1
    assert "Aborted" in result.stderr
    (line,) = done("audit")
    assert (line["what"], line["deliveries"]) == ("replay of merchant_id acme: evt-1, evt-2", 2)
    assert system.counted() == {"held": 2, "failed": 1}


def test_what_an_operator_cancelled_is_left_out(system: System) -> None:
    """A cancel is final for every choice but its own reason, and the command says how many that concerns."""
    accept({**EVENT, "id": "disputed"})
    assert run("delivery", "cancel", "disputed", "--why", "the customer disputes it").exit_code == 0
    fail(system, "evt-1")
    assert replay("--dry-run", "--again").stdout.endswith(
        "1 that an operator cancelled are left out; see --reason cancelled\n"
    )
    told = done("delivery", "replay", *CHOSEN, "--again")
    assert (told["by_merchant"], told["replayed"], told["cancelled_left_out"]) == ({"acme": 1}, 1, 1)
    assert system.delivery("disputed")["reason"] == "cancelled"
    assert done("delivery", "replay", *CHOSEN)["replayed"] == 0
    assert done("delivery", "replay", *CHOSEN, "--reason", "cancelled")["replayed"] == 1
    assert system.delivery("disputed")["state"] == "held"


def test_what_the_merchant_has_already_is_counted(system: System) -> None:
    """A 2xx that came too late to change a final state: the operator is told that it goes out a second time."""
    fail(system, "evt-1", "evt-2")
    system.sql(
        "INSERT INTO attempts (delivery_id, number, started_at, outcome, status)"
        " VALUES ('evt-1', 1, now(), 'delivered', 200), ('evt-1', 2, now(), 'rejected', 404),"
        " ('evt-2', 1, now(), 'rejected', 404)"
    )
    told = "1 of them have an attempt that was answered 2xx: the merchant has those\n"
    assert replay("--dry-run").stdout.endswith(told)
    assert replay().stdout.endswith(told)


@pytest.mark.parametrize("again", [(), ("--again",)], ids=["failed", "again"])
def test_a_replay_that_matches_nothing_says_so(system: System, again: tuple[str, ...]) -> None:
    """Nothing was done, so that the audit has nothing to tell."""
    fail(system, "evt-1")
    result = run("delivery", "replay", "--merchant", "nobody", "--why", "x", *again)
    assert (result.exit_code, result.stdout) == (0, "nothing matches: no delivery is sent again\n")
    assert done("audit") == []
    assert parts.views().delivery("evt-1").delivery.state == "failed"
