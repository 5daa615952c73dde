"""`webhooks dashboard`: a page for people who would rather look, its JSON API, and who may use them."""

from __future__ import annotations

import signal
import socket
import sys

import click

from webhooks.cli.output import as_json, print_json
from webhooks.errors import NotPossible
from webhooks.observing import lines
from webhooks.observing.log import LogStyle
from webhooks.process import accounts
from webhooks.process.ending import needing
from webhooks.settings import get_settings


def _to_listen(_context: click.Context, _option: click.Parameter, address: str) -> str:
    """Refuse what leads nowhere."""
    try:
        socket.getaddrinfo(address or None, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise click.BadParameter(f"{address!r} is no address to listen at, such as 127.0.0.1") from None
    return address


@click.group(invoke_without_command=True)
@click.option(
    "--address",
    default="127.0.0.1",
    show_default=True,
    callback=_to_listen,
    help="Where to listen; beyond this host, over HTTPS.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=8090, show_default=True, help="0 for any that is free.")
@click.pass_context
def dashboard(context: click.Context, address: str, port: int) -> None:
    """Serve the dashboard and its JSON API to the operators of WEBHOOKS_DASHBOARD_USERS.

    An operator there is name:role:hash, several with commas between them; the role is look or act. Others than this
    host reach it through a proxy that speaks HTTPS, whose address WEBHOOKS_DASHBOARD_PROXY names.
    """
    if context.invoked_subcommand is not None:
        return
    style = get_settings().log
    with needing("dashboard"):
        from webhooks.page.serving import serve  # noqa: PLC0415 - only this command needs the extra
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    serve(address, port, lambda line: _say(line, style))


def _say(line: str, style: LogStyle) -> None:
    """Say where it serves; what follows is the log of a program that runs for long, each line with its time."""
    click.echo(line, err=True)
    if style is LogStyle.TEXT:
        lines.begin_for_people()


@dashboard.command("hash")
@as_json
def hash_(json_: bool) -> None:
    """Ask for a password, and print the hash that stands for it in WEBHOOKS_DASHBOARD_USERS.

    From a pipe the first line is taken for it.
    """
    try:
        hashed = accounts.hash_password(_ask_for_password())
    except UnicodeError:
        raise NotPossible("the password is not UTF-8") from None
    except ValueError as error:
        raise NotPossible(str(error)) from None
    if json_:
        print_json({"hash": hashed})
    else:
        click.echo(hashed)


def _ask_for_password() -> str:
    if not sys.stdin.isatty():  # to be asked at a terminal all the same would surprise whoever pipes
        return sys.stdin.readline().rstrip("\r\n")
    answer: str = click.prompt("password", hide_input=True, confirmation_prompt=True, err=True)
    return answer


@dashboard.command("token")
@click.argument("name")
@as_json
def token(name: str, json_: bool) -> None:
    """Make a token for an operator's programs, which is shown this once; its hash goes behind the operator's others."""
    made = accounts.new_token()
    hashed = accounts.hash_token(made)
    if json_:
        print_json({"name": name, "token": made, "hash": hashed})
        return
    click.echo(made)
    click.echo(f"add to {name} in WEBHOOKS_DASHBOARD_USERS: :{hashed}", err=True)
