"""The drill's producers: threads that hand over events, and try again with the same id when nothing was accepted."""

from __future__ import annotations

import random
import threading
from types import TracebackType
from typing import Any, Self

from webhooks import deliver
from webhooks.errors import LedgerUnavailable

_SHARES = {"fast": 5, "swift": 3, "slow": 3, "flaky": 3, "outage": 3, "strict": 2}
_TYPES = (("payment.status_changed", "paid"), ("refund.completed", None), ("payment.status_changed", "expired"))


class Producers:
    """So many threads, each about `rate` events a second, until the `with` block ends."""

    def __init__(self, seed: int, *, threads: int = 2, rate: float = 10) -> None:
        self._seed = seed
        self._rate = rate
        self._leave = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._produce, args=(number,), name=f"producer-{number}", daemon=True)
            for number in range(threads)
        ]
        self.accepted: dict[str, str] = {}  # delivery id → merchant
        self.refused = 0
        self.broken: list[BaseException] = []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._leave.set()
        for thread in self._threads:
            thread.join()

    def _produce(self, number: int) -> None:
        dice = random.Random(f"{self._seed}/producer/{number}")
        count = 0
        try:
            while not self._leave.wait(dice.expovariate(self._rate)):
                count += 1
                self._hand_over(_event(dice, f"p{number}-{count}"))
        except BaseException as error:
            self.broken.append(error)

    def _hand_over(self, event: dict[str, Any]) -> None:
        """Hand it over until it is accepted; not accepted until `delay` returns."""
        while True:
            try:
                deliver.delay(event)
            except LedgerUnavailable:
                self.refused += 1
                if self._leave.wait(0.2):
                    return
            else:
                with self._lock:
                    self.accepted[event["id"]] = event["merchant_id"]
                return


def _event(dice: random.Random, event_id: str) -> dict[str, Any]:
    (merchant,) = dice.choices(list(_SHARES), weights=list(_SHARES.values()))
    kind, status = dice.choice(_TYPES)
    event = {"id": event_id, "type": kind, "merchant_id": merchant, "amount": str(dice.randrange(10_000))}
    return {**event, "status": status} if status else event
