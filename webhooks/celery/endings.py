"""How a delivery's task ends, as Flower shows it."""

from __future__ import annotations

from celery.exceptions import Retry


class DeliveryFailed(Exception):
    """Shown in Flower on a FAILURE; the text is the reason."""


class Waiting(Exception):
    """Shown in Flower on a RETRY; the text says what the delivery waits for."""


def waiting(what: str) -> Retry:
    """Return what ends a task that waits, with a word of what for."""
    return Retry(what, exc=Waiting(what))
