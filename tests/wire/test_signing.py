"""Signatures: an independent check agrees with them, and the verifier says a clean no to anything else."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from webhooks.signing import Secrets, sign, standard_signature, verify

SECRET = "s3cret-Zoë"
NOW = 1_760_000_000
BODY = '{"name":"Zoë 🧾 日本","amount":"10.50"}'.encode()


def independent_hmac(key: bytes, message: bytes) -> str:
    """HMAC-SHA256 as RFC 2104 writes it, without the module under test."""
    block = (hashlib.sha256(key).digest() if len(key) > 64 else key).ljust(64, b"\0")
    inner = hashlib.sha256(bytes(b ^ 0x36 for b in block) + message).digest()
    return hashlib.sha256(bytes(b ^ 0x5C for b in block) + inner).hexdigest()


@given(secret=st.binary(min_size=1, max_size=200), timestamp=st.integers(0, 10**11), body=st.binary(max_size=500))
def test_an_independent_check_agrees_on_every_body(secret: bytes, timestamp: int, body: bytes) -> None:
    """The signature is the HMAC of timestamp, dot and raw bytes, whatever the bytes are."""
    signature = sign(secret, timestamp, body)
    assert signature == independent_hmac(secret, str(timestamp).encode() + b"." + body)
    assert verify(secret, timestamp=str(timestamp), signature=signature, body=body, now=timestamp)


def test_a_text_secret_is_its_utf8_bytes() -> None:
    """A secret with accents signs the same whether it is given as text or as bytes."""
    assert sign(SECRET, NOW, BODY) == sign(SECRET.encode(), str(NOW), BODY)


def test_a_changed_byte_does_not_verify() -> None:
    """One other byte in the body, the timestamp or the secret is another message."""
    signature = sign(SECRET, NOW, BODY)
    assert verify(SECRET, timestamp=NOW, signature=signature, body=BODY, now=NOW)
    assert not verify(SECRET, timestamp=NOW, signature=signature, body=BODY + b" ", now=NOW)
    assert not verify(SECRET, timestamp=NOW + 1, signature=signature, body=BODY, now=NOW)
    assert not verify(SECRET + "x", timestamp=NOW, signature=signature, body=BODY, now=NOW)


@pytest.mark.parametrize(
    ("age", "tolerance", "verifies"),
    [
        (0, 300, True),
        (300, 300, True),
        (301, 300, False),
        (-300, 300, True),
        (-301, 300, False),
        (10, 5, False),
        (10**9, None, True),
    ],
)
def test_the_tolerance_reaches_both_ways(age: int, tolerance: float | None, verifies: bool) -> None:
    """A timestamp may be old or early by the tolerance; without a tolerance it may be anything."""
    signature = sign(SECRET, NOW, BODY)
    found = verify(SECRET, timestamp=str(NOW), signature=signature, body=BODY, tolerance=tolerance, now=NOW + age)
    assert found is verifies


GOOD = sign(SECRET, NOW, BODY)


@pytest.mark.parametrize(
    "signature",
    [
        "", "é", "日本", GOOD.upper(), "0" * 1_000_000, GOOD[:-1], GOOD + "0", GOOD + " " + GOOD, f"{GOOD},{GOOD}",
        f" {GOOD}", f"{GOOD}\n", GOOD.encode(), None, 0, 1.5, [], [GOOD[:-1], None, 0, [GOOD]], "sha256=" + GOOD,
        "\ud800" * 64, "g" * 64,
        GOOD.replace("0", "٠"), True,
    ],
)  # fmt: skip
def test_a_hostile_signature_is_a_clean_no(signature: Any) -> None:
    """No value of the header raises (E7)."""
    assert verify(SECRET, timestamp=str(NOW), signature=signature, body=BODY, now=NOW) is False


@pytest.mark.parametrize(
    "timestamp",
    [
        "", "abc", "-5", -5, "+5", " 1", "1 ", "1\n", "1_0", "1.5", 1.5, "1e9", "9" * 20, "٣", "１", "0x10", None,
        b"1760000000", [], True, "inf", "nan", "\ud800",
    ],
)  # fmt: skip
def test_a_hostile_timestamp_is_a_clean_no(timestamp: Any) -> None:
    """No value of the header raises, not even with a signature that would match it and the age not looked at."""
    try:
        signature = sign(SECRET, timestamp, BODY)
    except UnicodeEncodeError:
        signature = GOOD
    assert verify(SECRET, timestamp=timestamp, signature=signature, body=BODY, tolerance=None) is False


def test_during_an_overlap_either_secret_verifies() -> None:
    """A receiver that holds the old and the new secret accepts both signatures and no third."""
    both = ["old", "new"]
    for secret in both:
        assert verify(both, timestamp=NOW, signature=sign(secret, NOW, BODY), body=BODY, now=NOW)
    assert not verify(both, timestamp=NOW, signature=sign("other", NOW, BODY), body=BODY, now=NOW)


@pytest.mark.parametrize("holds", ["old", "new", ["old", "new"]])
@pytest.mark.parametrize("many", [list, tuple])
def test_of_several_signatures_one_that_fits_is_enough(holds: Secrets, many: Any) -> None:
    """During an overlap both headers are given, and whoever holds either secret verifies; a stranger does not."""
    headers = many([sign("old", NOW, BODY), sign("new", NOW, BODY)])
    assert verify(holds, timestamp=NOW, signature=headers, body=BODY, now=NOW)
    assert not verify("other", timestamp=NOW, signature=headers, body=BODY, now=NOW)
    assert not verify(holds, timestamp=NOW, signature=headers, body=BODY, now=NOW + 301)


def test_a_header_that_did_not_come_is_given_as_none() -> None:
    """Outside an overlap there is only one signature; a receiver passes both headers all the same."""
    assert verify("old", timestamp=NOW, signature=[sign("old", NOW, BODY), None], body=BODY, now=NOW)
    assert not verify("old", timestamp=NOW, signature=[None, None], body=BODY, now=NOW)


@pytest.mark.parametrize("secret", ["", b"", [], [""], ["old", ""]])
def test_an_empty_secret_is_the_receivers_mistake(secret: Secrets) -> None:
    """A setting that was never filled in must not verify what anybody could have signed."""
    with pytest.raises(ValueError, match="secret"):
        verify(secret, timestamp=NOW, signature=GOOD, body=BODY, now=NOW)


def test_a_secret_may_be_a_bytearray_and_nothing_else() -> None:
    """It is one secret, not a list of numbers, each of which would be so many zeros."""
    given: dict[str, Any] = {"timestamp": "1700000000", "body": b"{}", "tolerance": None}
    good, forged = sign(b"secret", 1700000000, b"{}"), sign(bytes(115), 1700000000, b"{}")
    assert verify(bytearray(b"secret"), signature=good, **given)
    assert not verify(bytearray(b"secret"), signature=forged, **given)
    with pytest.raises(TypeError, match="text or bytes"):
        verify([115], signature=forged, **given)  # type: ignore[list-item]


def test_a_decoded_body_is_the_receivers_mistake() -> None:
    """Verifying text in place of the raw bytes fails loudly, not with a puzzling no."""
    with pytest.raises(TypeError, match="raw bytes"):
        verify(SECRET, timestamp=NOW, signature=GOOD, body=BODY.decode(), now=NOW)  # type: ignore[arg-type]


WHSEC = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"


def standard_headers(signature: str, timestamp: int) -> dict[str, str]:
    """Return the three headers of the standard."""
    return {"webhook-id": "evt_1", "webhook-timestamp": str(timestamp), "webhook-signature": signature}


@pytest.mark.parametrize(
    ("secret", "receiver"),
    [
        (WHSEC, Webhook(WHSEC)),
        (WHSEC.rstrip("="), Webhook(WHSEC.removeprefix("whsec_"))),
        ("whsec_YWJjZA", Webhook("whsec_YWJjZA==")),
        (SECRET, Webhook(SECRET.encode())),
        (b"\x00\xff raw", Webhook(b"\x00\xff raw")),
    ],
)
def test_the_standard_library_verifies_our_standard_headers(secret: str | bytes, receiver: Webhook) -> None:
    """A `whsec_` secret is base64 as the standard says; any other text is its UTF-8 bytes."""
    now = int(datetime.now(UTC).timestamp())
    signature = standard_signature(secret, webhook_id="evt_1", timestamp=now, body=BODY)
    receiver.verify(BODY, standard_headers(signature, now))
    with pytest.raises(WebhookVerificationError):
        receiver.verify(BODY + b" ", standard_headers(signature, now), json_parse=False)


def test_the_standard_library_verifies_with_either_secret_during_an_overlap() -> None:
    """Both signatures travel in one header, and each secret's holder finds its own."""
    now = int(datetime.now(UTC).timestamp())
    signature = standard_signature([WHSEC, SECRET], webhook_id="evt_1", timestamp=now, body=BODY)
    for receiver in (Webhook(WHSEC), Webhook(SECRET.encode())):
        receiver.verify(BODY, standard_headers(signature, now))
    with pytest.raises(WebhookVerificationError):
        Webhook(b"other").verify(BODY, standard_headers(signature, now))


@pytest.mark.parametrize("secret", ["whsec_!!!", "whsec_", "", "whsec_é"])
def test_a_broken_standard_secret_is_named_without_being_shown(secret: str) -> None:
    """The error says what is wrong with it and not what it is."""
    with pytest.raises(ValueError, match="secret") as caught:
        standard_signature(secret, webhook_id="evt_1", timestamp=NOW, body=BODY)
    assert "!!!" not in str(caught.value)
