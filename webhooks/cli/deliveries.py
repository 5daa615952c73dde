"""`webhooks delivery`: where each event is on its way, with every attempt."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from webhooks import parts
from webhooks.cli.output import as_json, in_words, print_facts, print_json, print_table
from webhooks.ledger.views import Wanted
from webhooks.model import Reason, State


class Moment(click.ParamType[datetime]):
    """A moment: `2026-01-31`, `2026-01-31T12:00`, UTC unless a zone is given."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Read ISO 8601."""
        try:
            moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is not a moment such as 2026-01-31 or 2026-01-31T12:00", param, ctx)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


@click.group()
def delivery() -> None:
    """Look at deliveries."""


@delivery.command("list")
@click.option("--merchant", "merchant_id", help="Only this merchant's.")
@click.option("--state", type=click.Choice([state.value for state in State]))
@click.option("--reason", type=click.Choice([reason.value for reason in Reason]), help="Only failed for this reason.")
@click.option("--type", "type_", help="Only events of this type.")
@click.option("--since", type=Moment(), help="Accepted at this moment or later.")
@click.option("--until", type=Moment(), help="Accepted before this moment.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@as_json
def list_(
    merchant_id: str | None,
    state: str | None,
    reason: str | None,
    type_: str | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    json_: bool,
) -> None:
    """List deliveries, the newest first."""
    wanted = Wanted(
        merchant_id, State(state) if state else None, Reason(reason) if reason else None, type_, since, until
    )
    found = parts.views().deliveries(wanted, limit)
    if json_:
        print_json(found)
        return
    rows = [
        (item["id"], item["merchant_id"], item["type"], _standing(item), item["attempts"], item["accepted_at"])
        for item in found
    ]
    print_table(f"{len(rows)} deliveries", ["delivery", "merchant", "type", "state", "attempts", "accepted"], rows)


@delivery.command("show")
@click.argument("delivery_id")
@as_json
def show(delivery_id: str, json_: bool) -> None:
    """Show one delivery, with all its attempts."""
    found = parts.views().delivery(delivery_id)
    if json_:
        print_json(found)
        return
    journey = found.pop("journey")
    print_facts({**{name.replace("_", " "): value for name, value in found.items()}, "state": _standing(found)})
    print_table(
        f"{len(journey)} attempts",
        ["attempt", "started", "took", "outcome", "status", "cause", "ladder", "probe", "answer"],
        [
            (
                step["number"],
                step["started_at"],
                None if step["duration_ms"] is None else f"{step['duration_ms']} ms",
                step["outcome"],
                step["status"],
                step["cause"],
                step["ladder"],
                step["probe"],
                step["excerpt"],
            )
            for step in journey
        ],
    )


def _standing(item: dict[str, Any] | Any) -> str:
    """Say a delivery's state with what it waits for."""
    match item["state"]:
        case State.FAILED:
            return f"failed: {item['reason']}"
        case State.HELD:
            return f"held for {item['held_for']}"
        case State.PENDING if item["sending_since"]:
            return "pending: being sent"
        case State.PENDING:
            wait = item["due_at"] - datetime.now(UTC)
            return f"pending: due in {in_words(wait)}" if wait.total_seconds() > 0 else "pending: due"
        case state:
            return str(state)
