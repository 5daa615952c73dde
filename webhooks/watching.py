"""What looks on beside the deliveries: what a minute brought, what the sweep did last, who is to be told what."""

from __future__ import annotations

from webhooks import parts
from webhooks.common import database, observers
from webhooks.ledger.leases import Lease
from webhooks.ledger.notices import Notices
from webhooks.ledger.noticing import Noticing
from webhooks.ledger.tallying import Tallying
from webhooks.observing.latest import Latest
from webhooks.process.once import once
from webhooks.settings import get_settings
from webhooks.telling import recipients
from webhooks.telling.recipients import Recipient
from webhooks.telling.teller import TELLING, Teller, TellingRules


@once
def tallying() -> Tallying:
    """Return what counts the minutes."""
    return Tallying(database())


@once
def latest_sweeps() -> Latest:
    """Return what this process's sweep did last."""
    return Latest()


@once
def notices() -> Notices:
    """Return what operators are told without having asked."""
    return Notices(database())


@once
def notice_recipients() -> tuple[Recipient, ...]:
    """Return whom that goes to. Raises SettingsError for one that cannot be used."""
    return recipients.chosen(get_settings(), parts.sending_rules(), parts.sender)


@once
def teller() -> Teller:
    """Return what tells them."""
    settings = get_settings()
    rules = TellingRules(settings.notice_after, settings.notices_per_hour, keep=settings.keep_failed)
    lease = Lease(database(), TELLING)
    return Teller(lease, Noticing(database()), lambda: parts.gate().list(), notice_recipients(), rules, observers())
