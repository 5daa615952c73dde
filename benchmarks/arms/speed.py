"""How fast: throughput, latency, scale, crowding, and what a producer waits for."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from benchmarks import plain
from benchmarks.arms.steady import phase
from benchmarks.bench import Bench
from benchmarks.figures import Row, latencies, rate
from benchmarks.load import BODY, event_for, shuffled
from webhooks import deliver

MERCHANTS = 100
QUEUED = 1500
_PATIENCE = 60.0  # seconds for a queue to be worked off


def throughput(bench: Bench) -> list[Row]:
    """Two worker processes for deliveries against the plain task and the pooled one, out of a full queue."""
    ours = drained(bench, QUEUED)
    bench.saw(ours)
    rows = []
    for task in (plain.post, plain.pooled):
        name = "pooled session" if task is plain.pooled else "plain requests.post"
        other = _drained_plain(bench, task, QUEUED)
        rows.append(Row("throughput", f"against {name}", {"ours 1/s": ours, "other 1/s": other}, ours / other, name))
    return rows


def drained(bench: Bench, count: int, workers: int = 2, *, pinned: bool = False) -> float:
    """Return the POSTs a second between the first and the last of a queue that was full before the workers came."""
    bench.reset()
    bench.load.queue(bench.healthy[:MERCHANTS], count)
    mark = bench.nginx.mark()
    with bench.running(workers, pinned=pinned):
        return rate(list(bench.arrivals(mark, count, _PATIENCE).values()))


def _drained_plain(bench: Bench, task: object, count: int) -> float:
    bench.reset()
    for number, merchant in zip(range(count), shuffled(bench.healthy[:MERCHANTS]), strict=False):
        task.delay(bench.urls[merchant], BODY, f"plain-{number}")  # type: ignore[attr-defined]
    mark = bench.nginx.mark()
    with bench.plain("plain"):
        return rate(list(bench.arrivals(mark, count, _PATIENCE).values()))


def latency(bench: Bench) -> list[Row]:
    """From the scheduled moment of `delay` to the arrival, at a tenth and at half of the throughput of this run."""
    whole = bench.throughput(lambda: drained(bench, QUEUED))
    rows = []
    bench.reset()
    with bench.running():
        for name, share in (("a tenth", 0.1), ("half", 0.5)):
            seen = phase(bench, bench.healthy[:MERCHANTS], share * whole, 12)
            figures = {"1/s": share * whole} | latencies(seen.between(seen.settled, seen.end))
            rows.append(Row("latency", f"at {name} of throughput", figures | {"missing": seen.missing}))
    return rows


def scale(bench: Bench) -> list[Row]:
    """One, two and four worker processes, each pinned to a core, the first to the first."""
    rates = {count: drained(bench, QUEUED * 2 // 3, count, pinned=True) for count in (1, 2, 4)}
    return [
        Row("scale", f"{count} processes", {"1/s": each}, each / rates[1], "one process")
        for count, each in rates.items()
    ]


def crowding(bench: Bench) -> list[Row]:
    """Two worker processes on one merchant's backlog, with the lane of 10 against no lane."""
    rates = [_backlog_rate(bench, lane) for lane in (10, 1000)]
    figures = {"lane 1/s": rates[0], "no lane 1/s": rates[1]}
    return [Row("crowding", "one merchant's backlog", figures, rates[0] / rates[1], "no lane")]


def _backlog_rate(bench: Bench, lane: int) -> float:
    bench.reset()
    bench.load.queue(bench.healthy[:1], QUEUED // 2)
    mark = bench.nginx.mark()
    with bench.running(settings={"WEBHOOKS_LANE": str(lane)}):
        return rate(list(bench.arrivals(mark, QUEUED // 2, _PATIENCE).values()))


def producer(bench: Bench) -> list[Row]:
    """`deliver.delay` and, for each event, `deliver.many` of 1,000, against a bare task's `delay`; blocks in turn."""
    bench.reset()
    merchants = shuffled(bench.healthy[:MERCHANTS])
    calls: dict[str, Callable[[], object]] = {
        "delay": lambda: deliver.delay(event_for(next(merchants))),
        "bare": lambda: plain.post.delay(bench.urls["m0"], BODY, "plain"),
    }
    blocks: dict[str, list[float]] = {"delay": [], "bare": [], "many": []}
    for call in calls.values():
        call()
    for _ in range(7):
        for name, call in calls.items():
            blocks[name].append(_ms_each(call, 100))
        events = [event_for(next(merchants)) for _ in range(1000)]
        blocks["many"].append(_ms_each(lambda events=events: deliver.many(events), 1) / len(events))  # type: ignore[misc]
    ms = {name: statistics.median(each) for name, each in blocks.items()}
    bench.reset()
    return [
        Row("producer", case, {"ms": ms[name], "bare ms": ms["bare"]}, ms[name] / ms["bare"], "a bare delay")
        for name, case in (("delay", "deliver.delay"), ("many", "deliver.many, an event"))
    ]


def _ms_each(call: Callable[[], object], count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        call()
    return 1000 * (time.perf_counter() - began) / count
