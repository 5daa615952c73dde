"""The drill's producers: threads that hand over events, and try again with the same ids when nothing was accepted.

Most come one by one; some come many at once, and some of these inside a transaction of the producer's own. Now and then
there is a bulk for one merchant.
"""

from __future__ import annotations

import itertools
import os
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from types import TracebackType
from typing import Any, Self

import psycopg2

from tests.faults.addressees import PROTECTED
from webhooks import deliver, record_many
from webhooks.errors import LedgerUnavailable

_SHARES = {
    "fast": 6,
    "swift": 3,
    "slow": 3,
    "flaky": 3,
    "outage": 3,
    "strict": 3,
    "double": 8,
    "leaving": 3,
    "sided": 4,
}
_TYPES = (
    ("payment.status_changed", "paid"),
    ("refund.completed", None),
    ("payment.status_changed", "expired"),
    ("kyc.status_changed", "approved"),
)
_MOST_AT_ONCE = 6
_BULK, _BULK_EVERY = 20, 90  # events, and times that a producer hands something over

# What a producer hears of its own connection while the ledger is away or refuses writes.
_AWAY = (psycopg2.OperationalError, psycopg2.InterfaceError, psycopg2.errors.ReadOnlySqlTransaction)

Event = dict[str, Any]


class Producers:
    """So many threads, each of which hands over about `rate` times a second, until the `with` block ends."""

    def __init__(self, seed: int, *, threads: int = 2, rate: float = 6) -> None:
        self._seed = seed
        self._rate = rate
        self._leave = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._produce, args=(number,), name=f"producer-{number}", daemon=True)
            for number in range(threads)
        ]
        self.accepted: dict[str, str] = {}  # event's id → merchant
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
        ids = (f"p{number}-{nth}" for nth in itertools.count(1))
        try:
            for turn in itertools.count(1):
                if self._leave.wait(dice.expovariate(self._rate)):
                    return
                way, merchants = _choose(dice, turn)
                self._hand_over([_event(dice, next(ids), merchant) for merchant in merchants], way)
        except BaseException as error:
            self.broken.append(error)

    def _hand_over(self, events: Sequence[Event], way: Callable[[Sequence[Event]], object]) -> None:
        """Hand them over until they are accepted; not accepted until the call returns."""
        while True:
            try:
                way(events)
            except (LedgerUnavailable, *_AWAY):
                self.refused += 1
                if self._leave.wait(0.2):
                    return
            else:
                with self._lock:
                    self.accepted |= {event["id"]: event["merchant_id"] for event in events}
                return


def _one(events: Sequence[Event]) -> None:
    (event,) = events
    deliver.delay(event)


def _many(events: Sequence[Event]) -> None:
    deliver.many(events)


def _inside_a_transaction(events: Sequence[Event]) -> None:
    url = os.environ["WEBHOOKS_DATABASE_URL"]
    with closing(psycopg2.connect(url, application_name="a producer")) as connection, connection:
        record_many(connection, events)


_WAYS: Mapping[Callable[[Sequence[Event]], object], int] = {_one: 8, _many: 1, _inside_a_transaction: 1}


def _choose(dice: random.Random, turn: int) -> tuple[Callable[[Sequence[Event]], object], Sequence[str]]:
    """Return how events are handed over this time, and the merchant of each."""
    if turn % _BULK_EVERY == 0:
        return _many, [PROTECTED] * _BULK
    (way,) = dice.choices(list(_WAYS), weights=list(_WAYS.values()))
    size = 1 if way is _one else dice.randint(2, _MOST_AT_ONCE)
    return way, dice.choices(list(_SHARES), weights=list(_SHARES.values()), k=size)


def _event(dice: random.Random, event_id: str, merchant: str) -> Event:
    kind, status = dice.choice(_TYPES)
    event = {"id": event_id, "type": kind, "merchant_id": merchant, "amount": str(dice.randrange(10_000))}
    return {**event, "status": status} if status else event
