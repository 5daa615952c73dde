"""Accepting an event: read, recorded, published. `delay`, `record` and a task's name are only faces of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from webhooks.accepting import batches, reading
from webhooks.accepting.bursts import MOST_AT_ONCE, Bursts
from webhooks.accepting.ports import Ledger, Publisher
from webhooks.accepting.reading import Event
from webhooks.errors import NotPossible
from webhooks.model import Message, event_of


@dataclass(frozen=True, slots=True)
class Accepting:
    """Accepts events. Whatever it raises, nothing was accepted; of many it says how many were all the same.

    `inside` records in the transaction that is open on somebody's connection. `max_age` is how old a delivery may get;
    a first attempt that is due within `ahead` has a message at once, and any other is left to the sweep. `bursts` tells
    whose events come in crowds: their messages may wait for others' single ones. `keys` are the fields of a body by
    which its event is found.
    """

    ledger: Ledger
    publisher: Publisher
    inside: Callable[[Any, Iterable[Sequence[Event]]], None]
    max_age: timedelta
    ahead: timedelta
    bursts: Bursts
    keys: Sequence[str] = ()

    def accept(self, given: object, *, wait: timedelta = timedelta()) -> str:
        """Accept an event, whose first attempt is due after `wait`; return its id once it is in the ledger.

        Raises InvalidEvent, EventConflict, NotPossible (a wait past the delivery's age), LedgerUnavailable or
        LedgerFault. A broker that is away is no error.
        """
        event = reading.read(given, self.keys)
        if wait >= self.max_age:
            raise NotPossible("countdown, eta: by then the delivery would have expired")
        # A longer countdown would lie in some worker's memory: it waits in the ledger.
        queued = wait <= self.ahead and self.publisher.may_try()
        messages = self.ledger.record_many([event], wait=wait, queued=queued)
        if queued:
            self.publisher.publish_all(self._ranked(messages), wait)
        return event.id

    def accept_many(self, given: object) -> list[str]:
        """Accept events, batch by batch, each as a whole; return their ids in the order in which they were given.

        Raises as `accept`, and names events by their position, counted from 0. InvalidEvent, and an id that is given
        for two bodies, are found before anything is recorded. Whatever else comes up concerns one batch: those before
        it are accepted, it and those after it are not, as the error says.
        """
        call = batches.read_all(given, self.keys)
        for batch in call.batches:
            queued = self.publisher.may_try()
            with call.told(batch):
                messages = self.ledger.record_many(batch.events, wait=timedelta(), queued=queued)
            if queued:
                in_order = self._ranked(call.in_order(messages), crowd=len(call.ids) > MOST_AT_ONCE)
                self.publisher.publish_all(in_order, timedelta())
        return call.ids

    def _ranked(self, messages: Sequence[Message], *, crowd: bool = False) -> Sequence[Message]:
        """Let those wait that come in a crowd: of this call, or of one after the other."""
        return [
            replace(message, may_wait=True) if crowd or self.bursts.may_wait(message.merchant_id) else message
            for message in messages
        ]

    def accept_by_name(self, given: object, message_id: str) -> None:
        """Accept an event that a message brought; one without an id has its message's, since that may come twice."""
        if self._is_known_identity(given):
            return
        if isinstance(given, dict) and "id" not in given:
            given = {**given, "id": reading.id_from(message_id)}
        self.accept(given)

    def _is_known_identity(self, given: object) -> bool:
        """Whether somebody named a recorded delivery by hand: that asks for nothing new."""
        if not isinstance(given, dict) or given.keys() != reading.IDENTITY:
            return False
        named = given["id"]
        event = reading.read({**given, "id": event_of(named)} if isinstance(named, str) else given)
        return self.ledger.is_of(event.id, event.merchant_id, event.type)

    def record(self, connection: Any, given: object) -> str:
        """Accept an event in the transaction that is open on `connection`, if it commits; see `webhooks.record`."""
        event = reading.read(given, self.keys)
        self.inside(connection, [[event]])
        return event.id

    def record_many(self, connection: Any, given: object) -> list[str]:
        """Accept events in the transaction that is open on `connection`; see `webhooks.record_many`."""
        call = batches.read_all(given, self.keys)
        with call.told():
            self.inside(connection, call.in_one_transaction())
        return call.ids
