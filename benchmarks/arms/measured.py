"""What metrics cost: the throughput of workers that are measured, and asked as often as a Prometheus does."""

from __future__ import annotations

import statistics
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from benchmarks import merchants
from benchmarks.arms.cost import cpu_ms
from benchmarks.arms.speed import MERCHANTS, QUEUED
from benchmarks.bench import Bench
from benchmarks.figures import Row, rate

PAIRS = 5
COUNT = 2 * QUEUED
_PORTS = 8  # more than there are workers
_EVERY_S = 1.0  # far more often than anybody asks in production
_PATIENCE = 60.0


def metrics(bench: Bench) -> list[Row]:
    """Two worker processes with metrics against the same without, in turn; the ratio is the median of the pairs'."""
    ports = merchants.free_ports(_PORTS)
    pairs = []
    for number in range(PAIRS):
        both = {on: _drained(bench, ports if on else ()) for on in ((True, False) if number % 2 else (False, True))}
        pairs.append((both[True], both[False]))
    rate_on, cpu_on, rate_off, cpu_off = (
        statistics.median(each) for each in zip(*((*on, *off) for on, off in pairs), strict=True)
    )
    cpu = statistics.median(on[1] / off[1] for on, off in pairs)
    figures = {"1/s": rate_on, "off 1/s": rate_off, "CPU ms": cpu_on, "off CPU ms": cpu_off, "CPU ratio": cpu}
    return [Row("metrics", "on", figures, statistics.median(on[0] / off[0] for on, off in pairs), "off")]


def _drained(bench: Bench, ports: Sequence[int]) -> tuple[float, float]:
    """Return the POSTs a second out of a full queue, and what each costs the programs of CPU."""
    bench.reset()
    bench.load.queue(bench.healthy[:MERCHANTS], COUNT)
    mark = bench.nginx.mark()
    settings = {"WEBHOOKS_METRICS_PORT": f"{ports[0]}-{ports[-1]}"} if ports else {}
    with bench.running(settings=settings) as programs, _asked(ports):
        pids = [program.process.pid for program in programs if program.process]  # type: ignore[attr-defined]
        before_ms = cpu_ms(pids)
        already = len(bench.arrivals(mark, 0, 0))
        arrived = list(bench.arrivals(mark, COUNT, _PATIENCE).values())
        return rate(arrived), (cpu_ms(pids) - before_ms) / max(len(arrived) - already, 1)


@contextmanager
def _asked(ports: Sequence[int]) -> Iterator[None]:
    """Ask each port all the time, as a Prometheus would."""
    done = threading.Event()

    def ask() -> None:
        while not done.wait(_EVERY_S):
            for port in ports:
                with suppress(OSError):
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read()

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield
    finally:
        done.set()
        asking.join()
