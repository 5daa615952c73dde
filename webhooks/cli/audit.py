"""`webhooks audit`: what operators did by hand."""

from __future__ import annotations

import click

from webhooks import parts
from webhooks.cli.output import as_json, print_json, print_table


@click.command()
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@as_json
def audit(limit: int, json_: bool) -> None:
    """List what operators did by hand, the latest first: who, when, what and why."""
    found = parts.audit().latest(limit)
    if json_:
        print_json(found)
        return
    rows = [(line["at"], line["who"], line["what"], line["why"], line["deliveries"]) for line in found]
    print_table(f"{len(rows)} lines", ["when", "who", "what", "why", "deliveries"], rows)
