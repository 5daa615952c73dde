"""`webhooks merchant`: who receives webhooks, where, and signed with what."""

from __future__ import annotations

import base64
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from datetime import timedelta
from typing import Any

import click

from webhooks import parts
from webhooks.cli.interrupts import held_back
from webhooks.cli.names import merchant_argument
from webhooks.cli.output import as_json, in_words, print_facts, print_json, print_table
from webhooks.errors import AnswerLost, GateUnavailable, NotPossible
from webhooks.ledger.endpoints import unknown
from webhooks.model import Endpoint
from webhooks.settings import parse_duration
from webhooks.signing import STANDARD_PREFIX
from webhooks.wire.addresses import check_url


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


_secret = click.option("--secret", help="The signing secret; '-' reads it from standard input, which leaves no trace.")
_why = click.option("--why", help="Kept in the operators' record.")
_generate = click.option("--generate-secret", is_flag=True, help="Make a secret and print it, this once.")


@click.group()
def merchant() -> None:
    """Register merchants, their addresses and secrets; pause them."""


@merchant.command("set")
@merchant_argument
@click.option("--url", help="The address that receives the POSTs; https://…")
@click.option("--no-url", is_flag=True, help="Take the address away: deliveries are held until there is one.")
@_secret
@_generate
@click.option("--standard-headers/--no-standard-headers", default=None, help="Also send Standard Webhooks headers.")
@_why
@as_json
def set_(
    merchant_id: str,
    url: str | None,
    no_url: bool,
    secret: str | None,
    generate_secret: bool,
    standard_headers: bool | None,
    why: str | None,
    json_: bool,
) -> None:
    """Register a merchant, or change it. A new address starts its breaker afresh; a new secret counts at once.

    To replace a secret that is in use, see rotate-secret.
    """
    changes = {
        "address": url is not None or no_url,
        "secret": secret is not None or generate_secret,
        "headers": standard_headers is not None,
    }
    if not any(changes.values()):
        raise NotPossible(
            "nothing to set; give --url, --no-url, --secret, --generate-secret or --[no-]standard-headers"
        )
    if (url is not None and no_url) or (secret is not None and generate_secret):
        raise NotPossible("--url and --no-url, and --secret and --generate-secret, exclude each other")
    _check(url)
    given = _given(secret)
    made = _made(merchant_id, standard_headers) if generate_secret else None
    what = f"set {', '.join(name for name, changed in changes.items() if changed)} of {merchant_id}"
    with _telling_the_secret(merchant_id, made, json_):
        look = f"webhooks merchant show {merchant_id}"
        if url is not None:
            look += f", and where it has the new address run: webhooks breaker reset {merchant_id}"
        with parts.act(f"{merchant_id} was set", look) as act:
            endpoints = parts.endpoints().within(act)
            known = endpoints.find(merchant_id)
            registered = endpoints.set(
                merchant_id, url=url, secret=made or given, no_url=no_url, standard_headers=standard_headers
            )
            act.note(what, why=why)
        _print(registered, json_, secret=made)
    if url is not None and (known is None or known.url != url):
        _start_afresh(merchant_id)


@contextmanager
def _telling_the_secret(merchant_id: str, made: str | None, json_: bool) -> Iterator[None]:
    """Have a secret that was made reach the terminal wherever it may have been stored: nobody could read it later."""
    with held_back():
        try:
            yield
        except AnswerLost:
            if made is not None:
                _print_facts({"id": merchant_id, "secret": made}, json_)
            raise


def _check(url: str | None) -> None:
    """Refuse an address that must not be used."""
    if url is not None:
        rules = parts.sending_rules()
        check_url(url, allow_http=rules.allow_http, guard=rules.guard)


def _start_afresh(merchant_id: str) -> None:
    """Close the breaker that failures of the previous address moved. What was set stays set when the gate is away."""
    try:
        parts.gate().reset(merchant_id)
    except GateUnavailable as error:
        raise GateUnavailable(
            f"{merchant_id} is set, but its breaker stands as before: {error}; "
            f"once that is mended, run: webhooks breaker reset {merchant_id}"
        ) from None


@merchant.command("rotate-secret")
@merchant_argument
@_secret
@_generate
@click.option(
    "--overlap", type=Span(), default="24h", show_default=True, help="How long the previous secret stays valid; or 0."
)
@click.option("--finish", is_flag=True, help="End the overlap of an earlier rotation now; nothing else.")
@_why
@as_json
def rotate_secret(
    merchant_id: str,
    secret: str | None,
    generate_secret: bool,
    overlap: timedelta,
    finish: bool,
    why: str | None,
    json_: bool,
) -> None:
    """Replace a merchant's secret by a given one or (the default) a new one; during the overlap either verifies.

    Until the overlap ends, X-Webhook-Signature is made with the previous secret and X-Webhook-Signature-Next with the
    new one; from then on X-Webhook-Signature with the new one. Retries and held deliveries are signed when they are
    sent. During an overlap only --finish and --overlap 0, which replaces both secrets at once, are possible.
    """
    if sum((secret is not None, generate_secret, finish)) > 1:
        raise NotPossible("--secret, --generate-secret and --finish exclude each other")
    look = f"webhooks merchant show {merchant_id}"
    if finish:
        with parts.act(f"the overlap of {merchant_id} has ended", look) as act:
            rotated = parts.endpoints().within(act).finish_rotation(merchant_id)
            act.note(f"ended the overlap of secrets of {merchant_id}", why=why)
        _print(rotated, json_)
        return
    given = _given(secret)
    made = _made(merchant_id) if given is None else None
    with _telling_the_secret(merchant_id, made, json_):
        with parts.act(f"the secret of {merchant_id} was replaced", look) as act:
            new = made or given or ""
            rotated = parts.endpoints().within(act).rotate(merchant_id, secret=new, overlap=overlap)
            lasts = in_words(overlap) if overlap else "none"
            act.note(f"rotated the secret of {merchant_id}, overlap {lasts}", why=why)
        _print(rotated, json_, secret=made)


@merchant.command("pause")
@merchant_argument
@_why
@as_json
def pause(merchant_id: str, why: str | None, json_: bool) -> None:
    """Hold all of a merchant's deliveries, fresh ones and retries, until it is resumed.

    What is being sent at this moment may still arrive, within the deadline of one attempt.
    """
    _pause(merchant_id, why, json_, paused=True)


@merchant.command("resume")
@merchant_argument
@_why
@as_json
def resume(merchant_id: str, why: str | None, json_: bool) -> None:
    """Let a paused merchant's deliveries go again, paced, oldest first."""
    _pause(merchant_id, why, json_, paused=False)


def _pause(merchant_id: str, why: str | None, json_: bool, *, paused: bool) -> None:
    done = "paused" if paused else "resumed"
    with parts.act(f"{merchant_id} was {done}", f"webhooks merchant show {merchant_id}") as act:
        changed = parts.endpoints().within(act).pause(merchant_id, paused=paused)
        act.note(f"{done} {merchant_id}", why=why)
    _print(changed, json_)


def _given(secret: str | None) -> str | None:
    text = _typed_in() if secret == "-" else secret  # noqa: S105
    if text is not None and not text:
        raise NotPossible("the secret is empty")
    return text


def _typed_in() -> str:
    try:
        line = sys.stdin.readline().strip()
        line.encode()  # by the locale, Python refuses bytes that are not UTF-8 or hands them on as half surrogate pairs
    except UnicodeError:
        raise NotPossible("the secret on standard input is not UTF-8") from None
    return line


def _made(merchant_id: str, standard_headers: bool | None = None) -> str:
    """Make a secret of 256 bits, written as Standard Webhooks wants it where those headers are on."""
    if standard_headers is None:
        known = parts.endpoints().find(merchant_id)
        standard_headers = known is not None and known.standard_headers
    if standard_headers:
        return STANDARD_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()
    return secrets.token_urlsafe(32)


@merchant.command("list")
@as_json
def list_(json_: bool) -> None:
    """List the registered merchants, and those that hold deliveries and are not registered."""
    found, strangers = parts.endpoints().all(), parts.views().unregistered()
    if json_:
        nothing = dict.fromkeys(field.name for field in fields(Endpoint))
        unknown_ones = [{**nothing, "id": merchant_id, "registered": False} for merchant_id in strangers]
        print_json([*({**asdict(item), "registered": True} for item in found), *unknown_ones])
        return
    rows = [(item.id, item.url, item.has_secret, item.paused_at is not None, item.updated_at) for item in found]
    print_table(f"{len(rows)} merchants", ["merchant", "address", "secret", "paused", "changed"], rows)
    if strangers:
        click.echo(f"not registered, though deliveries are held for them: {', '.join(strangers)}")


@merchant.command("show")
@merchant_argument
@as_json
def show(merchant_id: str, json_: bool) -> None:
    """Show one merchant, and how many of its deliveries are held."""
    held = parts.views().count_held(merchant_id)
    found = parts.endpoints().find(merchant_id)
    if found is None:
        raise unknown(merchant_id, held=sum(held.values()))
    _print(found, json_, held=held if json_ else _listed(held))


def _listed(held: dict[str, int]) -> str:
    return ", ".join(f"{count} for {what}" for what, count in held.items()) or "none"


def _print(found: Endpoint, json_: bool, **more: object) -> None:
    _print_facts({**asdict(found), **{name: value for name, value in more.items() if value is not None}}, json_)


def _print_facts(facts: dict[str, object], json_: bool) -> None:
    if json_:
        print_json(facts)
    else:
        print_facts({name.replace("_", " "): value for name, value in facts.items()})
