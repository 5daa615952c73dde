"""Whom notices go to: a URL, a command, an e-mail address. Each is bounded in time, and raises nothing."""

from __future__ import annotations

import shlex
import shutil
import socket
from collections.abc import Callable
from typing import Protocol

from webhooks.errors import InvalidAddress, SettingsError
from webhooks.observing.operators import RecipientName
from webhooks.process import smtp_url
from webhooks.settings import Settings
from webhooks.telling.mailing import MailRecipient
from webhooks.telling.posting import UrlRecipient
from webhooks.telling.running import CommandRecipient
from webhooks.telling.said import Said
from webhooks.telling.wording import Notification
from webhooks.wire.addresses import check_url
from webhooks.wire.sender import Sender, SendingRules


class Recipient(Protocol):
    """Something that takes notifications."""

    @property
    def name(self) -> RecipientName:
        """What it is called."""

    def tell(self, notification: Notification) -> Said:
        """Hand a notification over; whatever fails is said, and it takes some seconds at most."""


def chosen(settings: Settings, rules: SendingRules, sender: Callable[[], Sender]) -> tuple[Recipient, ...]:
    """Return the recipients that the settings choose. Raises SettingsError for one that cannot be used."""
    recipients: list[Recipient] = []
    if settings.notice_url:
        url = settings.notice_url.get_secret_value()
        try:
            check_url(url, allow_http=rules.allow_http, guard=rules.guard)
        except InvalidAddress as error:
            raise SettingsError(f"WEBHOOKS_NOTICE_URL: {error}") from None
        secret = settings.notice_secret
        recipients.append(UrlRecipient(url, secret.get_secret_value() if secret else None, sender))
    if settings.notice_command:
        recipients.append(CommandRecipient(_command(settings.notice_command.get_secret_value())))
    if settings.notice_mail:
        recipients.append(
            MailRecipient(
                smtp_url.read(settings.notice_smtp.get_secret_value()),
                sender=settings.notice_mail_from or f"webhooks@{socket.getfqdn()}",
                to=settings.notice_mail,
                ca_bundle=rules.ca_bundle,
            )
        )
    return tuple(recipients)


def _command(text: str) -> tuple[str, ...]:
    try:
        program, *arguments = shlex.split(text) or [""]
    except ValueError:
        raise SettingsError("WEBHOOKS_NOTICE_COMMAND: its quotation marks do not fit together") from None
    found = shutil.which(program)
    if found is None:
        raise SettingsError("WEBHOOKS_NOTICE_COMMAND: there is no such program, or it may not be run")
    return found, *arguments
