"""What accepting needs of the others."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from webhooks.accepting.reading import Event
from webhooks.model import Message


class Ledger(Protocol):
    """Where an event is recorded. Everything raises LedgerUnavailable or LedgerFault."""

    def record_many(self, events: Sequence[Event], *, wait: timedelta, queued: bool) -> Sequence[Message]:
        """Record events, all or none, due after `wait`; return their messages, to be published right away if `queued`.

        There is none for an event that is known. Raises EventConflict.
        """

    def is_of(self, event_id: str, merchant_id: str, event_type: str) -> bool:
        """Whether an event of this id was ever accepted, of this merchant and type."""


class Publisher(Protocol):
    """The way to the broker. It raises nothing: what it doesn't publish, the sweep does."""

    def may_try(self) -> bool:
        """Whether publishing makes sense now."""

    def publish_all(self, messages: Sequence[Message], wait: timedelta) -> int:
        """Publish, to be looked at after `wait`. Returns how many the broker has."""
