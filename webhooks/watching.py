"""What looks on beside the deliveries: what a minute brought, what the sweep did last, who is to be told what.

As with `webhooks.parts`, what a part is made of is loaded with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhooks import parts
from webhooks.common import database, observers
from webhooks.process.once import once
from webhooks.settings import get_settings

if TYPE_CHECKING:
    from webhooks.ledger.notices import Notices
    from webhooks.ledger.tallying import Tallying
    from webhooks.observing.latest import Latest
    from webhooks.telling.recipients import Recipient
    from webhooks.telling.teller import Teller


@once
def tallying() -> Tallying:
    """Return what counts the minutes."""
    from webhooks.ledger.tallying import Tallying

    return Tallying(database())


@once
def latest_sweeps() -> Latest:
    """Return what this process's sweep did last."""
    from webhooks.observing.latest import Latest

    return Latest()


@once
def notices() -> Notices:
    """Return what operators are told without having asked."""
    from webhooks.ledger.notices import Notices

    return Notices(database())


@once
def notice_recipients() -> tuple[Recipient, ...]:
    """Return whom that goes to. Raises SettingsError for one that cannot be used."""
    from webhooks.telling import recipients

    return recipients.chosen(get_settings(), parts.sending_rules(), parts.sender)


@once
def teller() -> Teller:
    """Return what tells them."""
    from webhooks.ledger.leases import Lease
    from webhooks.ledger.noticing import Noticing
    from webhooks.telling.teller import TELLING, Teller, TellingRules

    settings = get_settings()
    rules = TellingRules(settings.notice_after, settings.notices_per_hour, keep=settings.keep_failed)
    lease = Lease(database(), TELLING)
    return Teller(lease, Noticing(database()), lambda: parts.gate().list(), notice_recipients(), rules, observers())
