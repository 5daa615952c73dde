"""`webhooks status` and `webhooks health`: how things stand, in one look and with one exit status."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from datetime import timedelta
from socket import gethostname
from typing import Any

import click

from webhooks import parts
from webhooks.celery.app import DELIVERIES
from webhooks.cli.output import as_json, print_facts, print_json, words
from webhooks.health import judging
from webhooks.health.asking import Fault, Questions, ask
from webhooks.ledger.counting import Overdue
from webhooks.ledger.leases import Done
from webhooks.settings import get_settings
from webhooks.sweep import Sighting

_PATIENCE = timedelta(seconds=20)  # counting a large ledger takes a while
_SHORT_PATIENCE = timedelta(seconds=8)


@click.command()
@as_json
def status(json_: bool) -> None:
    """Say how many deliveries stand where, what each part says of itself, and what is wrong; exit 1 if anything is."""
    get_settings()  # a mistake in them is said as one, and not as a part that is away
    views, asked = parts.views(), judging.of_system()
    asked["ledger"] = {
        **asked["ledger"],
        "overdue": views.most_overdue,
        "deliveries": views.count_by_state,
        "held for": views.count_held,
        "let go": views.count_let_go,
        "not registered": views.unregistered,
    }
    asked["gate"] = {"breakers not working": _not_working}
    answers = ask(asked, within=_PATIENCE)
    faults = [*judging.judge_system(answers), *judging.judge_overdue(answers)]
    if json_:
        facts = {name.replace(" ", "_"): value for name, value in _facts(answers).items()}
        print_json({**facts, "faults": [asdict(fault) for fault in faults]})
    else:
        # Why something is not known is said once, as a fault.
        print_facts({name: _in_line(name, value) for name, value in _facts(answers, unknown="?").items()})
        _print(faults)
    click.get_current_context().exit(1 if faults else 0)


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
    elif faults:
        _print(faults)
    else:
        click.echo("all is well")
    click.get_current_context().exit(1 if faults else 0)


def _print(faults: Iterable[Fault]) -> None:
    for fault in faults:
        click.echo(f"FAULT  {fault.part}: {fault.text}")


def _not_working() -> dict[str, str]:
    return {item.endpoint_id: item.state for item in parts.gate().list() if item.state != "working"}


def _facts(answers: Mapping[str, Any], *, unknown: str | None = None) -> dict[str, Any]:
    """Return what is told, by stable names; in place of what could not be asked stands `unknown`, or the reason."""
    told = {name: (unknown or answer.text) if isinstance(answer, Fault) else answer for name, answer in answers.items()}
    overdue, deliveries = told["overdue"], told[f"queue {DELIVERIES}"]
    return {
        "deliveries": told["deliveries"],
        "held for": _held_for(told["held for"], told["let go"]),
        "not registered": told["not registered"],
        "longest overdue": overdue if isinstance(overdue, str) else overdue.span if overdue else timedelta(),
        "most overdue": overdue.delivery_id if isinstance(overdue, Overdue) else None,
        "ledger takes writes": told["ledger takes writes"],
        "sweep": _sweep(told["sweep"]),
        "queued messages": deliveries.depth if isinstance(deliveries, Sighting) else deliveries,
        "queues": {name: _queue(told[f"queue {name}"], told["sweep"]) for name in judging.QUEUES},
        "workers": _workers(told["workers"]),
        "breakers not working": told["breakers not working"],
    }


def _held_for(held: Any, let_go: Any) -> Any:
    """Count apart what the next sweep lets go: its merchant is held for nothing any more."""
    if isinstance(held, str) or isinstance(let_go, str):
        return held
    still = {cause: number - let_go.get(cause, 0) for cause, number in held.items()} | {
        "next sweep": sum(let_go.values())
    }
    return {cause: number for cause, number in still.items() if number > 0}


def _sweep(done: Any) -> Any:
    if not isinstance(done, Done):
        return done
    return {"finished_at": done.finished_at, "ago": done.ago, "by": done.by}


def _queue(queue: Any, done: Any) -> Any:
    if not isinstance(queue, Sighting):
        return queue
    waits = done.now - queue.oldest if queue.oldest and isinstance(done, Done) else None
    return {"depth": queue.depth, "oldest_waits": waits}


def _workers(workers: Any) -> Any:
    if isinstance(workers, str):
        return workers
    return {name: asdict(worker) for name, worker in workers.items()}


def _in_line(name: str, value: Any) -> str:
    if isinstance(value, dict):
        return _LINES.get(name, _counted)(value) or "none"
    return ", ".join(value) or "none" if isinstance(value, list) else words(value)


def _counted(counts: dict[str, Any]) -> str:
    return ", ".join(f"{count} {what}" for what, count in counts.items())


def _last_sweep(done: dict[str, Any]) -> str:
    return "never done" if done["ago"] is None else f"done {words(done['ago'])} ago, by {done['by']}"


def _waiting(queues: dict[str, Any]) -> str:
    def one(state: Any) -> str:
        if isinstance(state, str):
            return state
        since = "" if state["oldest_waits"] is None else f", the oldest for {words(state['oldest_waits'])}"
        return f"{state['depth']} wait{since}"

    return "; ".join(f"{name}: {one(state)}" for name, state in queues.items())


def _taking(workers: dict[str, Any]) -> str:
    takes = {name: ", ".join(said["queues"]) or "nothing" for name, said in workers.items()}
    return "; ".join(f"{name} takes from {queues}" for name, queues in takes.items())


_LINES: dict[str, Callable[[dict[str, Any]], str]] = {"sweep": _last_sweep, "queues": _waiting, "workers": _taking}
