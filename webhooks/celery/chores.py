"""The Celery tasks that beat sends: `webhooks.sweep` and `webhooks.prune`."""

from __future__ import annotations

import time
from datetime import timedelta

from webhooks import parts, watching
from webhooks.celery.app import PRUNE, TICK, app
from webhooks.errors import LedgerFault, Unavailable
from webhooks.observing import facts, surroundings
from webhooks.settings import get_settings

_PRUNING_S = 10.0  # a minute: the sweep waits behind it, and must not seem to stand still


@app.task(name=TICK, send_events=False)  # type: ignore[untyped-decorator]
def sweep() -> None:
    """Do one tick of the sweep; see `webhooks.sweep`. Ticks that come in a burst cost one statement each.

    Once a minute a thread beside it tells operators what they are to know; see `webhooks.telling.teller`.
    """
    try:
        swept = parts.sweeper().tick(rest=get_settings().sweep_interval / 2)
    except Unavailable as error:
        _stopped(facts.SweepStopped(str(error), of_outage=error.told_once))
    except LedgerFault as error:
        _stopped(facts.SweepStopped(str(error), for_good=True))
    else:
        if swept.took:  # no other was at it
            watching.latest_sweeps().keep(swept)
    watching.teller().nudge()


def _stopped(fact: facts.SweepStopped) -> None:
    watching.latest_sweeps().keep(fact)
    parts.observers().tell(fact)


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
        watching.tallying().tally()
    except (Unavailable, LedgerFault) as error:
        parts.observers().tell(surroundings.TallyStopped(str(error)))
