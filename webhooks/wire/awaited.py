"""A sender whose waiting is seen: a worker gives the place of an attempt that waits for long to another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from webhooks.model import Answer, Refusal, Silence
from webhooks.process.waiting import Waits
from webhooks.wire.sender import Sender


@dataclass(frozen=True, slots=True)
class Awaited:
    """Notes of each POST how long it has been waiting."""

    sender: Sender
    waits: Waits

    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer | Silence | Refusal:
        """POST, and return what came of it."""
        with self.waits.one():
            return self.sender.post(url, headers, body)
