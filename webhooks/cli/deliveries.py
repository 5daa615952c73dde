"""`webhooks delivery`: where each event is on its way, with every attempt."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click

from webhooks import parts
from webhooks.cli.choosing import narrowed, narrowed_by_state, paged, wanted
from webhooks.cli.interrupts import held_back
from webhooks.cli.names import DeliveryId, delivery_argument
from webhooks.cli.output import as_json, print_facts, print_json, print_table, progress, words
from webhooks.cli.verdicts import conclude
from webhooks.errors import NotPossible
from webhooks.ledger.views import Wanted
from webhooks.operating import deliveries, looking
from webhooks.operating.looking import Next
from webhooks.operating.terminal import operator


@click.group()
def delivery() -> None:
    """Look at deliveries, send them again, or cancel them."""


@delivery.command("list")
@narrowed
@narrowed_by_state
@paged("ID")
@as_json
def list_(limit: int, after: str | None, json_: bool, **narrowed: Any) -> None:
    """List deliveries, the newest first."""
    page = parts.views().deliveries(wanted(narrowed), limit, after)
    if json_:
        print_json([asdict(item) for item in page.items])
        return
    rows = [
        (item.id, item.merchant_id, item.endpoint_id, item.type, item.standing(), item.attempts, item.accepted_at)
        for item in page.items
    ]
    title = f"the newest {limit} deliveries; there are more, see --limit" if page.next else f"{len(rows)} deliveries"
    print_table(title, ["delivery", "merchant", "endpoint", "type", "state", "attempts", "accepted"], rows)
    if page.next:
        click.echo(f"the next ones: --after {page.next}")


@delivery.command("find")
@click.argument("text")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="As many at most.")
@as_json
def find(text: str, limit: int, json_: bool) -> None:
    """Find deliveries by what support has in hand: a payment_id, an external_id, an event's id; the newest first.

    WEBHOOKS_KEYS says by which fields of their bodies events are found.
    """
    found = parts.views().find(text, limit)
    if json_:
        print_json([{**asdict(each.delivery), "field": each.field} for each in found])
        return
    rows = [
        (
            *(each.delivery.id, each.field, each.delivery.merchant_id, each.delivery.endpoint_id, each.delivery.type),
            *(each.delivery.standing(), each.delivery.attempts, each.delivery.accepted_at),
        )
        for each in found
    ]
    columns = ["delivery", "found by", "merchant", "endpoint", "type", "state", "attempts", "accepted"]
    print_table(f"{len(rows)} deliveries of events with {text}", columns, rows)


@delivery.command("show")
@delivery_argument
@as_json
def show(delivery_id: str, json_: bool) -> None:
    """Show one delivery: its attempts, what comes next, when and why, and what people noted about it."""
    trail, dealings = looking.delivery(delivery_id), parts.desk().dealings(delivery_id)
    found, facts = trail.history, asdict(trail.history.delivery)
    if json_:
        journey = [asdict(made) for made in found.attempts]
        print_json({**facts, "next": asdict(trail.next), "note": found.note, **asdict(dealings), "journey": journey})
        return
    told = {name.replace("_", " "): value for name, value in facts.items()}
    print_facts({**told, "state": found.delivery.standing(), "next": _in_line(trail.next)})
    if found.note:
        click.echo(f"note: {found.note}")
    for note in dealings.notes:
        click.echo(f"{note.who} noted at {words(note.at)}: {note.text}")
    print_table(
        f"{len(found.attempts)} attempts",
        ["attempt", "started", "took", "outcome", "status", "cause", "ladder", "probe", "answer"],
        [
            (
                made.number,
                made.started_at,
                None if made.duration_ms is None else f"{made.duration_ms} ms",
                made.outcome,
                made.status,
                made.cause,
                made.ladder,
                made.probe,
                made.excerpt,
            )
            for made in found.attempts
        ],
    )


@delivery.command("cancel")
@click.argument("delivery_ids", nargs=-1, required=True, type=DeliveryId(), metavar="ID…")
@click.option("--why", required=True, help="The reason, for the audit.")
@as_json
def cancel(delivery_ids: tuple[str, ...], why: str, json_: bool) -> None:
    """End deliveries for good: nothing of theirs is sent from here on."""
    verdicts = deliveries.cancel(operator(why), delivery_ids)
    conclude("cancelled", verdicts, json_)


@delivery.command("replay")
@click.argument("delivery_ids", nargs=-1, type=DeliveryId(), metavar="[ID…]")
@narrowed
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
    chosen = wanted(narrowed)
    if bool(delivery_ids) is (chosen != Wanted()):
        raise NotPossible("name deliveries, or choose them by --merchant, --reason, --type, --since …; see --help")
    if cancelled and not delivery_ids:
        raise NotPossible("--cancelled goes with ids; to choose what was cancelled by options: --reason cancelled")
    if why is None and not dry_run:
        raise NotPossible("say --why: it is written into the audit")
    if not delivery_ids:
        _replay_chosen(chosen, again, dry_run, why, json_)
    elif dry_run:
        judged = parts.replays().judge(delivery_ids, again=again, cancelled=cancelled)
        conclude("would be sent again", judged, json_)
    else:
        verdicts = deliveries.replay(operator(why), delivery_ids, again=again, cancelled=cancelled)
        conclude("is being sent again", verdicts, json_)


def _replay_chosen(which: Wanted, again: bool, dry_run: bool, why: str | None, json_: bool) -> None:
    began = parts.replays().now()
    chosen = parts.replays().count(which, again=again, finished_before=began)
    done = 0 if dry_run else _replay_in_batches(which, again, began, chosen.number, why)
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


def _replay_in_batches(which: Wanted, again: bool, began: datetime, total: int, why: str | None) -> int:
    """Replay what had finished when the command began. Ctrl-C waits for the end of a batch."""
    done = 0
    with held_back() as told_to_end, progress("replaying", total) as bar:
        for batch in deliveries.replay_some(operator(why), which, again=again, began=began):
            done += batch
            bar.update(batch)
            if told_to_end.is_set():
                raise click.Abort
    return done


def _in_line(coming: Next) -> str:
    at = f"{words(coming.at)}, in {words(coming.at - datetime.now(UTC))}: " if coming.at else ""
    return f"{coming.what}; {at}{coming.why}"
