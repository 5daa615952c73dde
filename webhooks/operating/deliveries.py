"""Cancelling deliveries, and sending deliveries or whole events again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from webhooks import parts
from webhooks.errors import NotPossible
from webhooks.ledger.replays import Resent, Verdict
from webhooks.ledger.views import Wanted
from webhooks.model import Operator

_BATCH = 500  # deliveries that one statement of a replay takes


@dataclass(frozen=True, slots=True)
class EventReplay:
    """What became of an event that was to be sent again: `resent` deliveries, `begun` ones, and those `left` alone."""

    event_id: str
    resent: Sequence[Verdict]
    begun: Sequence[str]
    left: Sequence[Verdict]


def cancel(by: Operator, delivery_ids: Sequence[str]) -> Sequence[Verdict]:
    """End deliveries for good, and say of each whether that was possible."""
    with parts.act(by, "they were cancelled", "webhooks delivery show ID") as act:
        verdicts = parts.replays().within(act).cancel(delivery_ids)
        act.note_deliveries("cancel of", done(verdicts))
    return verdicts


def replay(by: Operator, delivery_ids: Sequence[str], *, again: bool, cancelled: bool) -> Sequence[Verdict]:
    """Send deliveries again, and say of each whether that was possible.

    `again`: also what was delivered; `cancelled`: also what an operator cancelled.
    """
    with parts.act(by, "they are being sent again", "webhooks delivery show ID") as act:
        verdicts = parts.replays().within(act).replay(delivery_ids, again=again, cancelled=cancelled)
        act.note_deliveries("replay of", done(verdicts))
    return verdicts


def replay_some(by: Operator, wanted: Wanted, *, again: bool, began: datetime) -> Iterator[int]:
    """Send the wanted deliveries again that had finished when it `began`, batch by batch; gives how many each took.

    However a replay of many ends, the audit has told every batch that counts. Each goes on where the one before has
    come to; once through, what somebody else had locked is looked for from the beginning.
    """
    reached: datetime | None = None
    while True:
        batch = _replay_batch(by, wanted, again, began, reached)
        if batch.ids:
            yield len(batch.ids)
        elif reached is None:
            return
        reached = batch.reached


def _replay_batch(by: Operator, wanted: Wanted, again: bool, began: datetime, reached: datetime | None) -> Resent:
    with parts.act(by, "the last of them are being sent again", "webhooks audit") as act:
        replays = parts.replays().within(act)
        batch = replays.replay_some(wanted, again=again, finished_before=began, most=_BATCH, reached=reached)
        act.note_deliveries(f"replay of {_in_words(wanted)}:", batch.ids)
    return batch


def replay_event(
    by: Operator, event_id: str, *, endpoint_id: str | None = None, cancelled: bool = False
) -> EventReplay:
    """Send an event again to all endpoints that had it, and to those that want it by now and had it not yet, or to one.

    What is unfinished is left alone, and so is what an operator cancelled, unless `cancelled`. Raises NotPossible for
    an unknown event, for one whose body was pruned, and for an endpoint that neither had it nor wants it.
    """
    if parts.views().event(event_id).body_bytes is None:
        raise NotPossible(f"the body of {event_id} has been pruned: it cannot be sent any more")
    with parts.act(by, f"{event_id} is being sent again", f"webhooks event show {event_id}") as act:
        replays = parts.replays().within(act)
        had = [each.id for each in parts.views().of_event(event_id) if endpoint_id in {None, each.endpoint_id}]
        begun = replays.route(event_id, endpoint_id)
        if endpoint_id and not had and not begun:
            raise NotPossible(f"{endpoint_id} has not had {event_id}, and does not want it either")
        verdicts = replays.replay(had, again=True, cancelled=cancelled)
        act.note_deliveries(f"replay of event {event_id}:", [*done(verdicts), *begun])
    resent = [verdict for verdict in verdicts if verdict.refused is None]
    return EventReplay(event_id, resent, begun, [verdict for verdict in verdicts if verdict.refused is not None])


def done(verdicts: Sequence[Verdict]) -> Sequence[str]:
    """Return the deliveries with which it was possible."""
    return [verdict.delivery_id for verdict in verdicts if verdict.refused is None]


def _in_words(wanted: Wanted) -> str:
    return ", ".join(f"{name} {value}" for name, value in asdict(wanted).items() if value is not None)
