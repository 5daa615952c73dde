"""`webhooks audit`: what operators did by hand."""

from __future__ import annotations

from dataclasses import asdict

import click

from webhooks import parts
from webhooks.cli.output import as_json, print_json, print_table


@click.command()
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="As many at most.")
@click.option("--after", type=int, metavar="NUMBER", help="Go on behind the line with this id.")
@as_json
def audit(limit: int, after: int | None, json_: bool) -> None:
    """List what operators did by hand, the latest first: who, when, what and why."""
    page = parts.audit().latest(limit, after)
    if json_:
        print_json([asdict(line) for line in page.items])
        return
    rows = [(line.at, line.who, line.what, line.why, line.deliveries) for line in page.items]
    print_table(f"{len(rows)} lines", ["when", "who", "what", "why", "deliveries"], rows)
    if page.next:
        click.echo(f"the next ones: --after {page.next}")
