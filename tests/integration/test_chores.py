"""What beat has done once a minute beside the sweep: minutes are counted, and what is long finished is forgotten."""

from __future__ import annotations

import pytest

from tests.system import System
from webhooks.celery import chores
from webhooks.errors import LedgerFault
from webhooks.ledger.tallying import Tallying


def test_minutes_are_counted(system: System) -> None:
    """By the same task that forgets, so that a beat and a sweep of the release before know it."""
    chores.prune()
    assert system.sql("SELECT FROM tallies")


def test_minutes_that_cannot_be_counted_hold_up_nothing(
    system: System, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """That is said, and what is long finished is forgotten all the same."""

    def refused(_self: Tallying) -> int:
        raise LedgerFault("no such table")

    monkeypatch.setattr(Tallying, "tally", refused)
    with caplog.at_level("DEBUG"):
        chores.prune()
    told = [record.getMessage() for record in caplog.records]
    assert told[0] == "tally.stopped: no such table; it is tried again in a minute"
    assert any(line.startswith("pruning.done") for line in told)
