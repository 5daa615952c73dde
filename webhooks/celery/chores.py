"""The Celery tasks that beat sends: `webhooks.sweep` and `webhooks.prune`."""

from __future__ import annotations

import time
from datetime import timedelta

from webhooks import parts
from webhooks.celery.app import PRUNE, TICK, app
from webhooks.errors import LedgerFault, Unavailable
from webhooks.observing import facts, surroundings
from webhooks.settings import get_settings

_PRUNING_S = 10.0  # a minute: the sweep waits behind it, and must not seem to stand still


@app.task(name=TICK, send_events=False)  # type: ignore[untyped-decorator]
def sweep() -> None:
    """Do one tick of the sweep; see `webhooks.sweep`. Ticks that come in a burst cost one statement each."""
    try:
        parts.sweeper().tick(rest=get_settings().sweep_interval / 2)
    except Unavailable as error:
        parts.observers().tell(facts.SweepStopped(str(error), of_outage=error.told_once))
    except LedgerFault as error:
        parts.observers().tell(facts.SweepStopped(str(error), for_good=True))


@app.task(name=PRUNE, send_events=False)  # type: ignore[untyped-decorator]
def prune() -> None:
    """Count the minutes that are over; forget bodies and attempts of long finished deliveries, in small batches."""
    _tally()
    began_s, number = time.monotonic(), 0
    try:
        while (more := parts.pruning().prune()) and time.monotonic() < began_s + _PRUNING_S:
            number += more
    except (Unavailable, LedgerFault) as error:
        parts.observers().tell(facts.PruningStopped(str(error)))
    else:
        took = timedelta(seconds=time.monotonic() - began_s)
        parts.observers().tell(facts.Pruned(number + more, took))


def _tally() -> None:
    try:
        parts.tallying().tally()
    except (Unavailable, LedgerFault) as error:
        parts.observers().tell(surroundings.TallyStopped(str(error)))
