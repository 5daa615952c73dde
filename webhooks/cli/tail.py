"""`webhooks tail`: attempts as they happen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime, timedelta
from time import sleep

import click

from webhooks import parts
from webhooks.cli.choosing import Moment
from webhooks.cli.interrupts import ending_well
from webhooks.cli.names import EndpointId, MerchantId
from webhooks.cli.output import as_json, print_json_line, words
from webhooks.errors import LedgerUnavailable
from webhooks.ledger.tailing import Followed, News, Tail

_EVERY_S = 0.5
_PATIENCE = timedelta(seconds=10)


@click.command()
@click.option("--merchant", "merchant_id", type=MerchantId(), help="Only this merchant's.")
@click.option("--endpoint", "endpoint_id", type=EndpointId(), help="Only those to this endpoint.")
@click.option("--failed", is_flag=True, help="Only what was not answered 2xx.")
@click.option("--since", type=Moment(), help="Begin with what was attempted since this moment (UTC), or for so long.")
@as_json
def tail(merchant_id: str | None, endpoint_id: str | None, failed: bool, since: datetime | None, json_: bool) -> None:
    """Tell attempts as they happen, a line for each, until Ctrl-C. With --json, an object a line.

    Each is told once, when it is written down: some half a second after its answer. While the ledger is away nothing
    is lost: it is told when it is back; what is written down more than two minutes after it began is not told
    otherwise. An attempt of unknown outcome is told again when its answer comes after all.
    """
    following = Tail(parts.database(), Followed(merchant_id, endpoint_id, failed), since)
    away = False
    with ending_well() as wished:
        while not wished.is_set():
            try:
                with parts.database().within(_PATIENCE):
                    _print(following.news(), json_)
                if away:
                    click.echo("webhooks: the ledger is back", err=True)
                away = False
            except LedgerUnavailable as error:
                if not away:
                    click.echo(f"webhooks: {error}; waiting for it", err=True)
                away = True
            sleep(_EVERY_S)


def _print(news: Iterable[News], json_: bool) -> None:
    for made in news:
        if json_:
            print_json_line({**asdict(made.attempt), **{name: getattr(made, name) for name in _OF_DELIVERY}})
        else:
            click.echo(_in_line(made))


_OF_DELIVERY = ("merchant_id", "endpoint_id", "type", "money")


def _in_line(made: News) -> str:
    attempt = made.attempt
    took = None if attempt.duration_ms is None else f"in {words(timedelta(milliseconds=attempt.duration_ms))}"
    status = None if attempt.status is None else str(attempt.status)
    what = " ".join(filter(None, (str(attempt.outcome), status, took)))
    whose = made.merchant_id if made.merchant_id == made.endpoint_id else f"{made.merchant_id} at {made.endpoint_id}"
    more = "".join(f", {each}" for each in (attempt.cause, "a probe" if attempt.probe else None) if each)
    what = f"attempt {attempt.number}: {what}{more}"
    return "  ".join((words(attempt.started_at), attempt.delivery_id, whose, made.type, what))
