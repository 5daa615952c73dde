"""The Celery tasks that beat sends: `webhooks.sweep` and `webhooks.prune`."""

from __future__ import annotations

import logging
import time

from webhooks import parts
from webhooks.celery.app import app
from webhooks.errors import LedgerFault, Unavailable
from webhooks.settings import get_settings

log = logging.getLogger(__name__)

_PRUNING_S = 10.0  # a minute: the sweep waits behind it, and must not seem to stand still


@app.task(name="webhooks.sweep", send_events=False)  # type: ignore[untyped-decorator]
def sweep() -> None:
    """Do one tick of the sweep; see `webhooks.sweep`. Ticks that come in a burst cost one statement each."""
    try:
        parts.sweeper().tick(rest=get_settings().sweep_interval / 2)
    except Unavailable as error:
        if not error.told_once:
            log.warning("sweep: %s; the next tick tries again", error)
    except LedgerFault as error:
        log.error("sweep: %s; what it was about stands still until that is mended", error)  # noqa: TRY400


@app.task(name="webhooks.prune", send_events=False)  # type: ignore[untyped-decorator]
def prune() -> None:
    """Forget the bodies and attempts of long finished deliveries, in small batches."""
    ends_s = time.monotonic() + _PRUNING_S
    try:
        while parts.pruning().prune() and time.monotonic() < ends_s:
            pass
    except (Unavailable, LedgerFault) as error:
        log.warning("prune: %s; it is tried again in a minute", error)
