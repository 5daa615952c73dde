"""What can happen around the deliveries: to events and messages that come in, and to this process itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from webhooks.observing.facts import Fact


@dataclass(frozen=True, slots=True)
class EventRefused(Fact):
    """An event or message by task name was refused: its producer hears nothing."""

    name = "event.refused"
    event_id: str | None
    merchant_id: str | None
    type: str | None
    task_id: str
    why: str


@dataclass(frozen=True, slots=True)
class EventUnlisted(Fact):
    """What was refused could not be written into the ledger's list."""

    name = "event.unlisted"
    why: str


@dataclass(frozen=True, slots=True)
class EventWaits(Fact):
    """An event by name cannot be recorded yet; its message goes back.

    `of_outage`: for an outage that is told by itself, once.
    """

    name = "event.waits"
    why: str
    of_outage: bool = False


@dataclass(frozen=True, slots=True)
class StrangersMet(Fact):
    """Messages of deliveries that are not in this ledger, and the `latest` of them; told once a minute."""

    name = "message.unknown"
    number: int
    latest: str


@dataclass(frozen=True, slots=True)
class MessageUnpublished(Fact):
    """Neither the broker nor the ledger could be told of a delivery's message: its row still says that it waits.

    `others`: of so many deliveries besides.
    """

    name = "message.unpublished"
    delivery_id: str
    others: int = 0


@dataclass(frozen=True, slots=True)
class MessageUnbooked(Fact):
    """The broker keeps no copy of a message that was taken."""

    name = "message.unbooked"
    why: str


@dataclass(frozen=True, slots=True)
class MessageUnacknowledged(Fact):
    """The broker did not hear that a message is done; `lost_connection`: the message came by one that is gone."""

    name = "message.unacknowledged"
    why: str
    lost_connection: bool


@dataclass(frozen=True, slots=True)
class ConnectionUnclosed(Fact):
    """A worker's connection to the broker was lost, and closing it failed as well."""

    name = "connection.unclosed"
    why: str


@dataclass(frozen=True, slots=True)
class MessageDropped(Fact):
    """What was in the queue was none."""

    name = "message.dropped"
    why: str


@dataclass(frozen=True, slots=True)
class RevokeRefused(Fact):
    """Somebody revoked a delivery's task."""

    name = "revoke.refused"


@dataclass(frozen=True, slots=True)
class ClockWrong(Fact):
    """This machine's wall clock is so far ahead of the ledger's, or behind it where that is below zero."""

    name = "clock.wrong"
    ahead: timedelta


@dataclass(frozen=True, slots=True)
class SinkFailed(Fact):
    """A sink raised, and heard nothing of what happened; told once until it has worked."""

    name = "sink.failed"
    sink: str
    why: str


@dataclass(frozen=True, slots=True)
class TallyStopped(Fact):
    """The minutes that are over could not be counted."""

    name = "tally.stopped"
    why: str
