"""`webhooks db` and `webhooks secrets-key`: setting up."""

from __future__ import annotations

import click
from cryptography.fernet import Fernet

from webhooks import parts
from webhooks.cli.output import as_json, print_json


@click.group()
def db() -> None:
    """Set up the ledger's tables."""


@db.command()
@as_json
def upgrade(json_: bool) -> None:
    """Create the tables, or bring them up to date; does nothing when they are."""
    from webhooks.ledger import schema  # noqa: PLC0415 - Alembic: the other commands start without it

    before, after = schema.upgrade(parts.database())
    if json_:
        print_json({"before": before, "after": after})
    elif before == after:
        click.echo(f"the ledger is up to date, at revision {after}")
    else:
        click.echo(f"the ledger went from {before or 'nothing'} to revision {after}")


@click.command("secrets-key")
@as_json
def secrets_key(json_: bool) -> None:
    """Make a key for WEBHOOKS_SECRETS_KEY, which encrypts merchants' secrets at rest.

    To rotate, put the new key before the old one, separated by a comma.
    """
    key = Fernet.generate_key().decode()
    if json_:
        print_json({"secrets_key": key})
    else:
        click.echo(key)
