"""What became of deliveries that were named, one line for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click

from webhooks.cli.output import print_json
from webhooks.ledger.replays import Verdict
from webhooks.operating import deliveries


def conclude(what: str, verdicts: Sequence[Verdict], json_: bool) -> None:
    """Print what became of each delivery, and exit 1 when one was refused."""
    if json_:
        print_json([asdict(verdict) for verdict in verdicts])
    else:
        for verdict in verdicts:
            told = verdict.refused or "; ".join(filter(None, (what, verdict.note)))
            click.echo(f"{verdict.delivery_id}: {told}", err=verdict.refused is not None)
    if len(deliveries.done(verdicts)) < len(verdicts):
        click.get_current_context().exit(1)
