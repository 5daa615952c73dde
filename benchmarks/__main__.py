"""`make bench`: what our promises cost, as ratios of figures taken in one run on one machine.

Seconds differ from machine to machine; how much slower than a plain Celery task we are, and whether a neighbour or a
backlog is felt, differs less. How each arm measures stands in `benchmarks/README.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks import merchants
from benchmarks.figures import Row, as_json, merged, table

RESULTS = Path(__file__).parent / "results.json"
ROUNDS = 3
ARMS = ("throughput", "producer", "latency", "fairness", "recovery", "held", "cost", "scale", "crowding", "reads")
ONCE = ("held", "cost", "reads")  # filled or counted once: what they compare is within the round


def main(words: Sequence[str] | None = None) -> int:
    """Run the arms that are asked for, print their table, and keep it."""
    asked = _asked(words)
    if not merchants.found():
        print(merchants.MISSING, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left behind
    from benchmarks.bench import Bench  # noqa: PLC0415 - it loads the package, which is not needed to say no

    rounds = 1 if asked.quick else ROUNDS
    print(f"{os.cpu_count()} cores, {'ONE ROUND ONLY (quick)' if asked.quick else f'medians of {rounds} rounds'}")
    rows: list[Row] = []
    kept: dict[str, list[list[Row]]] = {}
    began = time.monotonic()
    with ExitStack() as stack:
        bench = Bench(stack)
        for name in ARMS:
            if not asked.names or name in asked.names:
                arm = _arms()[name]
                kept[name] = [arm(bench) for _ in range(1 if name in ONCE else rounds)]
                found = merged(kept[name])
                rows += found
                print(table(found), flush=True)
    _keep(rows, kept, rounds)
    print(f"{time.monotonic() - began:.0f} s; kept in benchmarks/{RESULTS.name}")
    return 0


def _asked(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description="Speed, as ratios taken in one run.")
    parser.add_argument("names", nargs="*", help=f"which arms; all, if none is named: {', '.join(ARMS)}")
    parser.add_argument("--quick", action="store_true", help="one round instead of three")
    asked = parser.parse_args(words)
    unknown = [name for name in asked.names if name not in ARMS]
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(ARMS)}")
    return asked


def _arms() -> Mapping[str, Callable[..., list[Row]]]:
    from benchmarks.arms import cost, fairness, held, reads, speed  # noqa: PLC0415 - they read the environment

    return {
        "throughput": speed.throughput,
        "producer": speed.producer,
        "latency": speed.latency,
        "fairness": fairness.fairness,
        "recovery": fairness.recovery,
        "held": held.held,
        "cost": cost.cost,
        "scale": speed.scale,
        "crowding": speed.crowding,
        "reads": reads.reads,
    }


def _keep(rows: Sequence[Row], kept: Mapping[str, Sequence[Sequence[Row]]], rounds: int) -> None:
    result = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cores": os.cpu_count(),
        "rounds": rounds,
        "rows": as_json(rows),
        "each round": {name: [as_json(each) for each in of] for name, of in kept.items()},
    }
    RESULTS.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(main())
