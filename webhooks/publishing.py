"""Putting messages on the broker. A message is a convenience: when none can be published, the ledger is told."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from webhooks.errors import BrokerUnavailable, LedgerFault, LedgerUnavailable
from webhooks.ledger.ledger import Ledger
from webhooks.model import Message
from webhooks.observing import facts, surroundings
from webhooks.observing.observers import NOBODY, Observers
from webhooks.observing.outage import Outage


class Publisher:
    """Publishes messages by `send`, which raises BrokerUnavailable."""

    def __init__(
        self, send: Callable[[Message, timedelta], None], ledger: Ledger, observers: Observers = NOBODY
    ) -> None:
        self._send = send
        self._ledger = ledger
        self._observers = observers
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
                self._observers.tell(facts.BrokerAway(facts.BrokerUser.PUBLISHER, str(error)))
            self._note_unpublished(message)
            return False
        if self._outage.worked():
            self._observers.tell(facts.BrokerBack(facts.BrokerUser.PUBLISHER))
        return True

    def _note_unpublished(self, message: Message) -> None:
        try:
            self._ledger.unqueue(message.id, message.turn)
        except (LedgerUnavailable, LedgerFault):
            # The row still says that it was published; the sweep finds out when it is well past its due time.
            self._observers.tell(surroundings.MessageUnpublished(message.id))
