"""`webhooks delivery`: where each event is on its way, with every attempt."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import click

from webhooks import parts
from webhooks.cli.output import as_json, in_words, print_facts, print_json, print_table
from webhooks.errors import NotPossible
from webhooks.ledger.replays import Verdict
from webhooks.ledger.views import Wanted
from webhooks.model import Reason, State


class Moment(click.ParamType[datetime]):
    """A moment: `2026-01-31`, `2026-01-31T12:00`, UTC unless a zone is given."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Read ISO 8601."""
        try:
            moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is not a moment such as 2026-01-31 or 2026-01-31T12:00", param, ctx)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


class Word(click.ParamType[StrEnum]):
    """One of the words of an enumeration."""

    name = "word"

    def __init__(self, words: type[StrEnum]) -> None:
        self._words = words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> StrEnum:
        """Read the word, or name those that there are."""
        try:
            return self._words(value)
        except ValueError:
            self.fail(f"{value!r} is not one of {', '.join(self._words)}", param, ctx)


_BATCH = 500  # deliveries that one statement of a replay takes
_DONE = {"cancel": "cancelled", "replay": "is being sent again"}


@click.group()
def delivery() -> None:
    """Look at deliveries, send them again, or cancel them."""


def _narrowed(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that choose deliveries; they are the fields of `Wanted`."""
    options = [
        click.option("--merchant", "merchant_id", help="Only this merchant's."),
        click.option("--reason", type=Word(Reason), help="Only what failed for this reason."),
        click.option("--type", help="Only events of this type."),
        click.option("--since", type=Moment(), help="Accepted at this moment or later."),
        click.option("--until", type=Moment(), help="Accepted before this moment."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@delivery.command("list")
@_narrowed
@click.option("--state", type=Word(State), help="Only what is in this state.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@as_json
def list_(limit: int, json_: bool, **narrowed: Any) -> None:
    """List deliveries, the newest first."""
    asked = parts.views().deliveries(Wanted(**narrowed), limit + 1)  # one more tells whether there are more
    found = asked[:limit]
    if json_:
        print_json(found)
        return
    rows = [
        (item["id"], item["merchant_id"], item["type"], _standing(item), item["attempts"], item["accepted_at"])
        for item in found
    ]
    title = f"the newest {limit} deliveries; there are more, see --limit" if len(asked) > limit else None
    columns = ["delivery", "merchant", "type", "state", "attempts", "accepted"]
    print_table(title or f"{len(rows)} deliveries", columns, rows)


@delivery.command("show")
@click.argument("delivery_id")
@as_json
def show(delivery_id: str, json_: bool) -> None:
    """Show one delivery, with all its attempts."""
    found = parts.views().delivery(delivery_id)
    if json_:
        print_json(found)
        return
    journey = found.pop("journey")
    print_facts({**{name.replace("_", " "): value for name, value in found.items()}, "state": _standing(found)})
    print_table(
        f"{len(journey)} attempts",
        ["attempt", "started", "took", "outcome", "status", "cause", "ladder", "probe", "answer"],
        [
            (
                step["number"],
                step["started_at"],
                None if step["duration_ms"] is None else f"{step['duration_ms']} ms",
                step["outcome"],
                step["status"],
                step["cause"],
                step["ladder"],
                step["probe"],
                step["excerpt"],
            )
            for step in journey
        ],
    )


@delivery.command("cancel")
@click.argument("delivery_ids", nargs=-1, required=True, metavar="ID…")
@click.option("--why", required=True, help="The reason, for the audit.")
@as_json
def cancel(delivery_ids: tuple[str, ...], why: str, json_: bool) -> None:
    """End deliveries for good: nothing of theirs is sent from here on."""
    verdicts = parts.replays().cancel(delivery_ids)
    _conclude("cancel", verdicts, why, json_)


@delivery.command("replay")
@click.argument("delivery_ids", nargs=-1, metavar="[ID…]")
@_narrowed
@click.option("--again", is_flag=True, help="Also what was delivered.")
@click.option("--dry-run", is_flag=True, help="Count, and change nothing.")
@click.option("--why", help="The reason, for the audit.")
@as_json
def replay(
    delivery_ids: tuple[str, ...], again: bool, dry_run: bool, why: str | None, json_: bool, **narrowed: Any
) -> None:
    """Send finished deliveries again: same id, same bytes, fresh budgets, paced like any release.

    Name deliveries, or choose failed ones by merchant, reason, type and time.
    """
    wanted = Wanted(**narrowed)
    if bool(delivery_ids) is (wanted != Wanted()):
        raise NotPossible("name deliveries, or choose them by --merchant, --reason, --type, --since and --until")
    if why is None and not dry_run:
        raise NotPossible("say --why: it is written into the audit")
    if delivery_ids and dry_run:
        raise NotPossible("--dry-run counts what options choose; it goes with no ids")
    if delivery_ids:
        _conclude("replay", parts.replays().replay(delivery_ids, again=again), why, json_)
    else:
        _replay_chosen(wanted, again, dry_run, why, json_)


def _replay_chosen(wanted: Wanted, again: bool, dry_run: bool, why: str | None, json_: bool) -> None:
    began = parts.replays().now()
    counted = parts.replays().count(wanted, again=again, finished_before=began)
    total = sum(counted.values())
    done = 0 if dry_run else _replay_in_batches(wanted, again, began, total, why)
    if json_:
        print_json({"matching": total, "by_merchant": counted, "replayed": done})
    elif not total:
        click.echo("nothing matches: no delivery is sent again")
    elif dry_run:
        print_table(f"{total} deliveries would be sent again", ["merchant", "deliveries"], sorted(counted.items()))
    else:
        click.echo(f"{done} deliveries are being sent again")


def _replay_in_batches(wanted: Wanted, again: bool, began: datetime, total: int, why: str | None) -> int:
    """Replay what had finished when the command began; however this ends, the audit tells how many it was."""
    done = 0
    try:
        with (
            _between_batches() as told_to_end,
            click.progressbar(length=total, label="replaying", file=sys.stderr) as bar,
        ):
            while batch := parts.replays().replay_some(wanted, again=again, finished_before=began, most=_BATCH):
                done += batch
                bar.update(batch)
                if told_to_end.is_set():
                    raise click.Abort
    finally:
        if done:
            parts.audit().note(f"replay of {_in_words(wanted)}", why=why, deliveries=done)
    return done


@contextmanager
def _between_batches() -> Iterator[threading.Event]:
    """Let Ctrl-C wait for the end of a batch: one that is cut off from its answer is done all the same, uncounted."""
    told = threading.Event()
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(how, lambda *_: told.set()) for how in signals]
    try:
        yield told
    finally:
        for how, handler in zip(signals, before, strict=True):
            signal.signal(how, handler)


def _in_words(wanted: Wanted) -> str:
    return ", ".join(f"{name} {value}" for name, value in asdict(wanted).items() if value is not None)


def _conclude(what: str, verdicts: Sequence[Verdict], why: str | None, json_: bool) -> None:
    """Print what became of each delivery, write the audit, and exit 1 when one was refused."""
    done = [verdict.delivery_id for verdict in verdicts if verdict.refused is None]
    if done:
        parts.audit().note(f"{what} of {', '.join(done)}", why=why, deliveries=len(done))
    if json_:
        print_json([asdict(verdict) for verdict in verdicts])
    else:
        for verdict in verdicts:
            click.echo(f"{verdict.delivery_id}: {verdict.refused or _DONE[what]}", err=verdict.refused is not None)
    if len(done) < len(verdicts):
        click.get_current_context().exit(1)


def _standing(item: dict[str, Any] | Any) -> str:
    """Say a delivery's state with what it waits for."""
    match item["state"]:
        case State.FAILED:
            return f"failed: {item['reason']}"
        case State.HELD:
            return f"held for {item['held_for']}"
        case State.PENDING if item["sending_since"]:
            return "pending: being sent"
        case State.PENDING:
            wait = item["due_at"] - datetime.now(UTC)
            return f"pending: due in {in_words(wait)}" if wait.total_seconds() > 0 else "pending: due"
        case state:
            return str(state)
