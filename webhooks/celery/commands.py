"""What Celery's own command needs of this application: its remote control, and settings that have been checked."""

from __future__ import annotations

import os

import click
from click.core import ParameterSource

from webhooks.celery import inspecting as _inspecting  # noqa: F401 - makes `celery inspect breaker` and others known
from webhooks.celery.app import celery_settings
from webhooks.errors import SettingsError, WebhooksError
from webhooks.observing import lines
from webhooks.observing.log import LogStyle
from webhooks.process.ending import end
from webhooks.settings import get_settings
from webhooks.wire import sender as _sender  # noqa: F401 - where the extra was left out that sends, it is said first


def _check_settings(context: click.Context, _option: click.Parameter, _value: object) -> None:
    """Say a mistake in the settings in one line, before any Celery command runs on them."""
    if context.resilient_parsing:
        return
    if "://" in os.environ.get("FLOWER_PORT", ""):
        # Kubernetes sets it so in every pod where a Service has the name flower, and Flower would end on it.
        del os.environ["FLOWER_PORT"]
    try:
        if context.find_root().get_parameter_source("broker") is ParameterSource.COMMANDLINE:
            raise SettingsError("-b, --broker is not used: the broker is WEBHOOKS_BROKER_URL")
        celery_settings(get_settings())
        if get_settings().log is LogStyle.JSON:
            _write_for_programs(context)
    except WebhooksError as error:
        end(error)


def _write_for_programs(context: click.Context) -> None:
    """Write lines for programs from the first one on; Celery sets up its logging later, at the level it was told."""
    lines.begin(facts_from=lines.AS_OTHERS)
    if context.command.name in {"worker", "beat"}:
        context.obj.quiet = True  # a banner is no such line


# Celery offers no hook before a command of its own; an option that nobody sees is parsed by each of them.
OPTIONS = {
    "preload": {
        click.Option(["--webhooks-settings"], hidden=True, is_eager=True, expose_value=False, callback=_check_settings)
    }
}
