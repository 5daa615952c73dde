"""`webhooks status`: how things stand, in one look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from webhooks import app, broker, parts
from webhooks.cli.output import as_json, print_facts, print_json, words
from webhooks.errors import Unavailable


@click.command()
@as_json
def status(json_: bool) -> None:
    """Say how many deliveries stand where, and whether ledger, broker and gate can be reached."""
    facts: dict[str, Any] = {
        "deliveries": _or_fault(lambda: parts.views().count_by_state()),
        "held for": _or_fault(lambda: parts.views().count_held()),
        "longest overdue": _or_fault(lambda: parts.views().longest_overdue()),
        "queued messages": _or_fault(lambda: broker.look_at_queue(app).depth),
        "breakers not working": _or_fault(_not_working),
    }
    if json_:
        print_json({name.replace(" ", "_"): value for name, value in facts.items()})
    else:
        print_facts({name: _in_line(value) for name, value in facts.items()})
    if any(isinstance(value, str) for value in facts.values()):
        click.get_current_context().exit(1)


def _not_working() -> dict[str, str]:
    return {item.merchant_id: item.state for item in parts.gate().list() if item.state != "working"}


def _or_fault(ask: Callable[[], Any]) -> Any:
    """Answer, or name the part that is away: the rest is worth knowing all the more."""
    try:
        return ask()
    except Unavailable as error:
        return str(error)


def _in_line(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{count} {name}" for name, count in value.items()) or "none"
    return words(value)
