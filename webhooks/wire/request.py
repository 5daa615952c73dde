"""The request's headers: the id that stays, what is made afresh for every attempt, and the endpoint's own."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache

from webhooks.errors import InvalidHeader, LocalFault
from webhooks.model import Delivery
from webhooks.policy.headers import check_names, check_value
from webhooks.signing import sign, standard_signature

_check_names = lru_cache(4096)(check_names)

USER_AGENT = "webhook-delivery-worker/0.1"


def signed_headers(delivery: Delivery, moment: datetime) -> dict[str, str]:
    """Sign the stored bytes with the secrets that are valid now; the timestamp is `moment`, in seconds since 1970.

    `X-Webhook-Signature` holds one value. During an overlap that is the previous secret's, so that nothing breaks at a
    merchant that has not changed anything yet, and the new secret's travels beside it. The endpoint's own headers come
    last; none of them can replace one of ours. LocalFault for a secret that cannot sign or a header that must not be
    sent.
    """
    try:
        return _signed(delivery, str(int(moment.timestamp()))) | _checked(delivery.headers)
    except InvalidHeader as error:
        raise LocalFault(f"endpoint {delivery.endpoint_id}: {error}") from None
    except ValueError as error:
        raise LocalFault(f"signing: {error}") from None


def _checked(headers: Mapping[str, str]) -> dict[str, str]:
    """Check as `checked_headers` does. Names are remembered, values are not: they may be secrets."""
    if headers:
        _check_names(tuple(headers))
        for name, value in headers.items():
            check_value(name, value)
    return dict(headers)


def _signed(delivery: Delivery, timestamp: str) -> dict[str, str]:
    headers = {
        "Content-Type": "application/json",
        "User-Agent": USER_AGENT,
        "X-Webhook-Id": delivery.event_id,
        "X-Webhook-Attempt": str(delivery.number),
        "X-Webhook-Timestamp": timestamp,
        "X-Webhook-Signature": sign(delivery.previous_secret or delivery.secret, timestamp, delivery.body),
    }
    if delivery.previous_secret:
        headers["X-Webhook-Signature-Next"] = sign(delivery.secret, timestamp, delivery.body)
    return headers | (_standard(delivery, timestamp) if delivery.standard_headers else {})


def _standard(delivery: Delivery, timestamp: str) -> dict[str, str]:
    """Return the Standard Webhooks headers; there the newest signature comes first."""
    secrets = [secret for secret in (delivery.secret, delivery.previous_secret) if secret]
    signature = standard_signature(secrets, webhook_id=delivery.event_id, timestamp=timestamp, body=delivery.body)
    return {"webhook-id": delivery.event_id, "webhook-timestamp": timestamp, "webhook-signature": signature}
