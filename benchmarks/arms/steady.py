"""A steady load, and what becomes of the healthy merchants' share of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.bench import Bench
from benchmarks.load import Sent

SETTLING = 2.0  # seconds at the beginning that do not count: connections are made
_DRAIN = 12.0  # seconds at most for what is late


@dataclass(frozen=True, slots=True)
class Seen:
    """What was sent to healthy merchants and when it arrived; times are seconds of the epoch.

    What had not arrived when nobody waited any more counts as arriving then, and in `missing`.
    """

    sent: Sequence[Sent]
    arrived: Mapping[str, float]
    start: float
    end: float
    given_up: float

    @property
    def settled(self) -> float:
        """When what counts begins."""
        return self.start + SETTLING

    @property
    def missing(self) -> int:
        """How many had not arrived."""
        return sum(each.id not in self.arrived for each in self.sent)

    def between(self, since: float, until: float) -> list[float]:
        """Return the latencies of what was scheduled in a span, each from its scheduled moment."""
        return [
            max(self.arrived.get(each.id, self.given_up) - each.at, 0.0)
            for each in self.sent
            if since <= each.at < until
        ]


def phase(
    bench: Bench,
    merchants: Sequence[str],
    rate: float,
    seconds: float,
    then: tuple[float, Callable[[], object]] | None = None,
) -> Seen:
    """Send to merchants in turn, `rate` events a second; do something in between, so many seconds after settling."""
    mark, start = bench.nginx.mark(), time.time() + 0.5
    bench.load.steady(merchants, rate, SETTLING + seconds, start)
    if then:
        after, act = then
        time.sleep(max(start + SETTLING + after - time.time(), 0))
        act()
    healthy = set(bench.healthy)
    sent = [each for each in bench.load.finished() if each.merchant_id in healthy]
    arrived = _arrived(bench, mark, {each.id for each in sent})
    return Seen(sent, arrived, start, start + SETTLING + seconds, time.time())


def _arrived(bench: Bench, mark: int, ids: set[str]) -> dict[str, float]:
    deadline = time.monotonic() + _DRAIN
    while True:
        arrived = bench.arrivals(mark, 0, 0)
        if ids <= arrived.keys() or time.monotonic() > deadline:
            return arrived
        time.sleep(0.2)
