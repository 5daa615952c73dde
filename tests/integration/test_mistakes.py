"""What is mistyped, and an answer that nobody can read, is one line and an exit status, and no trace."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import refused, run
from tests.courier import accept, send
from tests.system import System

EVENT = {"type": "kyc.status_changed", "status": "approved", "merchant_id": "acme"}


@pytest.mark.parametrize(
    ("typed", "line", "of"),
    [
        ("delvery", "no such command 'delvery'. Did you mean 'delivery'?", "webhooks"),
        ("--bogus", "no such option '--bogus'", "webhooks"),
        ("delivery lst", "no such command 'lst'. Did you mean 'list'?", "webhooks delivery"),
        ("delivery show", "missing argument 'ID'", "webhooks delivery show"),
        ("delivery cancel x", "missing option '--why'", "webhooks delivery cancel"),
        ("audit --limit 0", "invalid value for '--limit': 0 is not in the range 1<=x<=10000", "webhooks audit"),
        ("status --watch nan", "invalid value for '--watch': 'nan' is not a number of seconds", "webhooks status"),
        (
            "dashboard --address a..b",
            "invalid value for '--address': 'a..b' is no address to listen at, such as 127.0.0.1",
            "webhooks dashboard",
        ),
        *(
            (f"{typed} --since 1h --until 2h", "--since is not before --until, so that nothing lies between them", of)
            for typed, of in (
                ("delivery list", "webhooks delivery list"),
                ("delivery replay --why x", "webhooks delivery replay"),
            )
        ),
        ("health --worker ''", "--worker wants the name of a worker, such as sweep@%h", "webhooks health"),
    ],
)
def test_what_is_mistyped_is_one_line(system: System, typed: str, line: str, of: str) -> None:
    """It says what, and where one can read how it is written."""
    told = run(*shlex.split(typed))
    assert (told.exit_code, told.stdout, told.stderr) == (2, "", f"webhooks: {line}; see: {of} --help\n")


def test_who_types_nothing_gets_the_help() -> None:
    """Of the whole, or of the noun that was typed."""
    for typed in ([], ["delivery"]):
        told = run(*typed)
        assert told.exit_code == 2
        assert told.stderr.startswith("Usage: webhooks ")


@pytest.mark.parametrize("why", ["", " ", "a\nb", "\x1b[2J", "x" * 501])
def test_an_act_is_for_a_reason_that_can_be_read(system: System, why: str) -> None:
    """What says nothing, or what a terminal would not show as it is, is no reason; nothing is done."""
    system.merchant("acme")
    accept({**EVENT, "id": "evt-1"})
    for act in (["delivery", "cancel", "evt-1"], ["merchant", "pause", "acme"], ["breaker", "reset", "acme"]):
        assert refused(*act, "--why", why) == "webhooks: --why is a reason for the audit: 1 to 500 printable characters"
    assert system.delivery("evt-1")["state"] == "pending"
    assert "nothing" not in run("audit").stdout
    assert run("audit").stdout.startswith("0 lines")


def in_shell(system: System, typed: str) -> subprocess.CompletedProcess[str]:
    """Type `webhooks …` in a shell."""
    line = f"{shlex.quote(sys.executable)} -m webhooks {typed}"
    return subprocess.run(
        ["sh", "-c", line],
        env=system.environment,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("typed", ["delivery list", "delivery list --json", "tail --since 1h", "secrets-key", "--help"])
def test_a_full_disk_is_one_line(system: System, typed: str) -> None:
    """Whoever keeps the answer in a file hears that it is not there."""
    system.merchant("acme")
    send({**EVENT, "id": "evt-1"})
    told = in_shell(system, f"{typed} >/dev/full")
    line = "webhooks: the answer could not be written: No space left on device\n"
    assert (told.returncode, told.stderr) == (1, line)


@pytest.mark.parametrize("typed", ["delivery list", "delivery list --json", "--help"])
def test_nobody_needs_to_listen(system: System, typed: str) -> None:
    """With standard output closed nothing is said, and nothing goes wrong; nor where only the beginning is read."""
    accept({**EVENT, "id": "evt-1"})
    told = in_shell(system, f"{typed} >&-")
    assert (told.returncode, told.stderr) == (0, "")
    assert in_shell(system, f"{typed} | head -1").stderr == ""


def test_a_question_that_nobody_can_answer_is_answered_with_no(system: System) -> None:
    """As where standard input is closed."""
    system.merchant("acme")
    told = in_shell(system, "endpoint remove acme <&-")
    assert told.returncode == 1
    assert told.stderr.splitlines()[-1] == "webhooks: nothing was removed; to go on without a question: --yes"
