"""What the commands of merchants and endpoints share: options that change one, secrets, how one is printed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import click

from webhooks.cli.interrupts import held_back
from webhooks.cli.output import print_facts, print_json
from webhooks.errors import AnswerLost, NotPossible
from webhooks.model import KEEP, Changes, Endpoint
from webhooks.operating import endpoints
from webhooks.operating.endpoints import Placed
from webhooks.operating.terminal import operator
from webhooks.policy.breaker import MOST_IN_FLIGHT
from webhooks.policy.headers import as_read
from webhooks.process.spelling import parse_duration


class Span(click.ParamType[timedelta]):
    """A duration, written as in the settings: `90`, `15m`, `24h`, `7d`."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Read it."""
        try:
            span: timedelta = parse_duration(value)
        except (ValueError, OverflowError) as error:
            self.fail(str(error), param, ctx)
        return span


class OwnHeader(click.ParamType[tuple[str, str]]):
    """A header with its value: `X-Shop: main`. What is wrong is said without the value, which may be a secret."""

    name = "header"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Read it."""
        if isinstance(value, tuple):
            return value
        name, colon, text = value.partition(":")
        if not colon:
            self.fail("a header is written NAME: VALUE, such as 'X-Shop: main'", param, ctx)
        return name.strip(), text.strip()


secret_option = click.option(
    "--secret", help="The signing secret; '-' reads it from standard input, which leaves no trace."
)
generate_option = click.option("--generate-secret", is_flag=True, help="Make a secret and print it, this once.")
why_option = click.option("--why", help="Kept in the operators' record.")

_OPTIONS = [
    click.option("--url", help="The address that receives the POSTs; https://…"),
    click.option("--no-url", is_flag=True, help="Take the address away: deliveries are held until there is one."),
    secret_option,
    generate_option,
    click.option("--standard-headers/--no-standard-headers", default=None, help="Also send Standard Webhooks headers."),
    click.option(
        "--header",
        "headers",
        multiple=True,
        type=OwnHeader(),
        metavar="NAME: VALUE",
        help="A header of its own, sent with every POST; the value '-' is read from standard input. May be repeated.",
    ),
    click.option("--no-header", "no_headers", multiple=True, metavar="NAME", help="Send this one no more."),
    click.option(
        "--type", "types", multiple=True, help="Send only events of this type, or of all types under payment.* …"
    ),
    click.option("--all-types", is_flag=True, help="Send events of every type."),
    click.option(
        "--lane", type=click.IntRange(1, MOST_IN_FLIGHT), help="How many deliveries may be in flight at once."
    ),
    click.option("--no-lane", is_flag=True, help="As many as WEBHOOKS_LANE says."),
    click.option(
        "--rate",
        type=click.FloatRange(endpoints.LOWEST_RATE, endpoints.HIGHEST_RATE),
        help="How many attempts it gets in a second, at most; 0.2 is one in five seconds.",
    ),
    click.option("--no-rate", is_flag=True, help="As many as its lane lets through."),
    click.option("--note", help="A word for operators; an empty one takes it away."),
    why_option,
]


_OF_A_ROTATION = [
    secret_option,
    generate_option,
    click.option(
        "--overlap",
        type=Span(),
        default="24h",
        show_default=True,
        help="How long the previous secret stays valid; or 0.",
    ),
    click.option("--finish", is_flag=True, help="End the overlap of an earlier rotation now; nothing else."),
    why_option,
]


def changing(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say what changes of an endpoint; `wish` reads them."""
    return _with(_OPTIONS, command)


def rotating(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a rotation; `rotate` does it."""
    return _with(_OF_A_ROTATION, command)


def _with(options: Sequence[Callable[..., Any]], command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(options):
        command = option(command)
    return command


def wish(
    endpoint_id: str,
    *,
    url: str | None,
    no_url: bool,
    secret: str | None,
    generate_secret: bool,
    standard_headers: bool | None,
    headers: Sequence[tuple[str, str]],
    no_headers: Sequence[str],
    types: Sequence[str],
    all_types: bool,
    lane: int | None,
    no_lane: bool,
    rate: float | None,
    no_rate: bool,
    note: str | None,
) -> tuple[Changes, str | None]:
    """Return what the options want changed of an endpoint, and the secret that was made for it, if any."""
    both = {
        "--url and --no-url": url is not None and no_url,
        "--secret and --generate-secret": secret is not None and generate_secret,
        "--header and --no-header of one name": _share_a_name([name for name, _ in headers], no_headers),
        "--type and --all-types": bool(types) and all_types,
        "--lane and --no-lane": lane is not None and no_lane,
        "--rate and --no-rate": rate is not None and no_rate,
    }
    clashing = [name for name, clashes in both.items() if clashes]
    if clashing:
        raise NotPossible(f"{' and '.join(clashing)} exclude each other")
    given = given_secret(secret)
    made = endpoints.new_secret(endpoint_id, standard_headers) if generate_secret else None
    changes = Changes(
        url=None if no_url else KEEP if url is None else url,
        secret=made or given or KEEP,
        standard_headers=KEEP if standard_headers is None else standard_headers,
        headers={**dict.fromkeys(no_headers), **_read(headers)},
        types=None if all_types else tuple(types) or KEEP,
        lane=None if no_lane else KEEP if lane is None else lane,
        rate=None if no_rate else KEEP if rate is None else rate,
        note=KEEP if note is None else note or None,
    )
    if not changes.names:
        raise NotPossible("nothing to set; give --url, --secret, --generate-secret or another option, see --help")
    return changes, made


def _share_a_name(some: Sequence[str], others: Sequence[str]) -> bool:
    return not {as_read(name) for name in some}.isdisjoint(map(as_read, others))


def _read(headers: Sequence[tuple[str, str]]) -> dict[str, str]:
    if len({as_read(name) for name, _ in headers}) < len(headers):
        raise NotPossible("--header: one of them is given twice")
    return {name: _typed_in("header") if value == "-" else value for name, value in headers}


def given_secret(secret: str | None) -> str | None:
    """Return the secret that was given as an option or on standard input, None for none."""
    text = _typed_in("secret") if secret == "-" else secret  # noqa: S105
    if text is not None and not text:
        raise NotPossible("the secret is empty")
    return text


def _typed_in(what: str) -> str:
    try:
        line = sys.stdin.readline().strip()
        line.encode()  # by the locale, Python refuses bytes that are not UTF-8 or hands them on as half surrogate pairs
    except UnicodeError:
        raise NotPossible(f"the {what} on standard input is not UTF-8") from None
    return line


@contextmanager
def telling_the_secret(endpoint_id: str, made: str | None, json_: bool) -> Iterator[None]:
    """Have a secret that was made reach the terminal wherever it may have been stored: nobody could read it later."""
    with held_back():
        try:
            yield
        except AnswerLost:
            if made is not None:
                facts({"id": endpoint_id, "secret": made}, json_)
            raise


def conclude(placed: Placed, made: str | None, json_: bool) -> None:
    """Print how an endpoint stands, and what is left to do by hand: then the exit status is 1."""
    show(placed.endpoint, json_, secret=made)
    if placed.undone:
        raise NotPossible(placed.undone)


def rotate(
    endpoint_id: str,
    secret: str | None,
    generate_secret: bool,
    overlap: timedelta,
    finish: bool,
    why: str | None,
    json_: bool,
) -> None:
    """Replace an endpoint's secret, or end an overlap."""
    if sum((secret is not None, generate_secret, finish)) > 1:
        raise NotPossible("--secret, --generate-secret and --finish exclude each other")
    if finish:
        show(endpoints.finish_rotation(operator(why), endpoint_id), json_)
        return
    given = given_secret(secret)
    made = endpoints.new_secret(endpoint_id) if given is None else None
    with telling_the_secret(endpoint_id, made, json_):
        rotated = endpoints.rotate(operator(why), endpoint_id, made or given or "", overlap)
        show(rotated, json_, secret=made)


def show(found: Endpoint, json_: bool, **more: object) -> None:
    """Print an endpoint with more facts, those that there are."""
    facts({**asdict(found), **{name: value for name, value in more.items() if value is not None}}, json_)


def facts(facts: dict[str, object], json_: bool) -> None:
    """Print facts: as JSON, or one a line, a list in its order and nothing for an empty one."""
    if json_:
        print_json(facts)
    else:
        print_facts({name.replace("_", " "): _in_a_line(value) for name, value in facts.items()})


def _in_a_line(value: object) -> object:
    return (", ".join(map(str, value)) or None) if isinstance(value, tuple | list) else value
