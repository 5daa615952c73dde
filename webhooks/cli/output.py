"""How answers are printed: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import click
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from webhooks.process.spans import in_words

_WIDTH_IN_A_FILE = 160
_BORDERS = 3  # beside each column
_LONGEST_ID = 200  # what is longer is no word that anybody copies, such as JSON that a merchant answered
_PIECE = 40  # of such a one

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
    """Print rows; a cell is text, a number, a moment, a duration or None, and is printed as it is.

    No word is broken, so that an id can be copied or looked for: where a terminal is too narrow for that, each row is
    printed as facts, and what goes elsewhere is as wide as need be.
    """
    told = list(rows)
    cells = [[words(cell) for cell in row] for row in told]
    widths = _widths([*zip(columns, *cells, strict=True)], None if sys.stdout.isatty() else _WIDTH_IN_A_FILE)
    if widths is None:
        _print_row_by_row(title, columns, told)
        return
    # Text, never str: Rich would read markup and emoji in what a merchant answered or an operator wrote.
    table = Table(header_style="bold")
    for column, width in zip(columns, widths, strict=True):
        table.add_column(column, width=width, overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    console = Console(width=sum(widths) + _BORDERS * len(widths) + 1)
    console.print(Text(title, style="table.title"), soft_wrap=True)
    console.print(table)


def _widths(columns: Sequence[Sequence[str]], limit: int | None) -> Sequence[int] | None:
    """Return how wide each column is, at least its longest word; None where a terminal has no room for that.

    `limit`: how wide a table is that need not fit into a terminal, if its words let it be.
    """
    least = [max(_least(word) for cell in column for word in [*cell.split(), ""]) for column in columns]
    most = [max(map(cell_len, column)) for column in columns]
    room = (limit or Console().width) - _BORDERS * len(columns) - 1 - sum(least)
    if room < 0 and limit is None:
        return None
    widths = least
    while room > 0 and widths != most:
        for at, wanted in enumerate(most):
            if room > 0 and widths[at] < wanted:
                widths[at] += 1
                room -= 1
    return widths


def _least(word: str) -> int:
    width = cell_len(word)
    return width if width <= _LONGEST_ID else _PIECE


def _print_row_by_row(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print what does not fit beside each other below each other, and leave out what is not there."""
    click.echo(title)
    for row in rows:
        click.echo()
        print_facts({name: cell for name, cell in zip(columns, row, strict=True) if cell is not None})


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
