"""`webhooks delivery`: where each event is on its way, with every attempt."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import click

from webhooks import parts
from webhooks.cli.interrupts import held_back
from webhooks.cli.names import MerchantId
from webhooks.cli.output import as_json, print_facts, print_json, print_table
from webhooks.errors import NotPossible
from webhooks.ledger.replays import Verdict
from webhooks.ledger.views import Wanted
from webhooks.model import Reason, State
from webhooks.operating.terminal import operator
from webhooks.process.spans import in_words


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


@click.group()
def delivery() -> None:
    """Look at deliveries, send them again, or cancel them."""


def _narrowed(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that choose deliveries; they are the fields of `Wanted`."""
    options = [
        click.option("--merchant", "merchant_id", type=MerchantId(), help="Only this merchant's."),
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
    journey, note = found.pop("journey"), found.pop("note")
    print_facts({**{name.replace("_", " "): value for name, value in found.items()}, "state": _standing(found)})
    if note:
        click.echo(f"note: {note}")
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
    with parts.act(operator(why), "they were cancelled", "webhooks delivery show ID") as act:
        verdicts = parts.replays().within(act).cancel(delivery_ids)
        act.note_deliveries("cancel of", _done(verdicts))
    _conclude("cancelled", verdicts, json_)


@delivery.command("replay")
@click.argument("delivery_ids", nargs=-1, metavar="[ID…]")
@_narrowed
@click.option("--again", is_flag=True, help="Also what was delivered.")
@click.option("--cancelled", is_flag=True, help="Also those of the named ones that an operator cancelled.")
@click.option("--dry-run", is_flag=True, help="Say what would be sent again, and change nothing.")
@click.option("--why", help="The reason, for the audit.")
@as_json
def replay(
    delivery_ids: tuple[str, ...],
    again: bool,
    cancelled: bool,
    dry_run: bool,
    why: str | None,
    json_: bool,
    **narrowed: Any,
) -> None:
    """Send finished deliveries again: same id, same bytes, fresh budgets, paced like any release.

    Name deliveries, or choose failed ones by merchant, reason, type and time. What an operator cancelled is left out,
    unless it is named with --cancelled or chosen by --reason cancelled.
    """
    wanted = Wanted(**narrowed)
    if bool(delivery_ids) is (wanted != Wanted()):
        raise NotPossible("name deliveries, or choose them by --merchant, --reason, --type, --since and --until")
    if cancelled and not delivery_ids:
        raise NotPossible("--cancelled goes with ids; to choose what was cancelled by options: --reason cancelled")
    if why is None and not dry_run:
        raise NotPossible("say --why: it is written into the audit")
    if not delivery_ids:
        _replay_chosen(wanted, again, dry_run, why, json_)
    elif dry_run:
        verdicts = parts.replays().judge(delivery_ids, again=again, cancelled=cancelled)
        _conclude("would be sent again", verdicts, json_)
    else:
        with parts.act(operator(why), "they are being sent again", "webhooks delivery show ID") as act:
            verdicts = parts.replays().within(act).replay(delivery_ids, again=again, cancelled=cancelled)
            act.note_deliveries("replay of", _done(verdicts))
        _conclude("is being sent again", verdicts, json_)


def _replay_chosen(wanted: Wanted, again: bool, dry_run: bool, why: str | None, json_: bool) -> None:
    began = parts.replays().now()
    chosen = parts.replays().count(wanted, again=again, finished_before=began)
    done = 0 if dry_run else _replay_in_batches(wanted, again, began, chosen.number, why)
    if json_:
        facts = {"matching": chosen.number, "by_merchant": chosen.by_merchant, "replayed": done}
        print_json({**facts, "answered_2xx": chosen.answered, "cancelled_left_out": chosen.left_out})
        return
    if not chosen.number:
        click.echo("nothing matches: no delivery is sent again")
    elif dry_run:
        by_merchant = sorted(chosen.by_merchant.items())
        print_table(f"{chosen.number} deliveries would be sent again", ["merchant", "deliveries"], by_merchant)
    else:
        click.echo(f"{done} deliveries are being sent again")
    if chosen.answered:
        click.echo(f"{chosen.answered} of them have an attempt that was answered 2xx: the merchant has those")
    if chosen.left_out:
        click.echo(f"{chosen.left_out} that an operator cancelled are left out; see --reason cancelled")


def _replay_in_batches(wanted: Wanted, again: bool, began: datetime, total: int, why: str | None) -> int:
    """Replay what had finished when the command began. Ctrl-C waits for the end of a batch."""
    done = 0
    with held_back() as told_to_end, click.progressbar(length=total, label="replaying", file=sys.stderr) as bar:
        while batch := _replay_batch(wanted, again, began, why):
            done += batch
            bar.update(batch)
            if told_to_end.is_set():
                raise click.Abort
    return done


def _replay_batch(wanted: Wanted, again: bool, began: datetime, why: str | None) -> int:
    """Replay some, and tell the audit which; however the command ends, it has told every batch that counts."""
    with parts.act(operator(why), "the last of them are being sent again", "webhooks audit") as act:
        replays = parts.replays().within(act)
        taken = replays.replay_some(wanted, again=again, finished_before=began, most=_BATCH)
        act.note_deliveries(f"replay of {_in_words(wanted)}:", taken)
    return len(taken)


def _in_words(wanted: Wanted) -> str:
    return ", ".join(f"{name} {value}" for name, value in asdict(wanted).items() if value is not None)


def _done(verdicts: Sequence[Verdict]) -> Sequence[str]:
    return [verdict.delivery_id for verdict in verdicts if verdict.refused is None]


def _conclude(what: str, verdicts: Sequence[Verdict], json_: bool) -> None:
    """Print what became of each delivery, and exit 1 when one was refused."""
    if json_:
        print_json([asdict(verdict) for verdict in verdicts])
    else:
        for verdict in verdicts:
            told = verdict.refused or "; ".join(filter(None, (what, verdict.note)))
            click.echo(f"{verdict.delivery_id}: {told}", err=verdict.refused is not None)
    if len(_done(verdicts)) < len(verdicts):
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
