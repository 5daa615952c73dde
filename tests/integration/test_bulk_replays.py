"""A replay of many, batch by batch: each once, and none untold."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from click.testing import Result

from tests.command import done, run
from tests.courier import accept
from tests.system import System
from webhooks import parts
from webhooks.cli import deliveries
from webhooks.errors import LedgerUnavailable
from webhooks.ledger.replays import Replays

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
    replay_some = Replays.replay_some

    def and_then(self: Replays, *given: object, **more: object) -> int:
        number = replay_some(self, *given, **more)  # type: ignore[arg-type]
        happens()
        return number

    monkeypatch.setattr(Replays, "replay_some", and_then)


def replay(*arguments: str) -> Result:
    """Type `webhooks delivery replay …`."""
    return run("delivery", "replay", *CHOSEN, *arguments)


def test_what_finishes_again_meanwhile_is_not_taken_twice(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deliveries that fail again while the command runs stay as they are; every other one has its turn."""
    fail(system, *(f"evt-{number}" for number in range(7)))
    after_a_batch(monkeypatch, lambda: end(system))
    assert replay().stdout == "7 deliveries are being sent again\n"
    assert {row.turn for row in system.sql("SELECT turn FROM deliveries")} == {1}


def test_the_ledgers_clock_says_what_had_finished(system: System) -> None:
    """What finishes later by the ledger's clock is neither counted nor taken."""
    fail(system, "now", "later")
    system.sql("UPDATE deliveries SET finished_at = now() + interval '1 hour' WHERE id = 'later'")
    assert done("delivery", "replay", "--merchant", "acme", "--dry-run")["matching"] == 1
    assert done("delivery", "replay", *CHOSEN)["replayed"] == 1
    assert system.delivery("later")["state"] == "failed"


def test_a_fault_in_the_middle_is_told_to_the_audit(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger goes away after one batch: the audit says how many deliveries that batch sent again."""
    fail(system, "evt-1", "evt-2", "evt-3")
    replay_some, calls = Replays.replay_some, iter([True, False])

    def once(self: Replays, *given: object, **more: object) -> int:
        if next(calls):
            return replay_some(self, *given, **more)  # type: ignore[arg-type]
        raise LedgerUnavailable("the ledger cannot be used: gone")

    monkeypatch.setattr(Replays, "replay_some", once)
    result = replay()
    assert result.exit_code == 1
    assert "the ledger cannot be used: gone" in result.stderr
    (line,) = done("audit")
    assert (line["what"], line["why"], line["deliveries"]) == ("replay of merchant_id acme", "route fixed", 2)


def test_ctrl_c_ends_a_replay_with_every_batch_counted(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes while a batch runs, which is done all the same: that batch counts, and no other begins."""
    fail(system, "evt-1", "evt-2", "evt-3")
    after_a_batch(monkeypatch, lambda: os.kill(os.getpid(), signal.SIGINT))
    result = replay()
    assert result.exit_code == 1
    assert "Aborted" in result.stderr
    (line,) = done("audit")
    assert line["deliveries"] == 2
    assert system.counted() == {"held": 2, "failed": 1}


@pytest.mark.parametrize("again", [(), ("--again",)], ids=["failed", "again"])
def test_a_replay_that_matches_nothing_says_so(system: System, again: tuple[str, ...]) -> None:
    """Nothing was done, so that the audit has nothing to tell."""
    fail(system, "evt-1")
    result = run("delivery", "replay", "--merchant", "nobody", "--why", "x", *again)
    assert (result.exit_code, result.stdout) == (0, "nothing matches: no delivery is sent again\n")
    assert done("audit") == []
    assert parts.views().delivery("evt-1")["state"] == "failed"
