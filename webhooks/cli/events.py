"""`webhooks event`: what became of events that were sent by task name."""

from __future__ import annotations

import click

from webhooks import parts
from webhooks.cli.output import as_json, print_json, print_table


@click.group()
def event() -> None:
    """Look at events that were not accepted."""


@event.command("refused")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@as_json
def refused(limit: int, json_: bool) -> None:
    """List events by task name that were refused, the latest first: their producers heard nothing."""
    found = parts.refusals().latest(limit)
    if json_:
        print_json(found)
        return
    names = ["at", "event_id", "merchant_id", "type", "task_id", "why"]
    columns = ["when", "event", "merchant", "type", "message", "why"]
    print_table(f"{len(found)} refused events", columns, [[line[name] for name in names] for line in found])
