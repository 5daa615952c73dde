"""The headers of an attempt: which secrets sign it, before, during and after an overlap, with and without the standard.

A table for what `signed_headers` makes of a claimed delivery.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from tests.wire.test_signing import independent_hmac
from webhooks.errors import LocalFault
from webhooks.model import Delivery
from webhooks.wire.request import signed_headers

BODY = '{"id":"evt-1","note":"Zoë 🧾"}'.encode()
WHSEC = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
PLAIN = "a plain secret"
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
PAGE = {"Content-Type", "User-Agent", "X-Webhook-Id", "X-Webhook-Attempt", "X-Webhook-Timestamp", "X-Webhook-Signature"}
STANDARD = {"webhook-id", "webhook-timestamp", "webhook-signature"}


def delivery(secret: str, previous: str | None = None, *, standard: bool = False) -> Delivery:
    """Return a delivery that was claimed for its second attempt."""
    return Delivery(
        id="evt-1",
        event_id="evt-1",
        merchant_id="acme",
        endpoint_id="acme",
        type="payment.status_changed",
        turn=1,
        number=2,
        started_at=MOMENT,
        money=True,
        expires_at=MOMENT,
        fast_spent=1,
        slow_spent=0,
        slow_since=None,
        url="https://acme.example/",
        secret=secret,
        body=BODY,
        previous_secret=previous,
        standard_headers=standard,
    )


def signature(secret: str, timestamp: str) -> str:
    """Sign by hand."""
    return independent_hmac(secret.encode(), timestamp.encode() + b"." + BODY)


def test_one_secret_signs_the_pages_header() -> None:
    """Without an overlap and without the standard there are the page's headers and no other."""
    headers = signed_headers(delivery("now"), MOMENT)
    assert set(headers) == PAGE
    assert headers["X-Webhook-Timestamp"] == "1767225600"
    assert headers["X-Webhook-Signature"] == signature("now", "1767225600")
    assert (headers["X-Webhook-Id"], headers["X-Webhook-Attempt"]) == ("evt-1", "2")


def test_during_an_overlap_the_previous_secret_signs_the_pages_header() -> None:
    """The page's header is the previous secret's, and the new secret's signature travels beside it."""
    headers = signed_headers(delivery("new", "old"), MOMENT)
    assert set(headers) == PAGE | {"X-Webhook-Signature-Next"}
    assert headers["X-Webhook-Signature"] == signature("old", headers["X-Webhook-Timestamp"])
    assert headers["X-Webhook-Signature-Next"] == signature("new", headers["X-Webhook-Timestamp"])


def test_a_whsec_secret_signs_the_pages_header_as_text() -> None:
    """The page's header knows no encodings: the secret is its UTF-8 bytes, prefix and all."""
    headers = signed_headers(delivery(WHSEC), MOMENT)
    assert headers["X-Webhook-Signature"] == signature(WHSEC, headers["X-Webhook-Timestamp"])


@pytest.mark.parametrize(
    ("secret", "previous", "verifies", "signatures"),
    [
        (WHSEC, None, [Webhook(WHSEC)], 1),
        (PLAIN, None, [Webhook(PLAIN.encode())], 1),
        (WHSEC, PLAIN, [Webhook(WHSEC), Webhook(PLAIN.encode())], 2),
        (PLAIN, WHSEC, [Webhook(WHSEC), Webhook(PLAIN.encode())], 2),
    ],
    ids=["whsec", "plain", "plain to whsec", "whsec to plain"],
)
def test_the_standards_headers(secret: str, previous: str | None, verifies: list[Webhook], signatures: int) -> None:
    """They come beside the page's, and the standard's own verifier finds its signature among those that travel."""
    headers = signed_headers(delivery(secret, previous, standard=True), datetime.now(UTC))
    assert set(headers) >= STANDARD
    assert headers["webhook-timestamp"] == headers["X-Webhook-Timestamp"]
    assert len(headers["webhook-signature"].split(" ")) == signatures
    for receiver in verifies:
        receiver.verify(BODY, headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(b"other").verify(BODY, headers)


def test_a_secret_that_cannot_sign_is_our_fault_and_not_shown() -> None:
    """Nothing was sent, so nothing is spent."""
    with pytest.raises(LocalFault, match="base64") as caught:
        signed_headers(delivery("whsec_CANARY!", standard=True), MOMENT)
    assert "CANARY" not in str(caught.value)


def test_secrets_are_not_in_a_deliverys_text() -> None:
    """What is logged of a delivery shows neither secret nor body."""
    text = repr(delivery("SECCANARY", "OLDCANARY"))
    assert "CANARY" not in text
    assert "note" not in text
