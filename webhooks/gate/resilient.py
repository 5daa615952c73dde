"""The gate for workers: when it cannot be asked, deliveries go on without it. A breaker must not become an outage."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TypeVar

from webhooks.errors import GateUnavailable
from webhooks.gate.gate import Gate
from webhooks.gate.values import NOBODYS, Admitted, Busy, Held, LimitsOf, MayRelease, Offer, Report, Slow
from webhooks.model import NO_LIMITS, Limits
from webhooks.observing import facts
from webhooks.observing.observers import NOBODY, Observers
from webhooks.observing.outage import PAUSE, Outage
from webhooks.policy.breaker import Effect

_T = TypeVar("_T")

_TRICKLE = MayRelease(("without-the-gate",))  # a slot that no gate has granted: to one that is back it is a late one


class ResilientGate:
    """A gate that never raises GateUnavailable.

    While Redis is away every delivery is admitted without a lease, reports go nowhere, and what is held trickles: one
    delivery for each endpoint and offer. An outage is told once, and again when it is over. Between two tries one
    second passes, and only one thread tries, so that an outage costs a timeout a second and not one a delivery.
    `bypassed` counts the calls that went without an answer since this process started.
    """

    def __init__(
        self,
        gate: Gate,
        pause: timedelta = PAUSE,
        clock: Callable[[], float] = time.monotonic,
        observers: Observers = NOBODY,
    ) -> None:
        self.bypassed = 0
        self._gate = gate
        self._observers = observers
        self._outage = Outage(pause, clock)
        self._lock = threading.Lock()

    def admit(
        self,
        endpoint_id: str,
        delivery_id: str,
        slot: str | None = None,
        limits: Limits = NO_LIMITS,
        *,
        slow: bool = False,
    ) -> Admitted | Held | Busy | Slow:
        """As `Gate.admit`; without an answer the delivery is admitted, with no token."""
        passed: Admitted | Held | Busy | Slow = Admitted(None)
        return self._ask(lambda: self._gate.admit(endpoint_id, delivery_id, slot, limits, slow=slow), passed)

    def report(
        self,
        endpoint_id: str,
        admitted: Admitted,
        effect: Effect,
        limits: Limits = NO_LIMITS,
        took: timedelta | None = None,
    ) -> Report:
        """As `Gate.report`; without an answer nothing moves."""
        if admitted.token is None:
            return Report()
        return self._ask(lambda: self._gate.report(endpoint_id, admitted, effect, limits, took), Report())

    def offer(self, endpoint_ids: Iterable[str], limits: LimitsOf = NOBODYS) -> dict[str, Offer]:
        """As `Gate.offer`; without an answer one delivery of each endpoint may go."""
        asked = tuple(endpoint_ids)
        if not asked:
            return {}  # Redis would not be asked, and not asking is no sign that it is back
        trickle: dict[str, Offer] = dict.fromkeys(asked, _TRICKLE)
        return self._ask(lambda: self._gate.offer(asked, limits), trickle)

    def all_drained(self, unused: Mapping[str, Sequence[str]]) -> None:
        """As `Gate.all_drained`; unheard, it is said again when the sweep next finds nothing to release."""
        if unused:
            self._ask(lambda: self._gate.all_drained(unused), None)

    def _ask(self, question: Callable[[], _T], otherwise: _T) -> _T:
        if not self._outage.may_try():
            return self._without(otherwise)
        try:
            answer = question()
        except GateUnavailable as error:
            if self._outage.failed():
                self._observers.tell(facts.GateAway(str(error)))
            return self._without(otherwise)
        if self._outage.worked():
            self._observers.tell(facts.GateBack(self.bypassed))
        return answer

    def _without(self, otherwise: _T) -> _T:
        with self._lock:
            self.bypassed += 1
            calls = self.bypassed
        self._observers.tell(facts.GateBypassed(calls))
        return otherwise
