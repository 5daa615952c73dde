"""Putting messages on the broker. A message is a convenience: when none can be published, the ledger is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta

from webhooks.errors import BrokerUnavailable, LedgerFault, LedgerUnavailable
from webhooks.ledger.ledger import Ledger
from webhooks.model import Message
from webhooks.observing import facts, surroundings
from webhooks.observing.observers import NOBODY, Observers
from webhooks.observing.outage import Outage

Send = Callable[[Message, timedelta], None]


class Publisher:
    """Publishes messages by `send`, and several by what `connected` gives; both raise BrokerUnavailable."""

    def __init__(
        self,
        send: Send,
        ledger: Ledger,
        connected: Callable[[], AbstractContextManager[Send]],
        observers: Observers = NOBODY,
    ) -> None:
        self._send = send
        self._connected = connected
        self._ledger = ledger
        self._observers = observers
        self._outage = Outage()

    def may_try(self) -> bool:
        """Whether publishing makes sense now; when not, record the delivery as not queued and leave it to the sweep."""
        return self._outage.may_try()

    def publish(self, message: Message, wait: timedelta = timedelta()) -> bool:
        """Publish, to be looked at after `wait`. Returns whether the broker has it; if not, the sweep will publish."""
        return self._published([message], wait, nullcontext(self._send)) == 1

    def publish_all(self, messages: Sequence[Message], wait: timedelta = timedelta()) -> int:
        """Publish several by one connection; those that the broker does not have, the sweep will publish.

        Returns how many it has, which are the first of them.
        """
        if not messages:
            return 0
        return self._published(messages, wait, self._connected() if len(messages) > 1 else nullcontext(self._send))

    def _published(self, messages: Sequence[Message], wait: timedelta, way: AbstractContextManager[Send]) -> int:
        published = 0
        try:
            with way as send:
                for message in messages:
                    send(message, wait)
                    published += 1
        except BrokerUnavailable as error:
            if self._outage.failed():
                self._observers.tell(facts.BrokerAway(facts.BrokerUser.PUBLISHER, str(error)))
            self._note_unpublished(messages[published:])
            return published
        if self._outage.worked():
            self._observers.tell(facts.BrokerBack(facts.BrokerUser.PUBLISHER))
        return published

    def _note_unpublished(self, messages: Sequence[Message]) -> None:
        try:
            self._ledger.unqueue_all(messages)
        except (LedgerUnavailable, LedgerFault):
            # The rows still say that they were published; the sweep finds out when they are well past their due time.
            self._observers.tell(surroundings.MessageUnpublished(messages[0].id, others=len(messages) - 1))
