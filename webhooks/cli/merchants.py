"""`webhooks merchant`: who receives webhooks, and where."""

from __future__ import annotations

import secrets
import sys
from dataclasses import asdict

import click

from webhooks import parts
from webhooks.cli.output import as_json, print_facts, print_json, print_table
from webhooks.errors import NotPossible
from webhooks.model import Merchant
from webhooks.wire.addresses import check_url


@click.group()
def merchant() -> None:
    """Register merchants and their addresses."""


@merchant.command("set")
@click.argument("merchant_id")
@click.option("--url", help="The address that receives the POSTs; https://…")
@click.option("--no-url", is_flag=True, help="Take the address away: deliveries are held until there is one.")
@click.option("--secret", help="The signing secret; '-' reads it from standard input, which leaves no trace.")
@click.option("--generate-secret", is_flag=True, help="Make a secret and print it, this once.")
@as_json
def set_(
    merchant_id: str, url: str | None, no_url: bool, secret: str | None, generate_secret: bool, json_: bool
) -> None:
    """Register a merchant, or change its address or secret. A new address starts its breaker afresh."""
    if not (url or no_url or secret or generate_secret):
        raise NotPossible("nothing to set; give --url, --no-url, --secret or --generate-secret")
    if (url and no_url) or (secret and generate_secret):
        raise NotPossible("--url and --no-url, and --secret and --generate-secret, exclude each other")
    if url:
        rules = parts.sending_rules()
        check_url(url, allow_http=rules.allow_http, guard=rules.guard)
    made = secrets.token_urlsafe(32) if generate_secret else None
    registered = parts.merchants().set(merchant_id, url=url, secret=made or _given(secret))
    if no_url:
        registered = parts.merchants().clear_url(merchant_id)
    if url:
        parts.gate().reset(merchant_id)
    _print(registered, json_, **({"secret": made} if made else {}))


def _given(secret: str | None) -> str | None:
    text = sys.stdin.readline().strip() if secret == "-" else secret  # noqa: S105
    if text is not None and not text:
        raise NotPossible("the secret is empty")
    return text


@merchant.command("list")
@as_json
def list_(json_: bool) -> None:
    """List the registered merchants."""
    found = parts.merchants().all()
    if json_:
        print_json([asdict(item) for item in found])
        return
    rows = [(item.id, item.url, item.has_secret, item.updated_at) for item in found]
    print_table(f"{len(rows)} merchants", ["merchant", "address", "secret", "changed"], rows)


@merchant.command("show")
@click.argument("merchant_id")
@as_json
def show(merchant_id: str, json_: bool) -> None:
    """Show one merchant, and how many of its deliveries are held."""
    held = parts.views().count_held(merchant_id)
    _print(parts.merchants().get(merchant_id), json_, held=held if json_ else _listed(held))


def _listed(held: dict[str, int]) -> str:
    return ", ".join(f"{count} for {what}" for what, count in held.items()) or "none"


def _print(found: Merchant, json_: bool, **more: object) -> None:
    facts = {**asdict(found), **more}
    if json_:
        print_json(facts)
    else:
        print_facts({name.replace("_", " "): value for name, value in facts.items()})
