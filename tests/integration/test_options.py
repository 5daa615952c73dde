"""What all commands have in common: JSON, words that are spelled out, moments with their zone, completion."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone

import click
import pytest
from click.shell_completion import BashComplete

from tests.command import done, run
from tests.courier import accept, send
from tests.system import System
from webhooks.cli import COMMANDS, Later, main
from webhooks.cli.choosing import Word
from webhooks.cli.output import words
from webhooks.process.once import once

EVENT = {"type": "kyc.status_changed", "status": "approved", "merchant_id": "acme"}


def leaves(command: click.Command, *path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield every command that does something, with the words that are typed for it."""
    loaded = command.load() if isinstance(command, Later) else command
    if isinstance(loaded, click.Group):
        for name, each in loaded.commands.items():
            yield from leaves(each, *path, str(command.name if not path else path[-1]), name)
    else:
        yield " ".join(path), loaded


ALL = [command for each in COMMANDS for _, command in leaves(each, str(each.name))]


def test_every_command_speaks_json_and_explains_its_options() -> None:
    """Programs read all of them by the same word, and no option is left to be guessed."""
    assert len(ALL) > 30
    for command in ALL:
        options = [each for each in command.params if isinstance(each, click.Option)]
        assert "--json" in [name for each in options for name in each.opts], command.name
        assert [each.name for each in options if not each.help] == [], command.name


def test_every_choice_is_spelled_out_in_the_help() -> None:
    """States, reasons and whatever else is one of some words."""
    seen = 0
    for command in ALL:
        told = re.sub(r"\s+", "", command.get_help(click.Context(command, terminal_width=200)))
        for each in command.params:
            if isinstance(each.type, Word):
                assert f"[{'|'.join(each.type.words)}]" in told, command.name
                seen += 1
    assert seen >= 4


def test_the_help_tells_the_exit_statuses() -> None:
    """Each in its line, and where they are written down for programs as well."""
    told = run("--help").stdout
    assert all(f"\n    {status}  " in told for status in (0, 1, 2))


def test_a_moment_is_told_in_utc_whatever_the_ledgers_zone() -> None:
    """The zone is said, so that nobody takes it for the own."""
    assert words(datetime(2026, 1, 31, 3, tzinfo=timezone(timedelta(hours=9)))) == "2026-01-30 18:00:00 UTC"


@pytest.mark.parametrize(
    ("since", "finds"),
    [
        ("1h", ["new"]),
        ("90s", ["new"]),
        ("3d", ["new", "old"]),
        ("2020-01-31T12:00:00Z", ["new", "old"]),
        ("2999-01-31T12:00+09:00", []),
        ("2020-01-31", ["new", "old"]),
    ],
)
def test_since_and_until_are_moments_or_spans(system: System, since: str, finds: Sequence[str]) -> None:
    """`--since 1h` is what was accepted within the last hour, `--until 1h` what was accepted before."""
    accept({**EVENT, "id": "old"})
    system.sql("UPDATE deliveries SET accepted_at = accepted_at - interval '2 days'")
    accept({**EVENT, "id": "new"})
    assert [each["id"] for each in done("delivery", "list", "--since", since)] == finds
    assert [each["id"] for each in done("delivery", "list", "--until", since)] == [
        each for each in ("new", "old") if each not in finds
    ]


@pytest.mark.parametrize("nonsense", ["yesterday", "2026", "90", "1 fortnight", "", "-1h", "99999999999d"])
def test_what_is_no_moment_is_refused_with_examples(nonsense: str) -> None:
    """A number alone might be a year, or seconds: its unit is asked for."""
    refused = run("delivery", "list", "--since", nonsense)
    assert refused.exit_code == 2
    assert "is not a moment such as 2026-01-31" in refused.stderr


def completed(*typed: str) -> list[str]:
    """Return what the shell is offered for the last of these words."""
    *before, incomplete = typed
    completion = BashComplete(main, {}, "webhooks", "_WEBHOOKS_COMPLETE")
    return [each.value for each in completion.get_completions(list(before), incomplete)]


def test_the_shell_completes_commands_words_and_ids(system: System) -> None:
    """Commands and options, the words of an option, and what is in the ledger."""
    system.merchant("acme")
    send({**EVENT, "id": "evt-1"})
    assert completed("deli") == ["delivery"]
    assert completed("delivery", "ca") == ["cancel"]
    assert "--held-for" in completed("delivery", "list", "--h")
    assert completed("delivery", "list", "--state", "f") == ["failed"]
    assert completed("merchant", "show", "a") == ["acme"]
    assert completed("breaker", "show", "ac") == ["acme"]
    assert completed("delivery", "show", "evt") == ["evt-1"]
    assert completed("delivery", "show", "nothing") == []


IN_BASH = """
COMP_WORDS=(webhooks "$@") COMP_CWORD=$#
_webhooks_completion webhooks
echo "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["delivery", "show", "pay"], "pay_1:paid"),
        (["delivery", "show", "pay_1", ":"], "paid"),
        (["delivery", "show", "pay_1", ":", "pa"], "paid"),
        (["delivery", "show", "pay_1:pa"], "pay_1:paid"),  # where bash was told not to split there
        (["delivery", "show", "x", ":"], ""),
        (["failed", "note", "pay_1", ":", "p"], "paid"),
        (["event", "show", "pay_1", ":", "p"], "paid"),
        (["delivery", "list", "--state", "=", "pe"], "pending"),
        (["delivery", "list", "--st"], "--state"),
        (["deliv"], "delivery"),
    ],
)
@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash here")
def test_bash_completes_an_id_with_colons(system: System, typed: Sequence[str], offered: str) -> None:
    """Bash takes them for ends of words, and replaces what follows the last one only."""
    accept({**EVENT, "id": "pay_1:paid"})
    source = [sys.executable, "-m", "webhooks"]
    environment = {**system.environment, "_WEBHOOKS_COMPLETE": "bash_source"}
    script = subprocess.run(source, env=environment, capture_output=True, text=True, check=True).stdout
    command = system.folder / "webhooks"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m webhooks "$@"\n')
    command.chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", f"{script}\n{IN_BASH}", "bash", *typed],
        env={**system.environment, "PATH": f"{system.folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.strip(), done.stderr) == (offered, "")


@pytest.mark.parametrize("without", ["ledger", "settings"])
def test_where_the_ledger_cannot_be_asked_nothing_is_completed(system: System, without: str) -> None:
    """And nothing is said amid what somebody types."""
    system.set(database_url="postgresql://nobody@127.0.0.1:1/none" if without == "ledger" else "")
    once.forget_all()
    assert completed("merchant", "show", "a") == []


def test_a_key_is_made_as_json_as_well() -> None:
    """It needs neither settings nor servers."""
    assert len(json.loads(run("secrets-key", "--json").stdout)["secrets_key"]) == 44


def test_a_bar_is_for_a_terminal(system: System) -> None:
    """Whoever keeps what a replay says on stderr finds no bar in it."""
    told = run("delivery", "replay", "--merchant", "acme", "--why", "a test")
    assert (told.exit_code, told.stderr) == (0, "")
