"""The gate for workers: when it cannot be asked, deliveries go on without it. A breaker must not become an outage."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import TypeVar

from webhooks.errors import GateUnavailable
from webhooks.gate.gate import Gate
from webhooks.gate.values import Admitted, Busy, Held, Offer, Report, Wait
from webhooks.policy.breaker import Effect

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class ResilientGate:
    """A gate that never raises GateUnavailable.

    While Redis is away every delivery is admitted without a lease, reports go nowhere, and what is held stays held.
    An outage is logged once, and again when it is over. Between two tries one second passes, and only one thread
    tries, so that an outage costs a timeout a second and not one a delivery. `bypassed` counts the calls that went
    without an answer since this process started.
    """

    def __init__(
        self, gate: Gate, pause: timedelta = timedelta(seconds=1), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.bypassed = 0
        self._gate = gate
        self._pause_s = pause.total_seconds()
        self._clock = clock
        self._lock = threading.Lock()
        self._away = False
        self._next_try_s = 0.0

    def admit(self, merchant_id: str, delivery_id: str, slot: str | None = None) -> Admitted | Held | Busy:
        """As `Gate.admit`; without an answer the delivery is admitted, with no token."""
        passed: Admitted | Held | Busy = Admitted(None)
        return self._ask(lambda: self._gate.admit(merchant_id, delivery_id, slot), passed)

    def report(self, merchant_id: str, admitted: Admitted, effect: Effect) -> Report:
        """As `Gate.report`; without an answer nothing moves."""
        if admitted.token is None:
            return Report()
        return self._ask(lambda: self._gate.report(merchant_id, admitted, effect), Report())

    def offer(self, merchant_ids: Iterable[str]) -> dict[str, Offer]:
        """As `Gate.offer`; without an answer everybody waits."""
        asked = tuple(merchant_ids)
        return self._ask(lambda: self._gate.offer(asked), dict.fromkeys(asked, Wait()))

    def drained(self, merchant_id: str, unused: Sequence[str] = ()) -> None:
        """As `Gate.drained`; unheard, it is said again when the sweep next finds nothing to release."""
        self._ask(lambda: self._gate.drained(merchant_id, unused), None)

    def _ask(self, question: Callable[[], _T], otherwise: _T) -> _T:
        if not self._may_try():
            return otherwise
        try:
            answer = question()
        except GateUnavailable as error:
            self._note_failure(error)
            return otherwise
        self._note_success()
        return answer

    def _may_try(self) -> bool:
        with self._lock:
            now_s = self._clock()
            if now_s < self._next_try_s:
                self.bypassed += 1
                return False
            if self._away:
                self._next_try_s = now_s + self._pause_s
            return True

    def _note_failure(self, error: GateUnavailable) -> None:
        with self._lock:
            self.bypassed += 1
            self._next_try_s = self._clock() + self._pause_s
            if not self._away:
                self._away = True
                _log.warning("gate.away: deliveries go on without breakers and lanes: %s", error)

    def _note_success(self) -> None:
        with self._lock:
            if self._away:
                self._away, self._next_try_s = False, 0.0
                _log.warning(
                    "gate.back: breakers and lanes work again; calls that went without, in all: %d", self.bypassed
                )
