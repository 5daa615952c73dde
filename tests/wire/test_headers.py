"""The headers of an attempt: which secrets sign it, before, during and after an overlap, with and without the standard.

A table for what `signed_headers` makes of a claimed delivery, and where an endpoint's own headers go.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from tests.merchant import Close, Merchant, Reply
from tests.wire.conftest import MakeSender
from tests.wire.test_signing import independent_hmac
from webhooks.errors import InvalidHeader, LocalFault
from webhooks.model import Delivery
from webhooks.policy.headers import checked_header
from webhooks.wire.request import signed_headers
from webhooks.wire.sender import Sender

BODY = '{"id":"evt-1","note":"Zoë 🧾"}'.encode()
WHSEC = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
PLAIN = "a plain secret"
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
PAGE = {"Content-Type", "User-Agent", "X-Webhook-Id", "X-Webhook-Attempt", "X-Webhook-Timestamp", "X-Webhook-Signature"}
STANDARD = {"webhook-id", "webhook-timestamp", "webhook-signature"}


def delivery(
    secret: str, previous: str | None = None, *, standard: bool = False, own: Mapping[str, str] | None = None
) -> Delivery:
    """Return a delivery that was claimed for its second attempt."""
    return Delivery(
        id="evt-1~ep_backup",
        event_id="evt-1",
        merchant_id="acme",
        endpoint_id="ep_backup",
        type="payment.status_changed",
        turn=1,
        number=2,
        started_at=MOMENT,
        due_at=MOMENT,
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
        headers=own or {},
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
    assert headers["webhook-id"] == headers["X-Webhook-Id"] == "evt-1"
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


OWN = {"Authorization": "Bearer CANARY", "X-Tenant": "CANARY 7"}


def test_an_endpoints_own_headers_come_beside_ours() -> None:
    """They change none of ours, neither name nor value."""
    plain = signed_headers(delivery("now", "old", standard=True), MOMENT)
    assert signed_headers(delivery("now", "old", standard=True, own=OWN), MOMENT) == plain | OWN


@pytest.mark.parametrize(
    "name", [*sorted(PAGE | STANDARD), "x-webhook-signature-next", "x_webhook_id", "HOST", "content-length"]
)
def test_an_own_header_that_would_replace_ours_is_never_sent(name: str) -> None:
    """Whoever wrote it into the ledger: a fault of ours, which names the endpoint and shows no value."""
    with pytest.raises(LocalFault, match=f"endpoint ep_backup: header {name}: is not an endpoint's to set") as caught:
        signed_headers(delivery("now", own={name: "CANARY"}), MOMENT)
    assert "CANARY" not in str(caught.value)


def test_a_headers_value_is_looked_at_at_every_attempt() -> None:
    """That its name was sent before, with another value, says nothing of this one; and no value is kept."""
    signed_headers(delivery("now", own={"X-Tenant": "7"}), MOMENT)
    with pytest.raises(LocalFault, match="header X-Tenant: the value has a character"):
        signed_headers(delivery("now", own={"X-Tenant": "7\r\nX-Evil: 1"}), MOMENT)
    with pytest.raises(LocalFault, match="header x_tenant: is given twice"):
        signed_headers(delivery("now", own={"X-Tenant": "7", "x_tenant": "7"}), MOMENT)


def test_every_header_of_a_request_without_own_ones_is_not_an_endpoints_to_set(
    merchant: Merchant, sender: Sender
) -> None:
    """What is seen on the wire, those that requests and the connection add among it, is ours."""
    sender.post(merchant.url(), signed_headers(delivery("new", "old", standard=True), MOMENT), BODY)
    seen = [name for name, _ in merchant.requests[0].headers]
    assert {"Host", "Content-Length", "Accept-Encoding", *PAGE, *STANDARD} <= set(seen)
    for name in seen:
        with pytest.raises(InvalidHeader, match="is not an endpoint's to set"):
            checked_header(name, "mine")


def test_own_headers_reach_their_endpoint_and_nobody_else(
    merchant: Merchant, make_sender: MakeSender, caplog: pytest.LogCaptureFixture
) -> None:
    """Not where a redirect points, not the next delivery on a kept connection, no log, and nothing that is recorded."""
    caplog.set_level(logging.DEBUG)
    sender = make_sender()
    elsewhere = merchant.url("/elsewhere", host="other.merchant.test")
    merchant.answers(Reply(307, headers=[("Location", elsewhere)]), 401, Reply.raw(b"nonsense\r\n", Close()), 200)
    headers = signed_headers(delivery("now", own=OWN), MOMENT)
    told = [sender.post(merchant.url(), headers, BODY) for _ in range(3)]
    sender.post(merchant.url(), signed_headers(delivery("now"), MOMENT), BODY)
    sent = [[request.header(name) for name in OWN] for request in merchant.requests]
    assert sent == [list(OWN.values())] * 3 + [[None, None]]
    assert "CANARY" not in repr(told) + caplog.text


def test_own_headers_of_a_request_that_cannot_be_made_are_not_told(merchant: Merchant, sender: Sender) -> None:
    """Not even where a value that nothing had checked breaks the request."""
    broken = {name: f"{value}\r\nX: 1" for name, value in OWN.items()}
    with pytest.raises(LocalFault) as caught:
        sender.post(merchant.url(), broken, BODY)
    assert "CANARY" not in "".join(traceback.format_exception(caught.value))


def test_secrets_are_not_in_a_deliverys_text() -> None:
    """What is logged of a delivery shows neither secret nor body, nor an own header."""
    text = repr(delivery("SECCANARY", "OLDCANARY", own=OWN))
    assert "CANARY" not in text
    assert "note" not in text
