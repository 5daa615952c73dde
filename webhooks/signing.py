"""Signatures: what the worker puts on every request and what a receiver checks. Standard library only.

`X-Webhook-Signature` is the lower-case hex HMAC-SHA256, with the merchant's secret, over `timestamp + "." + raw body`,
and `X-Webhook-Timestamp` is that timestamp: whole seconds since 1970, taken when the attempt is sent. The bytes of the
body are signed as they travel, so a receiver must verify the raw body, before any JSON parsing. While one secret
replaces another, `X-Webhook-Signature` is still the old one's and `X-Webhook-Signature-Next` the new one's.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import time
from collections.abc import Sequence

Secret = str | bytes | bytearray
Secrets = Secret | Sequence[Secret]

DEFAULT_TOLERANCE = 300
"""Seconds that a receiver's clock and ours may differ, the usual five minutes."""

STANDARD_PREFIX = "whsec_"

_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)
_SECONDS = re.compile(r"[0-9]{1,12}", re.ASCII)


def sign(secret: Secret, timestamp: int | str, body: bytes) -> str:
    """Return the value of `X-Webhook-Signature`: 64 lower-case hex digits.

    A secret given as text is used as its UTF-8 bytes. `ValueError` for an empty secret, which anybody could guess.
    """
    return hmac.new(_key(secret), _signed(timestamp, body), hashlib.sha256).hexdigest()


def verify(
    secret: Secrets,
    *,
    timestamp: object,
    signature: object,
    body: bytes,
    tolerance: float | None = DEFAULT_TOLERANCE,
    now: float | None = None,
) -> bool:
    """Say whether a request came from whoever holds the secret, and is fresh.

    `timestamp` and `signature` are the two headers as they came; whatever they are, the answer is a plain yes or no,
    found in constant time. Several secrets may be given while one replaces another, and several signatures, a list or
    tuple of `X-Webhook-Signature` and `X-Webhook-Signature-Next` (None for one that did not come): one that fits is
    enough. `tolerance` is in seconds and reaches both ways (`None` switches it off); `now` is seconds since 1970, by
    default the clock's.
    `ValueError` or `TypeError` only for a receiver's own mistake: no secret, or a body that is not the raw bytes.
    """
    stamp = _stamp(timestamp)
    signatures = signature if isinstance(signature, list | tuple) else (signature,)
    matched = False
    for candidate in _each(secret):
        expected = sign(candidate, stamp or "0", body)
        for given in signatures:
            matched |= _same(expected, given)
    return matched and stamp is not None and _fresh(int(stamp), tolerance, now)


def standard_signature(secret: Secrets, *, webhook_id: str, timestamp: int | str, body: bytes) -> str:
    """Return the value of the Standard Webhooks header `webhook-signature`: `v1,<base64>`, one for each secret.

    It covers `webhook-id + "." + webhook-timestamp + "." + raw body`. A secret written `whsec_<base64>` stands for the
    decoded bytes, as that standard says; any other text stands for its own UTF-8 bytes, the same key as `sign` uses.
    `ValueError` for an empty secret or one whose base64 is broken; the text never shows it.
    """
    signed = webhook_id.encode() + b"." + _signed(timestamp, body)
    digests = (hmac.digest(standard_key(each), signed, hashlib.sha256) for each in _each(secret))
    return " ".join("v1," + base64.b64encode(digest).decode("ascii") for digest in digests)


def _signed(timestamp: int | str, body: bytes) -> bytes:
    if not isinstance(body, bytes | bytearray | memoryview):
        raise TypeError("the body must be the raw bytes of the request")
    return str(timestamp).encode("ascii") + b"." + bytes(body)


def _key(secret: Secret) -> bytes:
    if not isinstance(secret, str | bytes | bytearray):
        raise TypeError("a secret is text or bytes")
    key = secret.encode() if isinstance(secret, str) else bytes(secret)
    if not key:
        raise ValueError("the secret is empty")
    return key


def standard_key(secret: Secret) -> bytes:
    """Return the key of the Standard Webhooks signature. `ValueError`, which never shows it, for a broken secret."""
    if not isinstance(secret, str) or not secret.startswith(STANDARD_PREFIX):
        return _key(secret)
    encoded = secret.removeprefix(STANDARD_PREFIX).rstrip("=")
    try:
        decoded = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except ValueError:
        raise ValueError(f"a secret that begins with {STANDARD_PREFIX} must go on in base64") from None
    return _key(decoded)


def _each(secret: Secrets) -> Sequence[Secret]:
    several = [secret] if isinstance(secret, str | bytes | bytearray) else list(secret)
    if not several:
        raise ValueError("no secret to work with")
    return several


def _stamp(timestamp: object) -> str | None:
    """Return the timestamp as it was signed; none unless it is a plain decimal number of sane length."""
    text = str(timestamp) if isinstance(timestamp, int) and not isinstance(timestamp, bool) else timestamp
    return text if isinstance(text, str) and _SECONDS.fullmatch(text) else None


def _same(expected: str, signature: object) -> bool:
    well_formed = isinstance(signature, str) and _HEX.fullmatch(signature) is not None
    return hmac.compare_digest(expected, signature if well_formed and isinstance(signature, str) else "")


def _fresh(stamp: int, tolerance: float | None, now: float | None) -> bool:
    if tolerance is None:
        return True
    return abs((time.time() if now is None else now) - stamp) <= tolerance
