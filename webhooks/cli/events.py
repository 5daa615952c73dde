"""`webhooks event`: what producers handed over, and what became of events that were sent by task name."""

from __future__ import annotations

from dataclasses import asdict

import click

from webhooks import parts
from webhooks.cli.names import EndpointId, EventId
from webhooks.cli.output import as_json, print_facts, print_json, print_table
from webhooks.errors import NotPossible
from webhooks.operating import deliveries
from webhooks.operating.terminal import operator


@click.group()
def event() -> None:
    """Look at events, send them again, and see which were not accepted."""


@event.command("show")
@click.argument("event_id", type=EventId())
@click.option("--body", is_flag=True, help="Print the body alone, byte for byte as it is sent.")
@as_json
def show(event_id: str, body: bool, json_: bool) -> None:
    """Show an event, and what has become of it at each endpoint that wanted it."""
    found = parts.views().event(event_id)
    if body:
        click.echo(_body(event_id), nl=False)
        return
    ways = parts.views().of_event(event_id)
    if json_:
        print_json({**asdict(found), "deliveries": [asdict(way) for way in ways]})
        return
    facts = {name.replace("_", " "): value for name, value in asdict(found).items() if name != "unmatched"}
    facts["body bytes"] = "pruned" if found.body_bytes is None else found.body_bytes
    print_facts(facts)
    if found.unmatched:
        click.echo(f"no endpoint of {found.merchant_id} wanted it: it ended at once; see: webhooks endpoint list")
    rows = [(way.id, way.endpoint_id, way.standing(), way.attempts) for way in ways]
    print_table(f"{len(rows)} deliveries", ["delivery", "endpoint", "state", "attempts"], rows)


def _body(event_id: str) -> bytes:
    body = parts.views().body(event_id)
    if body is None:
        raise NotPossible(f"the body of {event_id} has been pruned")
    return body


@event.command("replay")
@click.argument("event_id", type=EventId())
@click.option("--endpoint", "endpoint_id", type=EndpointId(), help="To this one only.")
@click.option("--cancelled", is_flag=True, help="Also what an operator cancelled.")
@click.option("--why", required=True, help="The reason, for the audit.")
@as_json
def replay(event_id: str, endpoint_id: str | None, cancelled: bool, why: str, json_: bool) -> None:
    """Send an event again to all endpoints that had it, and to those that want it by now: same id, same bytes, paced.

    What is unfinished is left alone; it will be sent anyway.
    """
    came = deliveries.replay_event(operator(why), event_id, endpoint_id=endpoint_id, cancelled=cancelled)
    if json_:
        print_json(asdict(came))
    else:
        for verdict in came.resent:
            click.echo("; ".join(filter(None, (f"{verdict.delivery_id}: is being sent again", verdict.note))))
        for delivery_id in came.begun:
            click.echo(f"{delivery_id}: is being sent, for the first time")
        for verdict in came.left:
            click.echo(f"{verdict.delivery_id}: {verdict.refused}", err=True)
    if not came.resent and not came.begun:
        raise NotPossible(f"nothing of {event_id} is sent again")


@event.command("refused")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="As many at most.")
@click.option("--after", type=int, metavar="NUMBER", help="Go on behind the line with this id.")
@as_json
def refused(limit: int, after: int | None, json_: bool) -> None:
    """List events by task name that were refused, the latest first: their producers heard nothing."""
    page = parts.refusals().latest(limit, after)
    if json_:
        print_json([asdict(line) for line in page.items])
        return
    rows = [(line.at, line.event_id, line.merchant_id, line.type, line.task_id, line.why) for line in page.items]
    columns = ["when", "event", "merchant", "type", "message", "why"]
    print_table(f"{len(rows)} refused events", columns, rows)
    if page.next:
        click.echo(f"the next ones: --after {page.next}")
