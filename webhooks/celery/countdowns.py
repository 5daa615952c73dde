"""The messages that wait in this worker's memory until they are due."""

from __future__ import annotations

from celery.worker import state

_MOST = 2000  # in one worker (I7); what is more waits in the ledger


def has_room() -> bool:
    """Whether this process has room in its memory for one more message that waits."""
    return len(state.scheduled_requests) < _MOST
