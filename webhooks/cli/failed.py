"""`webhooks failed`: the desk, where a person deals with what failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import click

from webhooks import parts
from webhooks.cli.choosing import Word
from webhooks.cli.interrupts import held_back
from webhooks.cli.names import DeliveryId, MerchantId
from webhooks.cli.output import as_json, print_json, print_table, progress
from webhooks.cli.verdicts import conclude
from webhooks.errors import NotPossible
from webhooks.ledger.desk import OnDesk
from webhooks.ledger.replays import Verdict
from webhooks.model import Operator, Reason
from webhooks.operating import desk
from webhooks.operating.deliveries import done
from webhooks.operating.terminal import operator

_SHOWN = 20  # refusals of a whole group that are printed one by one

_merchant = click.option("--merchant", "merchant_id", type=MerchantId(), help="Only this merchant's.")
_reason = click.option("--reason", type=Word(Reason), help="Only what failed for this reason.")
_named = click.argument("delivery_ids", nargs=-1, type=DeliveryId(), metavar="[ID…]")
_why = click.option("--why", required=True, help="The reason, for the audit.")


@click.group(invoke_without_command=True)
@as_json
@click.pass_context
def failed(context: click.Context, json_: bool) -> None:
    """List what failed and nobody has dealt with, by merchant and reason, money first; and deal with it."""
    if context.invoked_subcommand is None:
        _groups(json_)


def _groups(json_: bool) -> None:
    numbers, found = parts.desk().numbers(), parts.desk().groups()
    if json_:
        groups = [asdict(group) for group in found.items]
        print_json({**asdict(numbers), "groups": groups, "groups_left_out": found.left_out})
        return
    if not numbers.open:
        click.echo("nothing failed that nobody has dealt with")
        return
    title = f"{numbers.open} failed: {numbers.money} of them money, {numbers.unseen} seen by nobody"
    columns = ["merchant", "reason", "failed", "money", "unseen", "oldest", "newest", "such as", "answer", "cause"]
    rows = [
        (
            *(group.merchant_id, group.reason, group.number, group.money, group.unseen, group.oldest, group.newest),
            *(group.example_id, group.status, group.cause or group.excerpt),
        )
        for group in found.items
    ]
    print_table(title, columns, rows)
    if found.left_out:
        click.echo(f"there are {found.left_out} more groups; see --json, or: webhooks failed list")


@failed.command("list")
@_merchant
@_reason
@click.option("--money/--no-money", default=None, help="Only what is money, or only what is not.")
@click.option("--all", "all_", is_flag=True, help="Also what was dismissed, or cancelled by an operator.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="As many at most.")
@click.option("--after", metavar="PLACE", help="Go on behind this place, which a page before named.")
@as_json
def list_(
    merchant_id: str | None,
    reason: Reason | None,
    money: bool | None,
    all_: bool,
    limit: int,
    after: str | None,
    json_: bool,
) -> None:
    """List failed deliveries that nobody has dealt with, money first, then the newest."""
    wanted = OnDesk(merchant_id, reason, money, all=all_)
    page = parts.desk().deliveries(wanted, limit, after)
    if json_:
        print_json({"deliveries": [asdict(each) for each in page.items], "next": page.next})
        return
    columns = ["delivery", "merchant", "type", "money", "reason", "failed", "attempts", "answer", "cause"]
    rows = [
        (
            *(each.id, each.merchant_id, each.type, each.money, each.reason, each.failed_at, each.attempts),
            *(each.status, each.cause or each.excerpt, "dismissed" if each.dismissed else each.seen, each.note),
        )
        for each in page.items
    ]
    title = f"{len(rows)} failed deliveries" + ("; there are more" if page.next else "")
    print_table(title, [*columns, "seen", "note"], rows)
    if page.next:
        click.echo(f"the next ones: --after {page.next}")


@failed.command("note")
@click.argument("delivery_ids", nargs=-1, required=True, type=DeliveryId(), metavar="ID…")
@click.option("--text", required=True, help="What is to be known; webhooks delivery show tells it.")
@as_json
def note(delivery_ids: tuple[str, ...], text: str, json_: bool) -> None:
    """Write down something about deliveries, which count as seen from then on."""
    conclude("noted", desk.note(operator(), delivery_ids, text), json_)


@failed.command("replay")
@_named
@_merchant
@_reason
@_why
@as_json
def replay(delivery_ids: tuple[str, ...], why: str, json_: bool, **group: Any) -> None:
    """Send failed deliveries again, as webhooks delivery replay does; a group of the desk without what was dismissed.

    What fails again is back on the desk.
    """
    if delivery_ids:
        _refuse(group)
        conclude("is being sent again", desk.replay(operator(why), delivery_ids), json_)
    else:
        _conclude_group("are being sent again", desk.replay_all, operator(why), _group(group), json_)


@failed.command("dismiss")
@_named
@_merchant
@_reason
@_why
@as_json
def dismiss(delivery_ids: tuple[str, ...], why: str, json_: bool, **group: Any) -> None:
    """Take deliveries off the desk, as dealt with: each stays failed, and can be sent again."""
    if delivery_ids:
        _refuse(group)
        conclude("dismissed", desk.dismiss(operator(why), delivery_ids), json_)
    else:
        _conclude_group("are dismissed", desk.dismiss_all, operator(why), _group(group), json_)


@failed.command("reopen")
@click.argument("delivery_ids", nargs=-1, required=True, metavar="ID…")
@_why
@as_json
def reopen(delivery_ids: tuple[str, ...], why: str, json_: bool) -> None:
    """Put dismissed deliveries back on the desk; `failed list --all` names them."""
    conclude("back on the desk", desk.reopen(operator(why), delivery_ids), json_)


def _refuse(group: dict[str, Any]) -> None:
    if any(group.values()):
        raise NotPossible("name deliveries, or a group by --merchant and --reason; not both")


def _group(group: dict[str, Any]) -> OnDesk:
    if not all(group.values()):
        raise NotPossible("name deliveries, or a group of the desk by both --merchant and --reason")
    return OnDesk(**group)


def _conclude_group(
    what: str,
    deed: Callable[[Operator, OnDesk], Iterator[Sequence[Verdict]]],
    by: Operator,
    wanted: OnDesk,
    json_: bool,
) -> None:
    """Do it batch by batch, print how many it was, and exit 1 when one was refused. Ctrl-C waits for a batch's end."""
    number, refused = 0, list[Verdict]()
    total = parts.desk().count(wanted)
    with held_back() as told_to_end, progress("working", total) as bar:
        for verdicts in deed(by, wanted):
            number += len(done(verdicts))
            refused += [verdict for verdict in verdicts if verdict.refused is not None]
            bar.update(len(verdicts))
            if told_to_end.is_set():
                raise click.Abort
    if json_:
        print_json({"done": number, "refused": [asdict(verdict) for verdict in refused]})
    else:
        click.echo(f"{number} deliveries {what}" if number or refused else "nothing of that is on the desk")
        for verdict in refused[:_SHOWN]:
            click.echo(f"{verdict.delivery_id}: {verdict.refused}", err=True)
        if len(refused) > _SHOWN:
            click.echo(f"and {len(refused) - _SHOWN} more were refused; see --json", err=True)
    click.get_current_context().exit(1 if refused else 0)
