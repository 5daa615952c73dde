"""The producer: a process of its own that hands over events by the clock, whether the one before is accepted or not.

A latency counts from the moment for which an event was scheduled, so that a call that takes long hides nothing.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.child import Child, Command, answering
from webhooks import deliver

EVENT = {"type": "payment.status_changed", "status": "paid", "payment_id": "pay_1", "external_id": "order-1"}
BODY = json.dumps(EVENT | {"id": "x" * 32, "merchant_id": "acme"})  # what a bare task sends: as long as ours
THREADS = 8


@dataclass(frozen=True, slots=True)
class Sent:
    """An event of a steady load: for whom, and for which moment (seconds of the epoch) it was scheduled."""

    id: str
    merchant_id: str
    at: float


class Load(Child):
    """The producer as the benchmarks use it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__("benchmarks.load", environment)

    def steady(self, merchants: Sequence[str], rate: float, seconds: float, start: float) -> None:
        """Begin to hand over `rate` events a second, from the moment `start` on; `finished` waits for the end."""
        self.begin({"do": "steady", "merchants": merchants, "rate": rate, "seconds": seconds, "start": start})
        self._seconds = seconds

    def finished(self) -> list[Sent]:
        """Return what was handed over, once all of it is accepted."""
        return [Sent(*each) for each in self.finish(self._seconds + 60)]

    def queue(self, merchants: Sequence[str], count: int) -> None:
        """Hand over `count` single events as fast as they are accepted."""
        self.ask({"do": "queue", "merchants": merchants, "count": count}, 120)


def event_for(merchant_id: str) -> dict[str, str]:
    """Return an event that there has not been."""
    return {**EVENT, "id": uuid.uuid4().hex, "merchant_id": merchant_id}


def shuffled(merchants: Sequence[str]) -> Iterator[str]:
    """Return merchants for ever, each as often as any other, in an order that is the same in every run."""
    order = list(merchants)
    random.Random(1).shuffle(order)
    return itertools.cycle(order)


def steady(command: Command) -> list[tuple[str, str, float]]:
    """Hand over events by the clock, from several threads."""
    rate, start = command["rate"], command["start"]
    plan = [
        (event_for(merchant), start + at / rate)
        for at, merchant in zip(range(int(rate * command["seconds"])), shuffled(command["merchants"]), strict=False)
    ]
    waiting, lock, faults = iter(plan), threading.Lock(), []

    def work() -> None:
        while True:
            with lock:
                event, moment = next(waiting, (None, 0.0))
            if event is None:
                return
            time.sleep(max(moment - time.time(), 0))
            try:
                deliver.delay(event)
            except Exception as error:
                faults.append(error)
                return

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]
    return [(event["id"], event["merchant_id"], moment) for event, moment in plan]


def queue(command: Command) -> None:
    """Hand over single events, one after the other."""
    for _, merchant in zip(range(command["count"]), shuffled(command["merchants"]), strict=False):
        deliver.delay(event_for(merchant))


def bulk(command: Command) -> float:
    """Hand over many at once; return how long that took."""
    merchants = shuffled(command["merchants"])
    events = [event_for(next(merchants)) for _ in range(command["count"])]
    began = time.monotonic()
    deliver.many(events)
    return time.monotonic() - began


def _handle(command: Command) -> Any:
    return {"steady": steady, "queue": queue, "bulk": bulk}[command["do"]](command)


if __name__ == "__main__":
    answering(_handle)
