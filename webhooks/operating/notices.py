"""Trying whether notices reach those whom they are for."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from webhooks import parts, watching
from webhooks.errors import NotPossible
from webhooks.model import Operator
from webhooks.observing.operators import RecipientName
from webhooks.telling.said import Said
from webhooks.telling.wording import trial


def test(by: Operator) -> Mapping[RecipientName, Said]:
    """Send one notice to every recipient that is chosen, and return what each said. Raises NotPossible for none."""
    recipients = watching.notice_recipients()
    if not recipients:
        raise NotPossible(
            "nobody is told anything: set WEBHOOKS_NOTICE_URL, WEBHOOKS_NOTICE_COMMAND or WEBHOOKS_NOTICE_MAIL"
        )
    with parts.act(by, "it was sent", "webhooks audit") as act:
        act.note(f"test of notices to {', '.join(recipient.name for recipient in recipients)}")
    notification = trial(datetime.now(UTC))
    return {recipient.name: recipient.tell(notification) for recipient in recipients}
