"""How answers are printed: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from webhooks.process.spans import in_words

_WIDTH_IN_A_FILE = 160

as_json = click.option("--json", "json_", is_flag=True, help="Print JSON, for programs.")


def print_json(value: object) -> None:
    """Print a value as JSON; moments are ISO 8601 in UTC, durations seconds."""
    click.echo(json.dumps(value, default=_to_json, ensure_ascii=False, indent=2))


def print_json_line(value: object) -> None:
    """Print a value as JSON in one line, at once: whoever reads a pipe waits for it."""
    click.echo(json.dumps(value, default=_to_json, ensure_ascii=False))
    sys.stdout.flush()


def progress(label: str, length: int) -> Any:
    """Return a bar for what takes long; it is on stderr, and where nobody looks at a terminal there is none."""
    return click.progressbar(length=length, label=label, file=sys.stderr, hidden=not sys.stderr.isatty())


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows; a cell is text, a number, a moment, a duration or None, and is printed as it is."""
    # Text, never str: Rich would read markup and emoji in what a merchant answered or an operator wrote.
    table = Table(title=Text(title, style="table.title"), title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(words(cell)) for cell in row))
    Console(width=None if sys.stdout.isatty() else _WIDTH_IN_A_FILE).print(table)


def print_facts(facts: Mapping[str, object]) -> None:
    """Print one thing, a fact a line."""
    for line in facts_in_lines(facts):
        click.echo(line)


def facts_in_lines(facts: Mapping[str, object]) -> list[str]:
    """Write one thing, a fact a line."""
    width = max(map(len, facts))
    return [f"{name:<{width}}  {words(value)}" for name, value in facts.items()]


def words(value: object) -> str:
    """Write a value for a person."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case datetime():
            return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
        case timedelta():
            return in_words(value)
        case _:
            return str(value)


def _to_json(value: object) -> Any:
    writers: dict[type, Callable[[Any], object]] = {
        datetime: lambda moment: moment.astimezone(UTC).isoformat(),
        timedelta: timedelta.total_seconds,
        tuple: list,
    }
    for kind, write in writers.items():
        if isinstance(value, kind):
            return write(value)
    raise TypeError(f"JSON has no word for a {type(value).__name__}")
