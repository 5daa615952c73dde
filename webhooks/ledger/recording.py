"""Recording events in the ledger: each once, whatever becomes of the answer. One clock counts: the database's."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import Row

from webhooks.accepting.bursts import MOST_AT_ONCE
from webhooks.accepting.reading import Event
from webhooks.errors import AnswerLost, EventConflict, LedgerUnavailable
from webhooks.ledger import routing
from webhooks.ledger.database import Database, Transaction
from webhooks.model import Limits, Message, delivery_id_of

_TOLD = 3  # of the ids of a batch, in an error


class Recording:
    """Where events are recorded; see `Ledger` for what it is made with."""

    def __init__(
        self, database: Database, *, max_age: timedelta, recover_after: timedelta, patience: timedelta
    ) -> None:
        self.database = database
        self._max_age = max_age
        self._recover_after = recover_after
        self._patience = patience

    def record(self, event: Event, *, wait: timedelta = timedelta(), queued: bool = True) -> Sequence[Message]:
        """Accept an event; see `record_many`."""
        return self.record_many([event], wait=wait, queued=queued)

    def record_many(
        self, events: Sequence[Event], *, wait: timedelta = timedelta(), queued: bool = True
    ) -> Sequence[Message]:
        """Accept events of different ids, all or none, in one statement; their first attempts are due after `wait`.

        `queued` says that the caller publishes the messages right away. Returns these, one for each endpoint that wants
        an event; none for an event that was accepted before, nor for what is held at once because it is more than fits
        into its endpoint's lane. Raises EventConflict when an id stands for another body, and LedgerUnavailable.
        """
        with self.database.within(self._patience):
            rows = self._recorded(events, self._terms(wait, queued=queued))
            return [_first_message(row) for row in rows if row.endpoint_id is not None]

    def _recorded(self, events: Sequence[Event], terms: dict[str, Any]) -> Sequence[Row[Any]]:
        """Record once; where the answer was lost, find out whether it was this call that did it."""
        try:
            return self._record(events, terms)
        except AnswerLost:
            pass
        try:
            return self._record(events, terms) or self.database.rows(routing.RECORDED, values_of_known(events))
        except LedgerUnavailable as error:
            ids = ", ".join(event.id for event in events[:_TOLD])
            raise AnswerLost(
                f"{error}; whether {ids} was accepted is not known: hand the same event over again, with this id"
            ) from None

    def _record(self, events: Sequence[Event], terms: dict[str, Any]) -> Sequence[Row[Any]]:
        """Record in one statement, or not at all where an id stands for another body.

        The statement sees such ids, but for those that somebody else records at this very moment: so several events
        take a transaction, which can still be given up.
        """
        if len(events) == 1:
            recorded = self.database.rows(routing.RECORD_ONE, {**_values_of_one(events[0]), **terms})
            return _checked(self.database, events, recorded)
        try:
            return self._record_together(events, terms)
        except LedgerUnavailable as error:
            if type(error) is not LedgerUnavailable:
                raise
        return self._record_together(events, terms)  # a connection that breaks before the end has done nothing

    def _record_together(self, events: Sequence[Event], terms: dict[str, Any]) -> Sequence[Row[Any]]:
        with self.database.transaction() as together:
            recorded = together.rows(routing.RECORD, {**_values_of_all(events), **terms})
            return _checked(together, events, recorded)

    def values_of(self, events: Sequence[Event]) -> dict[str, Any]:
        """Return the values with which `routing.RECORD` accepts events; the sweep publishes when they are due."""
        return {**_values_of_all(events), **self._terms(timedelta(), queued=False)}

    def _terms(self, wait: timedelta, *, queued: bool) -> dict[str, Any]:
        """Return the values that are the same for all events.

        Unless a message is on its way (`queued`), the sweep publishes as soon as the delivery is due.
        """
        return {
            "the_wait": wait,
            "the_recover_after": self._recover_after if queued else timedelta(),
            "the_queued": queued,
            "the_max_age": self._max_age,
        }


def values_of_known(events: Sequence[Event]) -> dict[str, Any]:
    """Return the values with which the ledger tells whether it knows events."""
    return {"the_ids": [event.id for event in events], "the_digests": [event.body_sha256 for event in events]}


def _values_of_all(events: Sequence[Event]) -> dict[str, Any]:
    return {
        **values_of_known(events),
        "the_merchant_ids": [event.merchant_id for event in events],
        "the_types": [event.type for event in events],
        "the_money": [event.money for event in events],
        "the_bodies": [event.body for event in events],
        "the_keyed_ids": [event.id for event in events for _ in event.keys],
        "the_fields": [field for event in events for field, _ in event.keys],
        "the_values": [value for event in events for _, value in event.keys],
        "the_most": MOST_AT_ONCE,
    }


def _values_of_one(event: Event) -> dict[str, Any]:
    return {
        "the_id": event.id,
        "the_merchant_id": event.merchant_id,
        "the_type": event.type,
        "the_money": event.money,
        "the_body": event.body,
        "the_digest": event.body_sha256,
        "the_fields": [field for field, _ in event.keys],
        "the_values": [value for _, value in event.keys],
    }


def _checked(
    ledger: Database | Transaction, events: Sequence[Event], recorded: Sequence[Row[Any]]
) -> Sequence[Row[Any]]:
    """Return what was recorded. Raises EventConflict where an event was not, and its id stands for another body."""
    if len({row.event_id for row in recorded}) < len(events):
        conflicts = ledger.rows(routing.CONFLICTS, values_of_known(events))
        if conflicts:
            raise EventConflict.of(*(row.id for row in conflicts))
    return recorded


def _first_message(row: Row[Any]) -> Message:
    delivery_id = delivery_id_of(row.event_id, row.merchant_id, row.endpoint_id)
    limits = Limits(row.lane, row.rate)
    return Message(delivery_id, row.merchant_id, row.type, turn=0, queued_at=row.accepted_at, limits=limits)
