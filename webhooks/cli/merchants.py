"""`webhooks merchant`: who receives webhooks, where, and signed with what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

import click

from webhooks import parts
from webhooks.cli import changing, looks
from webhooks.cli.changing import why_option
from webhooks.cli.choosing import paged
from webhooks.cli.names import merchant_argument
from webhooks.cli.output import as_json, print_json, print_table
from webhooks.ledger.endpoints import unknown
from webhooks.model import Endpoint
from webhooks.operating import endpoints, looking
from webhooks.operating.terminal import operator


@click.group()
def merchant() -> None:
    """Register merchants, their addresses and secrets; pause them. Further addresses of one: webhooks endpoint."""


@merchant.command("set")
@merchant_argument
@changing.changing
@as_json
def set_(merchant_id: str, why: str | None, json_: bool, **options: Any) -> None:
    """Register a merchant, or change it. A new address starts its breaker afresh; a new secret counts at once.

    To replace a secret that is in use, see rotate-secret.
    """
    changes, made = changing.wish(merchant_id, **options)
    with changing.telling_the_secret(merchant_id, made, json_):
        placed = endpoints.set_merchant(operator(why), merchant_id, changes)
        changing.conclude(placed, made, json_)


@merchant.command("rotate-secret")
@merchant_argument
@changing.rotating
@as_json
def rotate_secret(merchant_id: str, **options: Any) -> None:
    """Replace a merchant's secret by a given one or (the default) a new one; during the overlap either verifies.

    Until the overlap ends, X-Webhook-Signature is made with the previous secret and X-Webhook-Signature-Next with the
    new one; from then on X-Webhook-Signature with the new one. Retries and held deliveries are signed when they are
    sent. During an overlap only --finish and --overlap 0, which replaces both secrets at once, are possible.
    """
    changing.rotate(merchant_id, **options)


@merchant.command("pause")
@merchant_argument
@why_option
@as_json
def pause(merchant_id: str, why: str | None, json_: bool) -> None:
    """Hold all of a merchant's deliveries, fresh ones and retries, until it is resumed; at all of its endpoints.

    What is being sent at this moment may still arrive, within the deadline of one attempt.
    """
    _pause(merchant_id, why, json_, paused=True)


@merchant.command("resume")
@merchant_argument
@why_option
@as_json
def resume(merchant_id: str, why: str | None, json_: bool) -> None:
    """Let a paused merchant's deliveries go again, paced, oldest first; at all of its endpoints."""
    _pause(merchant_id, why, json_, paused=False)


def _pause(merchant_id: str, why: str | None, json_: bool, *, paused: bool) -> None:
    changed = endpoints.pause_merchant(operator(why), merchant_id, paused=paused)
    changing.facts(_told(merchant_id, changed), json_)


def _told(merchant_id: str, found: Sequence[Endpoint]) -> dict[str, object]:
    """Tell a merchant's default endpoint, in facts, and the ids of its others, where it has any."""
    nothing = dict.fromkeys(field.name for field in fields(Endpoint))
    default = next((asdict(each) for each in found if each.id == merchant_id), nothing)
    others = _others(merchant_id, found)
    return {**default, "id": merchant_id, "merchant_id": merchant_id, **({"endpoints": others} if others else {})}


def _others(merchant_id: str, found: Sequence[Endpoint]) -> list[str]:
    return [each.id for each in found if each.id != merchant_id]


@merchant.command("list")
@paged("MERCHANT", usual=200)
@as_json
def list_(limit: int, after: str | None, json_: bool) -> None:
    """List the registered merchants, and behind the last of them those that hold deliveries and are not registered."""
    page = parts.endpoints().of_some(limit, after)
    merchants = {found[0].merchant_id: found for found in page.items}
    strangers = [] if page.next else parts.views().unregistered()
    if json_:
        registered = [{**_told(*each), "registered": True} for each in merchants.items()]
        known = {each.merchant_id for each in parts.endpoints().of(*strangers)}
        others = [{**_told(each, []), "registered": False} for each in strangers if each not in known]
        print_json([*registered, *others])
        return
    told = [(_told(*each), _paused(each[1])) for each in merchants.items()]
    rows = [(each["id"], each["url"], each["has_secret"], paused, each["updated_at"]) for each, paused in told]
    title = f"the next {limit} merchants" if page.next else f"{len(rows)} merchants"
    print_table(title, ["merchant", "address", "secret", "paused", "changed"], rows)
    for merchant_id, further in ((each, _others(each, found)) for each, found in merchants.items()):
        if further:
            click.echo(f"{merchant_id} has further endpoints: {', '.join(further)}")
    if strangers:
        click.echo(f"not registered, though deliveries are held for them: {', '.join(strangers)}")
    if page.next:
        click.echo(f"the next ones: --after {page.next}")


def _paused(found: Sequence[Endpoint]) -> bool | str:
    """Say whether a merchant is paused, which some of its endpoints may be alone."""
    paused = {each.paused_at is not None for each in found}
    return "partly" if len(paused) > 1 else True in paused


@merchant.command("show")
@merchant_argument
@as_json
def show(merchant_id: str, json_: bool) -> None:
    """Show one merchant: how its endpoints have answered of late, their breakers, what they hold and what failed."""
    performance, each = looking.merchant(merchant_id)
    if not each:
        raise unknown(merchant_id, held=sum(parts.views().count_held(merchant_id).values()))
    told = _told(merchant_id, [look.endpoint for look in each])
    default = next((look for look in each if look.endpoint.id == merchant_id), None)
    if json_:
        of_endpoints = {"of_endpoints": looks.each_as_json(each)} if "endpoints" in told else {}
        how = {"breaker": default and looks.breaker_as_json(default), **looks.as_json(performance)}
        print_json({**told, **how, "last_answers": looks.last_as_json(default), **of_endpoints})
        return
    lines = {"breaker": default and looks.breaker_of(default), **looks.in_lines(performance)}
    changing.facts({**told, **lines}, json_)
    if "endpoints" in told:
        looks.print_each(each)
    elif default:
        looks.print_last(default)
