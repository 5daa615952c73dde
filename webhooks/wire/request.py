"""The request's headers: the id that stays, the timestamp and signature that are made afresh for every attempt."""

from __future__ import annotations

import time

from webhooks.model import Delivery
from webhooks.signing import sign

USER_AGENT = "webhook-delivery-worker/0.1"


def signed_headers(delivery: Delivery) -> dict[str, str]:
    """Sign the stored bytes with the secret that is valid now; the timestamp is seconds of the Unix epoch."""
    timestamp = str(int(time.time()))
    return {
        "Content-Type": "application/json",
        "User-Agent": USER_AGENT,
        "X-Webhook-Id": delivery.id,
        "X-Webhook-Attempt": str(delivery.number),
        "X-Webhook-Timestamp": timestamp,
        "X-Webhook-Signature": sign(delivery.secret, timestamp, delivery.body),
    }
