"""`webhooks status` and `webhooks health`: how things stand, in one look and with one exit status."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from math import isnan
from socket import gethostname
from time import sleep
from typing import Any

import click

from webhooks import parts
from webhooks.cli.interrupts import ending_well
from webhooks.cli.output import as_json, facts_in_lines, print_json, print_json_line, words
from webhooks.cli.overview import facts_of, lines_of
from webhooks.health import judging
from webhooks.health.asking import Fault, Questions, ask
from webhooks.ledger.counting import Standing
from webhooks.settings import get_settings

_PATIENCE = timedelta(seconds=20)  # counting a large ledger takes a while
_SHORT_PATIENCE = timedelta(seconds=8)
_EVERY_S = 5.0


class _Seconds(click.FloatRange):
    """Seconds, of which Python would also take "nan" for a number."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read them."""
        seconds = float(super().convert(value, param, ctx))
        if isnan(seconds):
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        return seconds


@click.command()
@click.option(
    "--watch",
    type=_Seconds(0.1, 3600),
    is_flag=False,
    flag_value=_EVERY_S,
    metavar="[SECONDS]",
    help=f"Say it again and again, every {_EVERY_S:g} seconds or as often as that, until Ctrl-C.",
)
@as_json
def status(watch: float | None, json_: bool) -> None:
    """Say how many deliveries stand where, what each part says of itself, and what is wrong; exit 1 if anything is.

    With --watch the screen is drawn anew; into a pipe one goes after the other, with --json as one object a line. Then
    Ctrl-C is the end, and a good one.
    """
    get_settings()  # a mistake in them is said as one, and not as a part that is away
    if watch is None:
        answers, faults = _look()
        if json_:
            print_json(_as_json(answers, faults))
        else:
            click.echo("\n".join(_in_lines(answers, faults)))
        click.get_current_context().exit(1 if faults else 0)
    with ending_well() as wished:
        while not wished.is_set():
            answers, faults = _look()
            _draw(answers, faults, json_)
            sleep(watch)


def _look() -> tuple[Mapping[str, Any], Sequence[Fault]]:
    """Ask every part, and judge what it says."""
    views, asked = parts.views(), judging.of_system()
    asked["ledger"] = {**asked["ledger"], "standing": views.standing, "desk": parts.desk().numbers}
    asked["ledger, counting"] = {"ledger answers": judging.last_sweep, "pace": views.pace}
    asked["gate"] = {"breakers not working": _not_working, **asked["gate"]}
    answers: dict[str, Any] = dict(ask(asked, within=_PATIENCE))
    standing = answers["standing"]
    answers["overdue"] = standing.most_overdue if isinstance(standing, Standing) else standing
    return answers, [*judging.judge_system(answers), *judging.judge_overdue(answers)]


def _draw(answers: Mapping[str, Any], faults: Sequence[Fault], json_: bool) -> None:
    """Print one look of many; a screen is cleared when all that goes onto it is known."""
    if json_:
        print_json_line(_as_json(answers, faults))
        return
    lines = [words(datetime.now(UTC)), *_in_lines(answers, faults)]
    if sys.stdout.isatty():
        click.clear()
    click.echo("\n".join(lines if sys.stdout.isatty() else [*lines, ""]))


def _as_json(answers: Mapping[str, Any], faults: Sequence[Fault]) -> dict[str, Any]:
    facts = {name.replace(" ", "_"): value for name, value in facts_of(answers).items()}
    return {**facts, "faults": [asdict(fault) for fault in faults]}


def _in_lines(answers: Mapping[str, Any], faults: Iterable[Fault]) -> list[str]:
    # Why something is not known is said once, as a fault.
    return [*facts_in_lines(lines_of(facts_of(answers, unknown="?"))), *map(_in_line, faults)]


@click.command()
@click.option("--worker", "name", metavar="NAME", help="Judge one worker; %h in its name is this host's.")
@click.option("--beat", is_flag=True, help="Judge the beat of this host.")
@click.option("--system", is_flag=True, help="Judge the whole as well.")
@as_json
def health(name: str | None, beat: bool, system: bool, json_: bool) -> None:
    """Judge whether everything goes on, for health checks and alarms: exit 1 and one line for each fault.

    Without options the whole system is judged: does the ledger take writes, do broker and gate answer, are sweeps
    done, does a worker take from each queue, and does each take what waits.
    """
    get_settings()
    if name == "":  # as of a variable that is not set: what would be judged is something else
        raise click.BadOptionUsage("worker", "--worker wants the name of a worker, such as sweep@%h")
    asked: dict[str, Questions] = judging.of_system() if system or not (name or beat) else {}
    faults: list[Fault] = []
    if asked:
        faults += judging.judge_system(ask(asked, within=_SHORT_PATIENCE))
    if name:
        name = name.replace("%h", gethostname())
        faults += judging.judge_worker(ask({"broker": judging.of_workers(name)}, within=_SHORT_PATIENCE), name)
    if beat:
        faults += judging.judge_beat(ask({"broker": judging.of_beat()}, within=_SHORT_PATIENCE))
    faults = list(dict.fromkeys(faults))
    if json_:
        print_json({"faults": [asdict(fault) for fault in faults]})
    else:
        click.echo("\n".join(map(_in_line, faults)) or "all is well")
    click.get_current_context().exit(1 if faults else 0)


def _in_line(fault: Fault) -> str:
    return f"FAULT  {fault.part}: {fault.text}"


def _not_working() -> dict[str, str]:
    return {item.endpoint_id: str(item.state) for item in parts.gate().list() if item.state != "working"}
