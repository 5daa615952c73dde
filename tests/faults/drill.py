"""The drill: a few thousand events through real processes, and everything that can break is broken meanwhile.

    make drill                       # about 5 minutes, each fault once or twice, in random order
    make drill MINUTES=30 SEED=7     # longer, and the same order again
    make drill POOLER=1              # with a PgBouncer between the system and its ledger

At the end nothing may be lost, sent twice without a reason, or stuck; the exit status says so.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.console import Console

from tests import pgbouncer
from tests.faults import inquest, report
from tests.faults.consumers import left_over
from tests.faults.evidence import Calm, Evidence, gather
from tests.faults.faults import Faults
from tests.faults.kinds import Fault
from tests.faults.producers import Producers
from tests.faults.sabotage import SABOTAGES
from tests.faults.theatre import SETTINGS, Theatre
from tests.faults.watch import Watch
from webhooks import parts
from webhooks.demo.stage import wait_until
from webhooks.errors import NotPossible, Unavailable
from webhooks.model import State

_OF_PRODUCERS = "refusals-are-swallowed"
_SETTLES_WITHIN = 90  # seconds after the last fault
_SETTLES_USUALLY = 15
_LETS_GO_WITHIN = 60  # seconds; a message that was doubled or restored may wait out its countdown first
_STARTS_WITHIN = 2  # seconds until every process has its connections
_RECOVERS_WITHIN = 8  # seconds after a fault: two leases, and what was lost is published again
_CALM = 7  # seconds without a fault, in which healthy merchants are looked at
_FAULTS_BETWEEN_CALMS = 5


def read_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.drill", description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=5, help="how long it runs (5)")
    parser.add_argument("--seed", type=int, help="the order of the faults; random when left out")
    parser.add_argument("--only", help="play these faults only, by name, separated by commas")
    parser.add_argument("--pooler", action="store_true", help="have a PgBouncer between the system and its ledger")
    parser.add_argument("--sabotage", choices=sorted(SABOTAGES), help="break a promise, to see the drill fail")
    parser.add_argument("--keep-logs", type=Path, help="copy the processes' logs to this folder")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1_000_000)
    return options


def main() -> int:
    """Play the drill; returns the exit status."""
    options = read_options()
    console = Console(width=int(os.environ.get("COLUMNS", "120")))
    console.print(f"drill: --minutes {options.minutes:g} --seed {options.seed}", highlight=False)
    console.print("shortened: " + ", ".join(f"{name.lower()} {value}" for name, value in SETTINGS.items()), style="dim")
    if options.sabotage:
        console.print(f"sabotaged: {SABOTAGES[options.sabotage].__doc__}", style="yellow")
    if options.sabotage == _OF_PRODUCERS:
        SABOTAGES[options.sabotage]()
    if options.pooler and not pgbouncer.is_installed():
        console.print(f"{pgbouncer.MISSING}: the drill goes on without it", style="yellow")
        options.pooler = False
    with Theatre(options.seed, options.sabotage, pooled=options.pooler) as theatre:
        try:
            evidence, figures = _play(theatre, options, console)
            findings = report.show(evidence, figures, console)
            if findings:
                inquest.look(theatre, evidence, findings, console)
        except BaseException:
            _keep_logs(theatre, options.keep_logs, console)
            raise
        if findings or options.keep_logs:
            _keep_logs(theatre, options.keep_logs, console)
        return 1 if findings else 0


def _keep_logs(theatre: Theatre, folder: Path | None, console: Console) -> None:
    kept = inquest.keep_logs(theatre, folder)
    console.print(f"the processes' logs are in {kept}", soft_wrap=True, highlight=False)


def _play(theatre: Theatre, options: argparse.Namespace, console: Console) -> tuple[Evidence, dict[str, object]]:
    dice = random.Random(options.seed)
    faults = Faults(theatre, dice)
    producers = Producers(options.seed)
    hurry = 3 if options.sabotage else 1  # then it is known that something never comes
    with Watch(theatre) as watch:
        with producers:
            calms = _play_faults(
                theatre, faults, _order(list(faults.all), options.only, dice), options.minutes, console
            )
            theatre.cast.down.clear()
        settled = _settle(_SETTLES_WITHIN / hurry)
    played = [*faults.played, *_ended_by_themselves(theatre)]
    evidence = gather(
        accepted=producers.accepted,
        book=theatre.cast.book.visits,
        faults=played,
        deleted=faults.deleted,
        calms=calms,
        unacknowledged=faults.unacknowledged,
        broken=[f"a producer broke: {error!r}" for error in producers.broken],
        left_over=left_over(_LETS_GO_WITHIN / hurry),
        deepest=watch.deepest,
        most_copies=watch.most_copies,
        longest_overdue=watch.longest_overdue,
    )
    return evidence, {
        "producers told to try again": producers.refused,
        "settled after": f"{settled:.1f} s",
        "faults": ", ".join(f"{name} {n}" for name, n in sorted(Counter(fault.name for fault in played).items())),
        "processes that ended by themselves": ", ".join(name for name, _ in theatre.ended_by_themselves) or "none",
    }


def _play_faults(
    theatre: Theatre, faults: Faults, order: Iterator[str], minutes: float, console: Console
) -> list[Calm]:
    """Play one fault after the other until the time is over; returns the calms before, between and after them."""
    began, length = time.monotonic(), 60 * minutes - _SETTLES_USUALLY
    calms = [_calm(faults, _STARTS_WITHIN)]
    for number, name in enumerate(order, 1):
        spent = (time.monotonic() - began) / length
        if number > 1 and spent >= 1 - (_RECOVERS_WITHIN + _CALM) / length:
            break
        _let_merchant_fail(theatre, spent)
        _say(console, faults.play(name), began)
        faults.rest(1, 3)
        if number % _FAULTS_BETWEEN_CALMS == 0:
            calms.append(_calm_beside_an_outage(theatre, faults))
    return [*calms, _calm_beside_an_outage(theatre, faults)]


def _calm_beside_an_outage(theatre: Theatre, faults: Faults) -> Calm:
    theatre.cast.down.set()
    return _calm(faults, _RECOVERS_WITHIN)


def _calm(faults: Faults, after: float) -> Calm:
    """Leave everything alone: first for as long as it takes to recover, then to see how it goes."""
    faults.rest(after, after)
    since = datetime.now(UTC)
    faults.rest(_CALM, _CALM)
    return Calm(since, datetime.now(UTC))


def _order(names: list[str], only: str | None, dice: random.Random) -> Iterator[str]:
    """Give the faults in random order, round after round."""
    chosen = only.split(",") if only else names
    while True:
        yield from dice.sample(chosen, len(chosen))


def _let_merchant_fail(theatre: Theatre, spent: float) -> None:
    """Have one merchant's endpoint down for two fifths of the time."""
    if 0.1 < spent < 0.3 or 0.6 < spent < 0.8:
        theatre.cast.down.set()
    else:
        theatre.cast.down.clear()


def _say(console: Console, fault: Fault, began: float) -> None:
    took = (fault.ended - fault.began).total_seconds()
    console.print(
        f"{time.monotonic() - began:6.1f} s  {fault.ended:%H:%M:%S}  {fault.name} ({took:.1f} s)", highlight=False
    )


def _settle(within: float) -> float:
    """Wait until every delivery has ended; returns how long that took."""
    began = time.monotonic()
    with contextlib.suppress(NotPossible):
        wait_until(_has_settled, "every delivery has ended", timeout=within)
    return time.monotonic() - began


def _has_settled() -> bool:
    try:
        counted = parts.views().count_by_state()
    except Unavailable:
        return False
    return not counted[State.PENDING] and not counted[State.HELD]


def _ended_by_themselves(theatre: Theatre) -> list[Fault]:
    """Count what ended by itself among the faults: its attempts are as unknown as after a kill."""
    return [
        Fault("ended_by_itself", at - timedelta(seconds=2), at)
        for name, at in theatre.ended_by_themselves
        if name.startswith("worker")
    ]


if __name__ == "__main__":
    sys.exit(main())
