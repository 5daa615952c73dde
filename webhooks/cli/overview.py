"""How things stand, as `webhooks status` tells it: facts by names that stay, and each as one line of a screen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from webhooks.celery.app import DELIVERIES
from webhooks.cli.output import words
from webhooks.health import judging
from webhooks.health.asking import Fault
from webhooks.ledger.counting import Overdue, Standing
from webhooks.ledger.leases import Done
from webhooks.model import HeldFor
from webhooks.sweep import Sighting

_NAMED = 10  # in one line of a screen


def facts_of(answers: Mapping[str, Any], *, unknown: str | None = None) -> dict[str, Any]:
    """Return what is told, by stable names; in place of what could not be asked stands `unknown`, or the reason."""
    told = {name: (unknown or answer.text) if isinstance(answer, Fault) else answer for name, answer in answers.items()}
    overdue, waiting = told["overdue"], told[f"queue {DELIVERIES}"]
    return {
        "last minute": _if_known(told["pace"], lambda pace: _counts(pace.last_minute)),
        **_of_standing(told["standing"]),
        "needs a person": _if_known(told["desk"], asdict),
        "longest overdue": overdue if isinstance(overdue, str) else overdue.span if overdue else timedelta(),
        "most overdue": overdue.delivery_id if isinstance(overdue, Overdue) else None,
        "ledger takes writes": told["ledger takes writes"],
        "sweep": _sweep(told["sweep"]),
        "queued messages": waiting.depth if isinstance(waiting, Sighting) else waiting,
        "queues": {name: _queue(told[f"queue {name}"], told["sweep"]) for name in judging.QUEUES},
        "workers": _if_known(told["workers"], lambda workers: {name: asdict(each) for name, each in workers.items()}),
        "breakers not working": told["breakers not working"],
    }


def _if_known(value: Any, tell: Callable[[Any], Any]) -> Any:
    return value if isinstance(value, str) else tell(value)


def _of_standing(standing: Standing | str) -> dict[str, Any]:
    if isinstance(standing, str):
        names = ("deliveries", "delivered is about", "held for", "held by", "failed for", "failed money")
        return dict.fromkeys((*names, "not registered"), standing)
    return {
        "deliveries": {str(state): number for state, number in standing.by_state.items()},
        "delivered is about": standing.is_about,
        "held for": _held_for(standing.held, standing.let_go),
        "held by": [asdict(holder) for holder in standing.holders],
        "failed for": dict(standing.failed),
        "failed money": standing.failed_money,
        "not registered": list(standing.unregistered),
    }


def _held_for(held: Mapping[HeldFor, int], let_go: Mapping[HeldFor, int]) -> dict[str, int]:
    """Count apart what the next sweep lets go: its merchant is held for nothing any more."""
    still = {str(cause): number - let_go.get(cause, 0) for cause, number in held.items()}
    still["next sweep"] = sum(let_go.values())
    return {cause: number for cause, number in still.items() if number > 0}


def _counts(tally: Any) -> dict[str, Any]:
    return {name: getattr(tally, name) for name in ("accepted", "delivered", "failed", "lag", "longest_lag")}


def _sweep(done: Any) -> Any:
    if not isinstance(done, Done):
        return done
    return {"finished_at": done.finished_at, "ago": done.ago, "by": done.by}


def _queue(queue: Any, done: Any) -> Any:
    if not isinstance(queue, Sighting):
        return queue
    waits = done.now - queue.oldest if queue.oldest and isinstance(done, Done) else None
    return {"depth": queue.depth, "oldest_waits": waits}


def lines_of(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return the facts as lines of a screen, what belongs together in one."""
    shown = dict(facts)
    is_about, money = shown.pop("delivered is about"), shown.pop("failed money")
    lines = {name: _in_line(name, value) for name, value in shown.items()}
    if is_about is True:
        lines["deliveries"] += "; the delivered are an estimate"
    if isinstance(money, int) and money:
        lines["failed for"] += f"; {money} of them money"
    return lines


def _in_line(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if name in _LINES:
        return _LINES[name](value) or "none"
    if isinstance(value, dict):
        return _counted(value) or "none"
    return _listed(value) or "none" if isinstance(value, list) else words(value)


def _listed(each: Sequence[str]) -> str:
    more = f" and {len(each) - _NAMED} more" if len(each) > _NAMED else ""
    return ", ".join(each[:_NAMED]) + more


def _counted(counts: Mapping[str, Any]) -> str:
    return ", ".join(f"{count} {what}" for what, count in counts.items())


def _last_minute(pace: dict[str, Any]) -> str:
    lag = "" if pace["lag"] is None else f"; sent {words(pace['lag'])} after they were due"
    return _counted({name: pace[name] for name in ("accepted", "delivered", "failed")}) + lag


def _holders(holders: Iterable[dict[str, Any]]) -> str:
    strange = {True: "", False: " (not registered)"}
    return _listed([f"{each['number']} {each['merchant_id']}{strange[each['registered']]}" for each in holders])


def _on_desk(desk: dict[str, Any]) -> str:
    if not desk["open"]:
        return "nothing failed that nobody has dealt with"
    return (
        f"{desk['open']} failed, {desk['money']} of them money, {desk['unseen']} seen by nobody; see: webhooks failed"
    )


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


def _breakers(breakers: dict[str, str]) -> str:
    return _listed([f"{state} {endpoint_id}" for endpoint_id, state in breakers.items()])


_LINES: dict[str, Callable[[Any], str]] = {
    "last minute": _last_minute,
    "held by": _holders,
    "needs a person": _on_desk,
    "sweep": _last_sweep,
    "queues": _waiting,
    "workers": _taking,
    "breakers not working": _breakers,
}
