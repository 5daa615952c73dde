"""Putting messages on the broker. A message is a convenience: when none can be published, the ledger is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from webhooks.errors import BrokerUnavailable, LedgerFault, LedgerUnavailable
from webhooks.ledger.ledger import Ledger
from webhooks.model import Message
from webhooks.observing import facts, surroundings
from webhooks.observing.observers import NOBODY, Observers
from webhooks.observing.outage import Outage

Send = Callable[[Sequence[Message], timedelta], None]

AT_ONCE = 500
"""How many messages go in one round trip."""


class Publisher:
    """Publishes messages by `send`, several in one round trip; it raises BrokerUnavailable."""

    def __init__(self, send: Send, ledger: Ledger, observers: Observers = NOBODY) -> None:
        self._send = send
        self._ledger = ledger
        self._observers = observers
        self._outage = Outage()

    def may_try(self) -> bool:
        """Whether publishing makes sense now; when not, record the delivery as not queued and leave it to the sweep."""
        return self._outage.may_try()

    def publish(self, message: Message, wait: timedelta = timedelta()) -> bool:
        """Publish, to be looked at after `wait`. Returns whether the broker has it; if not, the sweep will publish."""
        return self.publish_all([message], wait) == 1

    def publish_all(self, messages: Sequence[Message], wait: timedelta = timedelta()) -> int:
        """Publish several, in their order. Returns how many the broker has; the others the sweep will publish."""
        for published in range(0, len(messages), AT_ONCE):
            try:
                self._send(messages[published : published + AT_ONCE], wait)
            except BrokerUnavailable as error:
                if self._outage.failed():
                    self._observers.tell(facts.BrokerAway(facts.BrokerUser.PUBLISHER, str(error)))
                self._note_unpublished(messages[published:])
                return published
            if self._outage.worked():
                self._observers.tell(facts.BrokerBack(facts.BrokerUser.PUBLISHER))
        return len(messages)

    def _note_unpublished(self, messages: Sequence[Message]) -> None:
        try:
            self._ledger.unqueue_all(messages)
        except (LedgerUnavailable, LedgerFault):
            # The rows still say that they were published; the sweep finds out when they are well past their due time.
            self._observers.tell(surroundings.MessageUnpublished(messages[0].id, others=len(messages) - 1))
