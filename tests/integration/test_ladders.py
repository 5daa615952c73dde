"""A wait begins with the merchant's answer; the whole ladders are walked in tests/worker."""

from __future__ import annotations

import json
import threading
from datetime import datetime, timedelta

import pytest

from tests import courier
from tests.system import System
from webhooks.ledger.ledger import Ledger
from webhooks.model import Delivery, Message, Unclaimed
from webhooks.policy.decisions import RetryAt

PAID = {"type": "payment.status_changed", "status": "paid", "merchant_id": "acme"}


@pytest.mark.parametrize("slow", ["way there", "way back"])
def test_a_slow_ledger_brings_no_retry_early(system: System, monkeypatch: pytest.MonkeyPatch, slow: str) -> None:
    """A wait is counted from the merchant's answer, however long the claim or its answer was on its way."""
    system.set(fast_waits="5")
    merchant = system.merchant("acme")
    merchant.answers(503)
    claim = Ledger.claim

    def claim_slowly(ledger: Ledger, message: Message) -> Delivery | Unclaimed:
        if slow == "way there":
            threading.Event().wait(0.3)
        claimed = claim(ledger, message)
        if slow == "way back":
            threading.Event().wait(0.3)
        return claimed

    monkeypatch.setattr(Ledger, "claim", claim_slowly)
    decision = courier.send(PAID)
    assert isinstance(decision, RetryAt)
    assert decision.due_at - merchant.requests[0].at >= timedelta(seconds=5)
    (message,) = courier.waiting(system.redis())
    assert datetime.fromisoformat(json.loads(message)["headers"]["eta"]) >= decision.due_at
