"""What looks on beside the deliveries: how much there is, what waits, what a minute brought, what a sweep did."""

from __future__ import annotations

from webhooks.common import database
from webhooks.ledger.delays import Delays
from webhooks.ledger.gauging import Gauging
from webhooks.ledger.tallying import Tallying
from webhooks.observing.latest import Latest
from webhooks.process.once import once
from webhooks.settings import get_settings


@once
def delays() -> Delays:
    """Return what tells what waits, and since when."""
    return Delays(database())


@once
def gauging() -> Gauging:
    """Return the ledger as it is measured."""
    return Gauging(database(), recover_after=get_settings().recover_after)


@once
def tallying() -> Tallying:
    """Return what counts the minutes."""
    return Tallying(database())


@once
def latest_sweeps() -> Latest:
    """Return what this process's sweep did last."""
    return Latest()
