"""Whatever an event holds, the accepted bytes arrive at every attempt and after a replay (I2, E3, E6)."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.courier import accept, attempt, attempt_again
from tests.merchant import Merchant, Request
from tests.system import SECRET, System
from tests.wire.test_signing import independent_hmac
from webhooks import parts
from webhooks.accepting.reading import IDENTITY
from webhooks.model import State
from webhooks.policy.decisions import Delivered, RetryAt

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.decimals(-(10**12), 10**12).map(str)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
FIELDS = st.dictionaries(TEXTS.filter(lambda name: name not in IDENTITY), VALUES, max_size=8)


@pytest.fixture
def merchant(system: System) -> Merchant:
    """A merchant whose breaker never opens, in a system whose ledger and gate are real and whose attempts we make."""
    system.set(breaker_min_attempts=1_000_000, fast_waits="60,60")
    return system.merchant("acme")


@settings(max_examples=50)
@given(fields=FIELDS)
@example(fields={"name": "Zoë 🧾 日本", "amounts": ["0.10", "1234567890.12", "-0.00", "1e-7"], "big": 10**19 + 1})
@example(fields={"text": '\x00\u2028</script>\\"\r\n', "\u0645\u0628\u0644\u063a": "\ufeff", "": {}})
@example(fields={"padding": "é" * 130_000})
def test_the_accepted_bytes_arrive_every_time(fields: dict[str, Any], system: System, merchant: Merchant) -> None:
    """Attempt 1 fails, attempt 2 is delivered, a replay is attempt 3: one body, one id, and each signature is fresh."""
    merchant.forget()
    merchant.answers(503, 200)
    event = {**fields, "type": "payment.status_changed", "status": "paid", "merchant_id": "acme"}
    message = accept(event)
    assert isinstance(attempt(message), RetryAt)
    assert attempt_again(message) == Delivered()
    parts.replays().replay([message.id], again=True)
    (released,) = parts.backlog().release({"acme": 1})["acme"]
    assert attempt(released) == Delivered()

    (accepted,) = system.sql(
        "SELECT events.body, events.body_sha256, state FROM events JOIN deliveries ON event_id = events.id"
        " WHERE events.id = :id",
        id=message.id,
    )
    assert accepted.state == State.DELIVERED
    assert [request.header("X-Webhook-Attempt") for request in merchant.requests] == ["1", "2", "3"]
    for request in merchant.requests:
        assert request.body == bytes(accepted.body)
        assert hashlib.sha256(request.body).digest() == bytes(accepted.body_sha256)
        assert request.webhook_id == message.id
        assert_signed(request)
    assert json.loads(merchant.requests[0].body) == {**event, "id": message.id}


def assert_signed(request: Request) -> None:
    """Check the signature by hand, and that its timestamp is this attempt's own."""
    stamp = request.header("X-Webhook-Timestamp") or ""
    signature = independent_hmac(SECRET.encode(), stamp.encode() + b"." + request.body)
    assert request.header("X-Webhook-Signature") == signature
    assert abs(request.at.timestamp() - int(stamp)) < 10
