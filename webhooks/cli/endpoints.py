"""`webhooks endpoint`: a merchant's several addresses, each with a secret, headers, filter and limits of its own."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from webhooks import parts
from webhooks.cli import changing, looks
from webhooks.cli.changing import why_option
from webhooks.cli.choosing import paged
from webhooks.cli.names import MerchantId, endpoint_argument, merchant_argument
from webhooks.cli.output import as_json, print_facts, print_json, print_table
from webhooks.errors import NotPossible
from webhooks.operating import endpoints, looking, pinging
from webhooks.operating.pinging import Pinged
from webhooks.operating.terminal import operator
from webhooks.wire.deadline import Phase


@click.group()
def endpoint() -> None:
    """Send a merchant's events to several addresses. The default endpoint has its merchant's id."""


@endpoint.command("add")
@merchant_argument
@click.option("--id", "endpoint_id", help="Such as ep_backup; by default one is made.")
@changing.changing
@as_json
def add(merchant_id: str, endpoint_id: str | None, why: str | None, json_: bool, **options: Any) -> None:
    """Add an endpoint to a merchant: events that are accepted from now on go there as well."""
    chosen = endpoints.new_id() if endpoint_id is None else endpoint_id
    changes, made = changing.wish(chosen, **options)
    with changing.telling_the_secret(chosen, made, json_):
        changing.conclude(endpoints.add(operator(why), merchant_id, chosen, changes), made, json_)


@endpoint.command("set")
@endpoint_argument
@changing.changing
@as_json
def set_(endpoint_id: str, why: str | None, json_: bool, **options: Any) -> None:
    """Change an endpoint. A new address starts its breaker afresh; a new secret counts at once.

    To replace a secret that is in use, see rotate-secret.
    """
    changes, made = changing.wish(endpoint_id, **options)
    with changing.telling_the_secret(endpoint_id, made, json_):
        changing.conclude(endpoints.change(operator(why), endpoint_id, changes), made, json_)


@endpoint.command("rotate-secret")
@endpoint_argument
@changing.rotating
@as_json
def rotate_secret(endpoint_id: str, **options: Any) -> None:
    """Replace an endpoint's secret, as webhooks merchant rotate-secret does that of the default one."""
    changing.rotate(endpoint_id, **options)


@endpoint.command("pause")
@endpoint_argument
@why_option
@as_json
def pause(endpoint_id: str, why: str | None, json_: bool) -> None:
    """Hold an endpoint's deliveries, fresh ones and retries, until it is resumed; its merchant's others go on."""
    changing.show(endpoints.pause(operator(why), endpoint_id, paused=True), json_)


@endpoint.command("resume")
@endpoint_argument
@why_option
@as_json
def resume(endpoint_id: str, why: str | None, json_: bool) -> None:
    """Let a paused endpoint's deliveries go again, paced, oldest first."""
    changing.show(endpoints.pause(operator(why), endpoint_id, paused=False), json_)


@endpoint.command("remove")
@endpoint_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@why_option
@as_json
def remove(endpoint_id: str, yes: bool, why: str | None, json_: bool) -> None:
    """Take an endpoint away for good; its unfinished deliveries end as cancelled.

    What is being sent at this moment may still arrive, within the deadline of one attempt. Its id is not used again,
    unless it is a merchant's: webhooks merchant set registers that anew.
    """
    going = endpoints.count_going(endpoint_id)
    if not yes:
        ends = f"{going} unfinished deliveries of it end as cancelled, and nothing goes there any more"
        _ask(f"Remove {endpoint_id}? {ends}")
    removed = endpoints.remove(operator(why), endpoint_id)
    if json_:
        print_json(asdict(removed))
    else:
        click.echo(f"{endpoint_id} is removed; {removed.cancelled} deliveries ended as cancelled")


def _ask(question: str) -> None:
    """Raise NotPossible unless a person says yes."""
    try:
        said = click.confirm(question, err=True)
    except click.Abort:  # there is nobody to ask
        said = False
        click.echo(err=True)
    if not said:
        raise NotPossible("nothing was removed; to go on without a question: --yes")


@endpoint.command("ping")
@endpoint_argument
@why_option
@as_json
def ping(endpoint_id: str, why: str | None, json_: bool) -> None:
    """Send an endpoint a signed test event now, and say how far it got: exit 0 only where it was answered 2xx.

    It is no delivery: nothing is tried again, no breaker moves, and neither a breaker nor a pause keeps it. The
    merchant gets an event of type webhooks.ping with a fresh id.
    """
    pinged = pinging.ping(operator(why), endpoint_id)
    if json_:
        print_json({**asdict(pinged), "took": pinged.took})
    else:
        _print_pinged(pinged)
    click.get_current_context().exit(0 if pinged.fine else 1)


_PHASES = {
    Phase.DNS: "name",
    Phase.CONNECT: "connecting",
    Phase.TLS: "TLS",
    Phase.SENDING: "sending",
    Phase.HEADERS: "waiting for the answer",
    Phase.BODY: "reading the rest",
}


def _print_pinged(pinged: Pinged) -> None:
    facts = {
        "endpoint": pinged.endpoint_id,
        "address": pinged.origin,
        "led to": ", ".join(pinged.addresses) or None,
        "event": pinged.event_id,
        **{_PHASES[phase]: span for phase, span in pinged.phases.items()},
        "in all": pinged.took,
    }
    print_facts(facts)
    click.echo(f"{'fine' if pinged.fine else 'NOT FINE'}: {pinged.found}")
    if pinged.excerpt:
        click.echo(f"its answer begins: {pinged.excerpt}")
    if pinged.advice:
        click.echo(f"what to do: {pinged.advice}")


@endpoint.command("list")
@click.option("--merchant", "merchant_id", type=MerchantId(), help="Only this merchant's.")
@paged("ID", usual=200)
@as_json
def list_(merchant_id: str | None, limit: int, after: str | None, json_: bool) -> None:
    """List endpoints, default ones and others."""
    page = parts.endpoints().some(limit, after, merchant_id)
    if json_:
        print_json([asdict(item) for item in page.items])
        return
    rows = [
        (
            item.id,
            item.merchant_id,
            item.url,
            ", ".join(item.types) if item.types else "all",
            item.lane,
            item.rate,
            item.paused_at is not None,
            item.note,
        )
        for item in page.items
    ]
    columns = ["endpoint", "merchant", "address", "types", "lane", "rate", "paused", "note"]
    print_table(f"the next {limit} endpoints" if page.next else f"{len(rows)} endpoints", columns, rows)
    if page.next:
        click.echo(f"the next ones: --after {page.next}")


@endpoint.command("show")
@endpoint_argument
@as_json
def show(endpoint_id: str, json_: bool) -> None:
    """Show one endpoint: its breaker, how it has answered of late, what it holds and what failed.

    Secrets and values of headers are never shown.
    """
    look = looking.endpoint(endpoint_id)
    if json_:
        how = {"breaker": looks.breaker_as_json(look), **looks.as_json(look.performance)}
        print_json({**asdict(look.endpoint), **how, "last_answers": looks.last_as_json(look)})
        return
    changing.show(look.endpoint, json_, breaker=looks.breaker_of(look), **looks.in_lines(look.performance))
    looks.print_last(look)
