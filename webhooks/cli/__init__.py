"""The operators' command, `webhooks`. Each file here is one noun, and is loaded when its command is typed."""

from __future__ import annotations

import gc
import os
from contextlib import suppress
from importlib import import_module
from typing import Any

import click

from webhooks.cli.mistakes import in_one_line
from webhooks.errors import SettingsError, WebhooksError
from webhooks.process.ending import needing

_EXIT = """\b
Exit status:
  0  it is done, or all is well
  1  it was refused, a part is away, or something is wrong
  2  it was mistyped, or a setting is wrong

Moments are printed in UTC. Completion by the shell:
eval "$(_WEBHOOKS_COMPLETE=bash_source webhooks)", or zsh_source, fish_source."""


class Later(click.Command):
    """A command whose module is loaded when it is typed: until then there is its name, and what the help says of it."""

    def __init__(self, name: str, help_: str, module: str, attribute: str = "") -> None:
        super().__init__(name, short_help=help_)
        self._where = f"webhooks.cli.{module}", attribute or name

    def load(self) -> click.Command:
        """Return the command itself."""
        module, attribute = self._where
        with needing("operate"):
            loaded: click.Command = getattr(import_module(module), attribute)
        _begin_log()
        if not gc.isenabled():  # `__main__` has switched it off
            gc.freeze()
            gc.enable()  # a command may run for long
        return loaded


def _begin_log() -> None:
    """Write the log of a command for programs where they read it; what a command answers is no part of it."""
    from webhooks.observing import lines, log  # noqa: PLC0415 - the help comes without
    from webhooks.settings import get_settings  # noqa: PLC0415

    with suppress(SettingsError):  # whoever needs them says so
        if get_settings().log is log.LogStyle.JSON:
            lines.begin()


class Command(click.Group):
    """Turns errors into one line and an exit status: 2 for what is mistyped and for a setting, 1 for anything else."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Read what is typed."""
        with in_one_line():
            return super().make_context(*args, **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse what is not UTF-8 before anybody works with it; nothing of it is quoted, for it may be a secret."""
        for number, given in enumerate(args, 1):
            try:
                given.encode()
            except UnicodeEncodeError:  # bytes that are not UTF-8 come as halves of surrogate pairs
                click.echo(f"webhooks: argument {number} is not UTF-8", err=True)
                ctx.exit(2)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Load the command that is typed."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, Later) else command, rest

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            with in_one_line():
                return super().invoke(ctx)
        except WebhooksError as error:
            click.echo(f"webhooks: {error}", err=True)
            ctx.exit(2 if isinstance(error, SettingsError) else 1)


@click.group("webhooks", cls=Command, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXIT)
@click.version_option(package_name="webhook-delivery-worker")
def main() -> None:
    """Merchants, endpoints, deliveries and breakers of the webhook delivery worker."""


COMMANDS = (
    Later("audit", "What operators did by hand: who, when, what and why.", "audit"),
    Later("breaker", "Look at breakers, and reset them.", "breakers"),
    Later("dashboard", "A page for people who would rather look, and its JSON API.", "dashboard"),
    Later("db", "Set up the ledger's tables.", "database"),
    Later("delivery", "Look at deliveries, send them again, or cancel them.", "deliveries"),
    Later("demo", "The whole job, on servers of the demo's own.", "demo"),
    Later("endpoint", "Send a merchant's events to several addresses.", "endpoints"),
    Later("event", "Look at events, and at those that were refused.", "events"),
    Later("failed", "What failed and needs a person, money first.", "failed"),
    Later("health", "Judge whether everything goes on, for health checks.", "status"),
    Later("merchant", "Register merchants, their addresses and secrets.", "merchants"),
    Later("notice", "What operators were told, and whether they can be.", "notices"),
    Later("secrets-key", "Make a key that encrypts merchants' secrets.", "database", "secrets_key"),
    Later("status", "How things stand, and what is wrong.", "status"),
    Later("tail", "Attempts as they happen.", "tail"),
)
for command in COMMANDS:
    main.add_command(command)
if "_WEBHOOKS_COMPLETE" in os.environ:
    import_module("webhooks.cli.completing")
