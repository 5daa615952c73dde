"""The operators' command, `webhooks`. Each file here is one noun."""

from __future__ import annotations

from typing import Any

import click

from webhooks.cli.audit import audit
from webhooks.cli.breakers import breaker
from webhooks.cli.dashboard import dashboard
from webhooks.cli.database import db, secrets_key
from webhooks.cli.deliveries import delivery
from webhooks.cli.demo import demo
from webhooks.cli.endpoints import endpoint
from webhooks.cli.events import event
from webhooks.cli.failed import failed
from webhooks.cli.merchants import merchant
from webhooks.cli.status import health, status
from webhooks.errors import SettingsError, WebhooksError


class Command(click.Group):
    """Turns our errors into one line and an exit status: 2 for a setting, 1 for anything else."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse what is not UTF-8 before anybody works with it; nothing of it is quoted, for it may be a secret."""
        for number, given in enumerate(args, 1):
            try:
                given.encode()
            except UnicodeEncodeError:  # bytes that are not UTF-8 come as halves of surrogate pairs
                click.echo(f"webhooks: argument {number} is not UTF-8", err=True)
                ctx.exit(2)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except WebhooksError as error:
            click.echo(f"webhooks: {error}", err=True)
            ctx.exit(2 if isinstance(error, SettingsError) else 1)


@click.group(cls=Command, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="webhook-delivery-worker")
def main() -> None:
    """Merchants, endpoints, deliveries and breakers of the webhook delivery worker."""


_NOUNS = (merchant, endpoint, delivery, failed, event, breaker, status, health, audit, dashboard, db, demo, secrets_key)
for command in _NOUNS:
    main.add_command(command)
