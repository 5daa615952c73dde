"""`webhooks notice`: what operators are told without having asked, and whether it reaches them."""

from __future__ import annotations

from dataclasses import asdict

import click

from webhooks import watching
from webhooks.cli.output import as_json, print_json, print_table
from webhooks.errors import NotPossible
from webhooks.operating import notices
from webhooks.operating.terminal import operator


@click.group()
def notice() -> None:
    """Look at what operators were told, and try whether it reaches them."""


@notice.command("list")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="As many at most.")
@click.option("--after", type=int, metavar="NUMBER", help="Go on behind the notice with this id.")
@as_json
def list_(limit: int, after: int | None, json_: bool) -> None:
    """List notices, the latest first: endpoints that stay paused or are gone, merchants with FAILED money events."""
    page = watching.notices().latest(limit, after)
    if json_:
        print_json([asdict(each) for each in page.items])
        return
    rows = [
        (each.id, each.noted_at, each.kind, each.merchant_id, each.endpoint_id, each.host, each.since, each.held,
         each.failed, each.reached, ", ".join(each.told_to) or None, each.trouble)
        for each in page.items
    ]  # fmt: skip
    columns = [
        "id",
        "noted",
        "what",
        "merchant",
        "endpoint",
        "host",
        "since",
        "held",
        "failed",
        "state",
        "told to",
        "trouble",
    ]
    print_table(f"{len(rows)} notices", columns, rows)
    if page.next:
        click.echo(f"the next ones: --after {page.next}")


@notice.command("test")
@click.option("--why", help="Kept in the operators' record.")
@as_json
def test(why: str | None, json_: bool) -> None:
    """Send one notice to each recipient, and say what each answered; exit 1 where one does not take it."""
    said = notices.test(operator(why))
    if json_:
        print_json({name: asdict(each) for name, each in said.items()})
    else:
        for name, each in said.items():
            click.echo(f"{name}: {each.words}" + (f": {each.more}" if each.more else ""))
    failed = [name for name, each in said.items() if not each.taken]
    if failed:
        raise NotPossible(f"no notice reaches the {', the '.join(failed)}")
