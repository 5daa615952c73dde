"""What a tick of the sweep costs while deliveries are held: of one merchant, of 1,000, of 20,000."""

from __future__ import annotations

import statistics
import time

from benchmarks.arms.fairness import pause
from benchmarks.bench import Bench
from benchmarks.figures import Row
from webhooks import parts

COUNTS = (1_000, 100_000, 1_000_000)
MANY = 20_000  # merchants with held deliveries
_TICKS, _SECONDS = 20, 6.0  # as many ticks as fit

_MERCHANTS = """
INSERT INTO endpoints (id, merchant_id, url, secret)
SELECT 'h' || n, 'h' || n, url, secret FROM endpoints, generate_series(1, %s) AS n WHERE id = 'm0'
"""


def held(bench: Bench) -> list[Row]:
    """Measure ticks in this process, with every breaker paused; the ledger is filled once, however many rounds."""
    merchants = [f"h{number}" for number in range(1, MANY + 1)]
    bench.reset()
    bench.sql(_MERCHANTS, MANY)
    try:
        for merchant in merchants:
            pause(merchant)
        idle = _tick_ms()
        rows = [Row("held", "none", {"tick ms": idle})]
        for of in (1, 1_000):
            bench.sql("TRUNCATE deliveries, events CASCADE")
            there = 0
            for count in COUNTS:
                bench.hold(merchants[:of], there + 1, count - there)
                there = count
                rows.append(_row(f"{count:,} of {of:,} {'merchant' if of == 1 else 'merchants'}", idle))
        bench.sql("TRUNCATE deliveries, events CASCADE")
        bench.hold(merchants, 1, MANY)
        return [*rows, _row(f"{MANY:,} of {MANY:,} merchants", idle)]
    finally:
        bench.sql("DELETE FROM endpoints WHERE id LIKE 'h%%'")
        bench.reset()


def _row(case: str, idle: float) -> Row:
    ms = _tick_ms()
    return Row("held", case, {"tick ms": ms}, ms / idle, "none held")


def _tick_ms() -> float:
    """Return the median of some ticks, after one that fills the caches."""
    parts.sweeper().tick()
    ticks: list[float] = []
    deadline = time.monotonic() + _SECONDS
    while not ticks or (len(ticks) < _TICKS and time.monotonic() < deadline):
        began = time.perf_counter()
        parts.sweeper().tick()
        ticks.append(1000 * (time.perf_counter() - began))
    return statistics.median(ticks)
