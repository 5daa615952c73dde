"""The `webhooks` command in the test's own process: quicker than a process for each line that is typed."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner, Result

from webhooks.cli import main


def run(*arguments: str, stdin: str | None = None) -> Result:
    """Type `webhooks …` and return what came of it."""
    return CliRunner().invoke(main, list(arguments), input=stdin, catch_exceptions=False)


def done(*arguments: str, stdin: str | None = None) -> Any:
    """Type `webhooks … --json`, expect success, and return what it printed."""
    result = run(*arguments, "--json", stdin=stdin)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refused(*arguments: str) -> str:
    """Type a command, expect one line of refusal, and return it."""
    result = run(*arguments)
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1), result.output
    return result.stderr.strip()
