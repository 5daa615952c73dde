"""A worker tells what it has taken, where the broker would not show what waits."""

from __future__ import annotations

import pytest

from tests.system import System
from webhooks import app, deliver, parts
from webhooks.celery import lookouts
from webhooks.celery.app import DELIVERIES
from webhooks.celery.lookouts import Counting
from webhooks.ledger.taken import Taken


def test_a_worker_notes_what_it_takes(
    system: System, event: dict[str, str], acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The moment at which the message was published, as soon as it is received: its delivery may be held."""
    taken = Taken(parts.database())
    with monkeypatch.context() as patched:
        patched.setattr(lookouts, "choose", lambda *_: Counting(app, taken))
        parts.lookout.forget()
        deliver.delay(event)
        system.wait_until(lambda: taken.last(DELIVERIES), "the taking is noted")
    parts.lookout.forget()
    last = taken.last(DELIVERIES)
    assert last is not None
    ((queued_at,),) = system.sql("SELECT accepted_at FROM deliveries WHERE merchant_id = :acme", acme=acme)
    assert last.queued_at == queued_at
