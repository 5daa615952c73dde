"""Letting held deliveries go, one for each slot that the gate grants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from webhooks.errors import LedgerFault, LedgerUnavailable
from webhooks.gate.resilient import ResilientGate
from webhooks.gate.values import MayProbe, MayRelease, Offer
from webhooks.ledger.backlog import Backlog
from webhooks.model import Message
from webhooks.observing import facts
from webhooks.observing.observers import NOBODY, Observers
from webhooks.publishing import Publisher

_MOST = 1000  # slots for which one statement takes deliveries, and whose messages are published together

_Granted = Mapping[str, MayProbe | MayRelease]  # by endpoint


class Release:
    """Turns slots into messages of held deliveries; a slot lets its message pass where fresh ones are held."""

    def __init__(
        self, gate: ResilientGate, backlog: Backlog, publisher: Publisher, observers: Observers = NOBODY
    ) -> None:
        self._gate = gate
        self._backlog = backlog
        self._publisher = publisher
        self._observers = observers

    def next_of(self, endpoint_id: str, slots: Sequence[str], *, slow: bool = False) -> int:
        """Release the oldest held deliveries of an endpoint, one a slot. Returns how many there were.

        Fewer than there are slots: none is held any more, and the gate is told so. `slow`: their messages go to the
        queue of the slow endpoints.
        """
        if not slots:
            return 0
        return self._let_go({endpoint_id: MayRelease(tuple(slots), slow)}, probe=False)

    def all_of(self, offers: Mapping[str, Offer]) -> tuple[int, int]:
        """Let go what the gate offers, of several endpoints at once. Returns how many probes, and how many others.

        An endpoint's probe is the held delivery with the fewest fast attempts spent.
        """
        probes: _Granted = {name: offer for name, offer in offers.items() if isinstance(offer, MayProbe)}
        releases: _Granted = {name: offer for name, offer in offers.items() if isinstance(offer, MayRelease)}
        return (
            sum(self._let_go(some, probe=True) for some in _in_parts(probes)),
            sum(self._let_go(some, probe=False) for some in _in_parts(releases)),
        )

    def _let_go(self, granted: _Granted, *, probe: bool) -> int:
        messages: list[Message] = []
        unused: dict[str, Sequence[str]] = {}
        for endpoint_id, taken in self._take(granted, probe=probe).items():
            slots, slow = _slots(granted[endpoint_id]), granted[endpoint_id].slow
            messages += [replace(each, slot=slot, slow=slow) for each, slot in zip(taken, slots, strict=False)]
            if len(taken) < len(slots):
                unused[endpoint_id] = slots[len(taken) :]
        for message in messages[: self._publisher.publish_all(messages)]:
            self._observers.tell(facts.Released.of(message, probe=probe))
        self._gate.all_drained(unused)
        return len(messages)

    def _take(self, granted: _Granted, *, probe: bool) -> dict[str, Sequence[Message]]:
        """Take the deliveries of the endpoints for which the ledger does not refuse it: one's trouble is no other's."""
        try:
            if probe:
                taken = self._backlog.release_probes(granted)
            else:
                taken = self._backlog.release({name: len(_slots(offer)) for name, offer in granted.items()})
        except (LedgerUnavailable, LedgerFault) as error:
            if isinstance(error, LedgerFault) and len(granted) > 1:
                return self._take_apart(granted, probe=probe)
            first, others = next(iter(granted)), len(granted) - 1
            self._observers.tell(facts.ReleasePutOff(first, probe=probe, why=str(error), others=others))
            return {}
        return {name: taken.get(name, ()) for name in granted}

    def _take_apart(self, granted: _Granted, *, probe: bool) -> dict[str, Sequence[Message]]:
        names = list(granted)
        halves = names[: len(names) // 2], names[len(names) // 2 :]
        first, second = (self._take({name: granted[name] for name in half}, probe=probe) for half in halves)
        return first | second


def _slots(offer: MayProbe | MayRelease) -> Sequence[str]:
    return (offer.slot,) if isinstance(offer, MayProbe) else offer.slots


def _in_parts(granted: _Granted) -> Iterator[_Granted]:
    """Part offers so that none holds more than so many slots, but for an endpoint that has more by itself."""
    part: dict[str, MayProbe | MayRelease] = {}
    slots = 0
    for name, offer in granted.items():
        if part and slots + len(_slots(offer)) > _MOST:
            yield part
            part, slots = {}, 0
        part[name] = offer
        slots += len(_slots(offer))
    if part:
        yield part
