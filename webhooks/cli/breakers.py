"""`webhooks breaker`: which merchants are left in peace, and since when."""

from __future__ import annotations

from dataclasses import asdict

import click

from webhooks import parts
from webhooks.cli.names import merchant_argument
from webhooks.cli.output import as_json, print_facts, print_json, print_table


@click.group()
def breaker() -> None:
    """Look at breakers, and reset them."""


@breaker.command("list")
@as_json
def list_(json_: bool) -> None:
    """List the merchants whose breaker has something to say."""
    found = parts.gate().list()
    if json_:
        print_json([{**asdict(item), "merchant_id": item.endpoint_id} for item in found])
        return
    rows = [(item.endpoint_id, item.state, item.successes, item.failures, item.until, item.in_flight) for item in found]
    print_table(f"{len(rows)} breakers", ["merchant", "state", "answered", "failed", "paused until", "in flight"], rows)


@breaker.command("show")
@merchant_argument
@as_json
def show(merchant_id: str, json_: bool) -> None:
    """Show one merchant's breaker, and how many of its deliveries are held."""
    facts = {
        "merchant_id": merchant_id,
        **asdict(parts.gate().show(merchant_id)),
        "held": parts.views().holding(merchant_id).number,
    }
    if json_:
        print_json(facts)
    else:
        print_facts({name.replace("_", " "): value for name, value in facts.items()})


@breaker.command("reset")
@merchant_argument
@click.option("--why", help="Kept in the operators' record.")
@as_json
def reset(merchant_id: str, why: str | None, json_: bool) -> None:
    """Close a merchant's breaker and release what it holds, at once."""
    held = parts.views().holding(merchant_id)  # before they go
    with parts.act(f"the breaker of {merchant_id} was reset", f"webhooks breaker show {merchant_id}") as act:
        act.note(f"breaker reset of {merchant_id}", why=why)
        parts.gate().reset(merchant_id)  # last, so that nothing is reset without its line
    released = 0 if held.stay_for else held.number
    if json_:
        facts = {"held": held.number, "released": released, "stay_for": held.stay_for}
        print_json({"merchant_id": merchant_id, "state": "working", **facts})
    else:
        stay = f"; {held.number} stay held for {held.stay_for}" if held.stay_for and held.number else ""
        click.echo(f"{merchant_id}: working; {released} held deliveries are being released{stay}")
