"""Round trips are counted: what a delivery costs PostgreSQL and Redis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests import courier
from tests.system import System
from webhooks import deliver, parts
from webhooks.delivery import SetAside
from webhooks.model import HeldFor, Message
from webhooks.policy.decisions import Delivered, RetryAt

EVENT = {"id": "evt-1", "type": "payment.status_changed", "status": "paid", "merchant_id": "acme"}


class Counted:
    """What was sent while counting."""

    statements: int = 0
    transactions: int = 0  # of several statements
    commands: dict[str, int]


@contextmanager
def counting(system: System, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    """Count the statements and transactions that go to PostgreSQL, and the commands that Redis ran, by name."""
    counted = Counted()
    database = parts.database()
    run = database._run

    def counting_run(*arguments: Any) -> Any:
        counted.statements += 1
        return run(*arguments)

    transaction = database.transaction

    def counting_transaction() -> Any:
        counted.transactions += 1
        return transaction()

    client = system.redis()
    monkeypatch.setattr(database, "_run", counting_run)
    monkeypatch.setattr(database, "transaction", counting_transaction)
    client.config_resetstat()
    yield counted
    monkeypatch.undo()
    stats = client.info("commandstats")
    ignored = {"config|resetstat", "info", "ping", "client|setinfo", "client|setname", "hello", "select"}
    counted.commands = {
        name.removeprefix("cmdstat_"): values["calls"]
        for name, values in stats.items()
        if name.removeprefix("cmdstat_") not in ignored
    }


def message_of(system: System, delivery_id: str) -> Message:
    """Return a live message of a delivery."""
    (row,) = system.sql("SELECT * FROM deliveries WHERE id = :id", id=delivery_id)
    return Message(row.id, row.merchant_id, row.type, row.turn, row.accepted_at)


def warm_up(system: System) -> None:
    """Have one delivery go all the way, so that connections are open and scripts are known."""
    deliver.delay({**EVENT, "id": "warm"})
    assert courier.attempt(message_of(system, "warm")) == Delivered()


def test_accepting_costs_one_statement_and_one_message(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """`deliver.delay`: one insert, one message."""
    system.merchant("acme")
    warm_up(system)
    with counting(system, monkeypatch) as counted:
        deliver.delay(EVENT)
    assert counted.statements == 1
    assert counted.commands.get("lpush") == 1


def test_an_attempt_costs_two_statements_and_two_questions(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """A delivery that works at once: claim and finish in PostgreSQL, admit and report in Redis, and nothing else."""
    system.merchant("acme")
    warm_up(system)
    deliver.delay(EVENT)
    message = message_of(system, "evt-1")
    with counting(system, monkeypatch) as counted:
        assert courier.attempt(message) == Delivered()
    assert counted.statements == 2
    assert counted.commands.get("evalsha") == 2
    assert "lpush" not in counted.commands


def test_a_retry_costs_one_message_more(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """A delivery that is tried again costs the same, and the message that counts down."""
    merchant = system.merchant("acme")
    warm_up(system)
    merchant.answers(503)
    deliver.delay(EVENT)
    message = message_of(system, "evt-1")
    with counting(system, monkeypatch) as counted:
        assert isinstance(courier.attempt(message), RetryAt)
    assert counted.statements == 2
    assert (counted.commands.get("evalsha"), counted.commands.get("lpush")) == (2, 1)


def test_holding_costs_one_question_and_one_statement(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes for a merchant that is paused by its breaker is held without loading its row."""
    from tests.integration.test_breaker import pause  # noqa: PLC0415

    system.merchant("acme")
    warm_up(system)
    pause(parts.gate(), "acme")
    deliver.delay(EVENT)
    message = message_of(system, "evt-1")
    with counting(system, monkeypatch) as counted:
        aside = courier.attempt(message)
    assert isinstance(aside, SetAside)
    assert (aside.held_for, aside.until) == (HeldFor.BREAKER, parts.gate().show("acme").until)
    assert counted.statements == 1
    assert counted.commands.get("evalsha") == 1
