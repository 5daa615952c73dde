"""Putting messages on the broker. A message is a convenience: when none can be published, the ledger is told."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta

from webhooks.errors import BrokerUnavailable, LedgerFault, LedgerUnavailable
from webhooks.ledger.ledger import Ledger
from webhooks.model import Message
from webhooks.process.outage import Outage

log = logging.getLogger(__name__)


class Publisher:
    """Publishes messages by `send`, which raises BrokerUnavailable."""

    def __init__(self, send: Callable[[Message, timedelta], None], ledger: Ledger) -> None:
        self._send = send
        self._ledger = ledger
        self._outage = Outage()

    def may_try(self) -> bool:
        """Whether publishing makes sense now; when not, record the delivery as not queued and leave it to the sweep."""
        return self._outage.may_try()

    def publish(self, message: Message, wait: timedelta = timedelta()) -> bool:
        """Publish, to be looked at after `wait`. Returns whether the broker has it; if not, the sweep will publish."""
        try:
            self._send(message, wait)
        except BrokerUnavailable as error:
            if self._outage.failed():
                log.warning("broker.away: deliveries are recorded, and published once it is back: %s", error)
            self._note_unpublished(message)
            return False
        if self._outage.worked():
            log.warning("broker.back: messages are published again")
        return True

    def _note_unpublished(self, message: Message) -> None:
        try:
            self._ledger.unqueue(message.id, message.turn)
        except (LedgerUnavailable, LedgerFault):
            # The row still says that it was published; the sweep finds out when it is well past its due time.
            log.warning("delivery %s: the ledger could not be told that no message is on its way", message.id)
