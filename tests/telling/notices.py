"""Notices for tests."""

from __future__ import annotations

from datetime import UTC, datetime

from webhooks.ledger.notices import NoticeRow, Reached
from webhooks.observing.operators import NoticeKind

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def notice(
    kind: NoticeKind, *, id_: int = 7, merchant_id: str = "acme", endpoint_id: str | None = "ep_books"
) -> NoticeRow:
    """Make a notice that has reached nobody yet."""
    host = "books.acme.example"
    return NoticeRow(
        id_, kind, merchant_id, endpoint_id, host, NOON, NOON, 120, 3, Reached.WAITING, 0, None, (), None, None
    )
