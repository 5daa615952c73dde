"""What the operators' command prints: as it is, whoever wrote it."""

from __future__ import annotations

import pytest

from tests.command import run
from tests.courier import accept, send
from tests.system import System
from webhooks import parts

EVENT = {"type": "kyc.status_changed", "status": "approved", "merchant_id": "acme"}


@pytest.mark.parametrize("answer", ["upstream failed [/error] see log", "a [bold]loud[/bold] word", "all :b: well"])
def test_an_answer_is_shown_as_it_came(system: System, answer: str) -> None:
    """Brackets and colons of a merchant are neither markup nor emoji."""
    system.merchant("acme")
    send({**EVENT, "id": "evt-1"})
    system.sql("UPDATE attempts SET excerpt = :answer", answer=answer)
    shown = run("delivery", "show", "evt-1").stdout
    assert all(word in shown for word in answer.split())


def test_an_id_is_listed_as_it_is(system: System) -> None:
    """An id may hold colons."""
    accept({**EVENT, "id": "pay:b:1"})
    assert "pay:b:1" in run("delivery", "list").stdout


def test_a_reason_is_listed_as_it_was_written(system: System) -> None:
    """`audit` prints what an operator typed."""
    parts.audit().note("paused acme", why="[/x] see [red]")
    assert "[/x] see [red]" in run("audit").stdout
