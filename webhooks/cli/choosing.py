"""How deliveries are chosen on the command line: moments, words, answers, and the options that narrow a list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

import click

from webhooks.cli.names import EndpointId, MerchantId
from webhooks.ledger.views import Wanted
from webhooks.model import HeldFor, Reason, State
from webhooks.process.spelling import parse_moment

_Command = TypeVar("_Command", bound=Callable[..., Any])


class Moment(click.ParamType[datetime]):
    """A moment: `2026-01-31`, `2026-01-31T12:00`, UTC unless a zone is given; or how long ago it was: `90s`, `1h`."""

    name = "moment"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:  # noqa: ARG002
        """Say how it is written."""
        return "MOMENT|1h"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Read ISO 8601, or a span with its unit."""
        try:
            moment: datetime = parse_moment(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return moment


class Word(click.ParamType[StrEnum]):
    """One of the words of an enumeration, which the help spells out."""

    name = "word"

    def __init__(self, words: type[StrEnum]) -> None:
        self.words = words

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:  # noqa: ARG002
        """Name those that there are."""
        return f"[{'|'.join(self.words)}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> StrEnum:
        """Read the word, or name those that there are."""
        try:
            return self.words(value)
        except ValueError:
            self.fail(f"{value!r} is not one of {', '.join(self.words)}", param, ctx)

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[click.shell_completion.CompletionItem]:
        """Offer those that begin so."""
        return [click.shell_completion.CompletionItem(word) for word in self.words if word.startswith(incomplete)]


_WHOSE = [
    click.option("--merchant", "merchant_id", type=MerchantId(), help="Only this merchant's."),
    click.option("--endpoint", "endpoint_id", type=EndpointId(), help="Only those to this endpoint."),
]
_WHICH = [
    click.option("--reason", type=Word(Reason), help="Only what failed for this reason."),
    click.option("--type", help="Only events of this type."),
    click.option("--money/--no-money", default=None, help="Only what is money, or only what is not."),
    click.option(
        "--answer",
        type=click.IntRange(100, 599),
        metavar="STATUS",
        help="Only what was answered so last; a 2xx at any time.",
    ),
    click.option("--since", type=Moment(), help="Accepted at this moment (UTC) or later, or not longer ago than that."),
    click.option("--until", type=Moment(), help="Accepted before this moment (UTC), or longer ago than that."),
]
_WHERE = [
    click.option("--state", type=Word(State), help="Only what is in this state."),
    click.option("--held-for", "held_for", type=Word(HeldFor), help="Only what is held for this."),
]


def narrowed(command: _Command) -> _Command:
    """Add the options that choose deliveries, finished ones among them; they are fields of `Wanted`."""
    return _with([*_WHOSE, *_WHICH], command)


def wanted(narrowed: Mapping[str, Any]) -> Wanted:
    """Return what these options choose. Raises click.UsageError for a span that nothing can lie in."""
    since, until = narrowed["since"], narrowed["until"]
    if since and until and since >= until:
        raise click.UsageError("--since is not before --until, so that nothing lies between them")
    return Wanted(**narrowed)


def narrowed_by_state(command: _Command) -> _Command:
    """Add those that say where a delivery stands; they are fields of `Wanted`, too."""
    return _with(_WHERE, command)


def paged(what: str, usual: int = 50) -> Callable[[_Command], _Command]:
    """Add how long a list may be, `usual` where nothing is said, and the cursor with which it goes on."""
    options = [
        click.option(
            "--limit", type=click.IntRange(1, 10_000), default=usual, show_default=True, help="How many at most."
        ),
        click.option("--after", metavar=what, help="Go on behind this one, with the same options."),
    ]
    return lambda command: _with(options, command)


def _with(options: Sequence[Callable[[_Command], _Command]], command: _Command) -> _Command:
    for option in reversed(options):
        command = option(command)
    return command
