"""`webhooks breaker`: which endpoints are left in peace, and since when."""

from __future__ import annotations

from dataclasses import asdict

import click

from webhooks import parts
from webhooks.cli.names import endpoint_argument
from webhooks.cli.output import as_json, print_facts, print_json, print_table
from webhooks.operating import breakers
from webhooks.operating.terminal import operator


@click.group()
def breaker() -> None:
    """Look at breakers, and reset them. A merchant's id names its default endpoint."""


@breaker.command("list")
@as_json
def list_(json_: bool) -> None:
    """List the endpoints whose breaker has something to say."""
    found = parts.gate().list()
    if json_:
        merchants = breakers.owners([item.endpoint_id for item in found])
        print_json([{**asdict(item), "merchant_id": merchants[item.endpoint_id]} for item in found])
        return
    rows = [(item.endpoint_id, item.state, item.successes, item.failures, item.until, item.in_flight) for item in found]
    print_table(f"{len(rows)} breakers", ["endpoint", "state", "answered", "failed", "paused until", "in flight"], rows)


@breaker.command("show")
@endpoint_argument
@as_json
def show(endpoint_id: str, json_: bool) -> None:
    """Show one endpoint's breaker, and how many of its deliveries are held."""
    found = breakers.show(endpoint_id)
    facts = {"merchant_id": found.merchant_id, **asdict(found.breaker), "held": found.held}
    if json_:
        print_json(facts)
    else:
        print_facts({name.replace("_", " "): value for name, value in facts.items()})


@breaker.command("reset")
@endpoint_argument
@click.option("--why", help="Kept in the operators' record.")
@as_json
def reset(endpoint_id: str, why: str | None, json_: bool) -> None:
    """Close an endpoint's breaker and release what it holds, at once."""
    done = breakers.reset(operator(why), endpoint_id)
    if json_:
        facts = {"held": done.held, "released": done.released, "stay_for": done.stay_for}
        merchant_id = breakers.owners([endpoint_id])[endpoint_id]
        print_json({"merchant_id": merchant_id, "endpoint_id": endpoint_id, "state": "working", **facts})
    else:
        stay = f"; {done.held} stay held for {done.stay_for}" if done.stay_for and done.held else ""
        click.echo(f"{endpoint_id}: working; {done.released} held deliveries are being released{stay}")
