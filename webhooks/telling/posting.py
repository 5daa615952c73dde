"""A notification as a POST of JSON, through what sends merchants theirs: guarded, pinned, bounded, and signed alike."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from webhooks.errors import LocalFault
from webhooks.model import Answer, Refusal, Silence
from webhooks.observing.operators import RecipientName
from webhooks.signing import sign
from webhooks.telling.masking import masked
from webhooks.telling.said import Said
from webhooks.telling.wording import Notification
from webhooks.wire.request import USER_AGENT
from webhooks.wire.sender import Sender

_OK = 2


@dataclass(frozen=True, slots=True)
class UrlRecipient:
    """An address of the operators', which may hold a token."""

    name: ClassVar = RecipientName.URL
    url: str = field(repr=False)
    secret: str | None = field(repr=False)
    sender: Callable[[], Sender]

    def tell(self, notification: Notification) -> Said:
        """POST it; a 2xx says that it was taken."""
        began_s = time.monotonic()
        try:
            result = self.sender().post(self.url, self._headers(notification), notification.body)
        except LocalFault as error:
            return Said(False, str(error))
        took_ms = round((time.monotonic() - began_s) * 1000)
        match result:
            case Answer(status=status, excerpt=excerpt):
                said = masked(excerpt, [_behind_the_host(self.url), self.secret or ""])
                return Said(status // 100 == _OK, f"answered {status} in {took_ms} ms", said)
            case Silence(cause=cause) | Refusal(cause=cause):
                return Said(False, cause)

    def _headers(self, notification: Notification) -> dict[str, str]:
        timestamp = str(int(notification.at.timestamp()))
        headers = {
            "Content-Type": "application/json",
            "User-Agent": USER_AGENT,
            "X-Webhook-Id": notification.id,
            "X-Webhook-Timestamp": timestamp,
        }
        if self.secret:
            headers["X-Webhook-Signature"] = sign(self.secret, timestamp, notification.body)
        return headers


def _behind_the_host(url: str) -> str:
    return url.partition("://")[2].partition("/")[2]
