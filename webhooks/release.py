"""Letting held deliveries go, one for each slot that the gate grants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from webhooks.errors import LedgerFault, LedgerUnavailable
from webhooks.gate.resilient import ResilientGate
from webhooks.ledger.backlog import Backlog
from webhooks.model import Message
from webhooks.observing import facts
from webhooks.observing.observers import NOBODY, Observers
from webhooks.publishing import Publisher


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

        Fewer than there are slots: none is held any more, and the gate is told so.
        """
        if not slots:
            return 0
        try:
            released = self._backlog.release(endpoint_id, len(slots))
        except (LedgerUnavailable, LedgerFault) as error:
            self._observers.tell(facts.ReleasePutOff(endpoint_id, probe=False, why=str(error)))
            return 0
        for message, slot in zip(released, slots, strict=False):
            self._let_go(replace(message, slow=slow), slot)
        if len(released) < len(slots):
            self._gate.drained(endpoint_id, slots[len(released) :])
        return len(released)

    def probe_of(self, endpoint_id: str, slot: str) -> bool:
        """Offer the held delivery with the fewest fast attempts spent as the probe. Returns whether there was one."""
        try:
            chosen = self._backlog.release_probe(endpoint_id)
        except (LedgerUnavailable, LedgerFault) as error:
            self._observers.tell(facts.ReleasePutOff(endpoint_id, probe=True, why=str(error)))
            return False
        for message in chosen:
            self._let_go(message, slot, probe=True)
            return True
        self._gate.drained(endpoint_id, [slot])
        return False

    def _let_go(self, message: Message, slot: str, *, probe: bool = False) -> None:
        if self._publisher.publish(replace(message, slot=slot)):
            self._observers.tell(facts.Released.of(message, probe=probe))
