"""The events of one call: all are checked before any is recorded, and they are recorded in batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeVar

from webhooks.accepting.reading import Event, read
from webhooks.errors import AnswerLost, EventConflict, InvalidEvent, LedgerFault, LedgerUnavailable
from webhooks.model import Message, event_of

# What one statement records: within a second or so, and never more than fits into anybody's memory.
MOST_EVENTS = 500
MOST_BYTES = 4 * 1024 * 1024

_Error = TypeVar("_Error", bound=EventConflict | LedgerUnavailable | LedgerFault)

_TOLD = 20  # of the events that clash, in an error's line


@dataclass(frozen=True, slots=True)
class Batch:
    """What one statement records: events of a call, given there as those from `first` to `last`.

    They are in the order of their ids: of two calls that share some, none waits for the other in a circle.
    """

    events: Sequence[Event]
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Call:
    """The events of one call, checked. `positions` says where, counted from 0, an id was given first."""

    ids: list[str]
    batches: Sequence[Batch]
    positions: Mapping[str, int]

    def in_one_transaction(self) -> Iterator[Sequence[Event]]:
        """Give all events in the order of their ids: one transaction keeps what it has taken until its end."""
        ordered = sorted((event for batch in self.batches for event in batch.events), key=attrgetter("id"))
        return (batch.events for batch in _batches(enumerate(ordered)))

    def in_order(self, messages: Iterable[Message]) -> list[Message]:
        """Return messages in the order in which their events were given."""
        return sorted(messages, key=lambda message: self.positions[event_of(message.id)])

    @contextmanager
    def told(self, batch: Batch | None = None) -> Iterator[None]:
        """Name events by their positions in what is raised, and say which are accepted all the same.

        Without a batch all of the call counts together.
        """
        batch = batch or Batch((), 0, len(self.ids) - 1)
        try:
            yield
        except EventConflict as error:
            told = self._standing(batch, EventConflict(self._clashes(error.ids)))
            told.ids = error.ids
            raise told from None
        except (LedgerUnavailable, LedgerFault) as error:
            raise self._standing(batch, error) from None

    def _clashes(self, ids: Sequence[str]) -> str:
        clashing = sorted((self.positions[each], each) for each in ids)
        named = ", ".join(f"event {position}: id: {each}" for position, each in clashing[:_TOLD])
        more = f" and {len(clashing) - _TOLD} more" if len(clashing) > _TOLD else ""
        return f"{named}{more}: accepted before with another body"

    def _standing(self, batch: Batch, error: _Error) -> _Error:
        """Say what of the call stands; where an answer was lost, nobody knows it of this batch."""
        clauses = [f"events 0 to {batch.first - 1} are accepted"] if batch.first else []
        if isinstance(error, AnswerLost):
            clauses.append(f"of events {batch.first} to {batch.last} it is not known")
        clauses.append("no other is accepted" if clauses else "none is accepted")
        told = type(error)(f"{error}; {', '.join(clauses)}")
        told.accepted = batch.first
        return told


def read_all(given: object, keys: Sequence[str] = ()) -> Call:
    """Check and serialise the events of a call; an id that comes again with the same body is the same event.

    `keys` as in `reading.read`. Raises InvalidEvent and EventConflict, which name the event by its position: then
    nothing is accepted.
    """
    ids: list[str] = []
    positions: dict[str, int] = {}
    fresh: list[tuple[int, Event]] = []
    known: dict[str, bytes] = {}
    for position, each in enumerate(_listed(given)):
        event = _read_at(position, each, keys)
        ids.append(event.id)
        if known.setdefault(event.id, event.body_sha256) != event.body_sha256:
            first = f"was given before, as event {positions[event.id]}, with another body"
            raise EventConflict(f"event {position}: id: {event.id} {first}; none is accepted")
        if event.id not in positions:
            positions[event.id] = position
            fresh.append((position, event))
    return Call(ids, list(_batches(fresh)), positions)


def _listed(given: object) -> Iterable[object]:
    if isinstance(given, Mapping | str | bytes) or not isinstance(given, Iterable):
        raise InvalidEvent(f"the events are a {type(given).__name__}; they must be a list of events")
    return given


def _read_at(position: int, given: object, keys: Sequence[str]) -> Event:
    try:
        return read(given, keys)
    except InvalidEvent as error:
        raise InvalidEvent(f"event {position}: {error}") from None


def _batches(events: Iterable[tuple[int, Event]]) -> Iterator[Batch]:
    batch: list[Event] = []
    first = last = size = 0
    for position, event in events:
        if batch and (len(batch) == MOST_EVENTS or size + len(event.body) > MOST_BYTES):
            yield _batch(batch, first, last)
            batch, first, size = [], position, 0
        batch.append(event)
        last, size = position, size + len(event.body)
    if batch:
        yield _batch(batch, first, last)


def _batch(events: list[Event], first: int, last: int) -> Batch:
    return Batch(sorted(events, key=attrgetter("id")), first, last)
