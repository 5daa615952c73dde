"""What the operators' command prints: as it is, whoever wrote it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from click.testing import CliRunner

from tests import terminal
from tests.command import done, run
from tests.courier import accept, send
from tests.system import System
from webhooks import parts
from webhooks.cli import main
from webhooks.ledger.audit import line
from webhooks.model import Operator

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
    parts.database().rows(line(Operator("somebody", "[/x] see [red]"), "paused acme"))
    assert "[/x] see [red]" in run("audit").stdout


def test_a_list_says_when_there_are_more(system: System) -> None:
    """The newest are shown, as many as asked for, and the title tells a part from the whole."""
    for number in range(3):
        accept({**EVENT, "id": f"evt-{number}"})
        system.sql("UPDATE deliveries SET accepted_at = accepted_at - interval '1 minute'")
    some = run("delivery", "list", "--limit", "2").stdout
    assert "the newest 2 deliveries; there are more" in some
    assert "evt-0" not in some
    assert [item["id"] for item in done("delivery", "list", "--limit", "2")] == ["evt-2", "evt-1"]
    assert run("delivery", "list", "--limit", "3").stdout.startswith("3 deliveries")


LONG = "payment-4711:settled~" + "x" * 60


@pytest.mark.parametrize("columns", [200, 120, 80, 20, 1])
def test_no_terminal_is_too_narrow_for_an_id(system: System, columns: int) -> None:
    """Where a table has no room for its words as they are, each row is printed below the other; none is broken."""
    accept({**EVENT, "id": LONG.replace("~", ".")})
    shown = terminal.shown(system.environment, columns, "delivery", "list")
    assert LONG.replace("~", ".") in shown
    assert "kyc.status_changed" in shown
    assert ("┃" in shown) is (columns > 120)
    assert max(map(len, shown.splitlines()), default=0) <= columns or columns < 100


def test_a_table_in_a_file_is_as_wide_as_its_words(system: System) -> None:
    """So that a line can be looked for by an id; but for what nobody looks for, such as an answer without spaces."""
    accept({**EVENT, "id": "a" * 128, "merchant_id": "b" * 100})
    shown = run("delivery", "list").stdout
    assert any("a" * 128 in line and "b" * 100 in line for line in shown.splitlines())
    system.merchant("acme")
    send({**EVENT, "id": "evt-1"})
    system.sql("UPDATE attempts SET excerpt = repeat('z', 2000)")
    assert max(map(len, run("delivery", "show", "evt-1").stdout.splitlines())) <= 160


@pytest.mark.parametrize(
    "arguments",
    [
        ["merchant", "set", "acme", "--secret", "CANARY\udcff"],
        ["merchant", "show", "CANARY\udcff"],
        ["delivery", "list", "--type", "CANARY\udcff"],
        ["--CANARY\udcff"],
    ],
    ids=ascii,
)
def test_an_argument_that_is_not_utf_8_is_refused(system: System, arguments: Sequence[str]) -> None:
    """One line names its place, and quotes nothing of it."""
    result = run(*arguments)
    assert (result.exit_code, result.output) == (2, f"webhooks: argument {len(arguments)} is not UTF-8\n")
    assert system.sql("SELECT id FROM endpoints") == []


def test_a_secret_on_standard_input_that_is_not_utf_8_is_refused(system: System) -> None:
    """One line, which quotes nothing of it."""
    result = CliRunner().invoke(main, ["merchant", "set", "acme", "--secret", "-"], input=b"CANARY\xff\n")
    assert (result.exit_code, result.output) == (1, "webhooks: the secret on standard input is not UTF-8\n")
    assert system.sql("SELECT id FROM endpoints") == []
