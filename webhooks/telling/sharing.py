"""How many messages operators get: so many in an hour, and what is above is summed up in the last of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from webhooks.ledger.notices import NoticeRow
from webhooks.observing.operators import RecipientName

_Each = TypeVar("_Each")


def share(waiting: Sequence[_Each], *, per_hour: int, lately: int) -> Sequence[Sequence[_Each]]:
    """Return what each message holds that may be sent now, where `lately` were sent in the last hour.

    The oldest have messages of their own, and the last message all others; none is sent where there is no room.
    """
    room = per_hour - lately
    if room <= 0:
        return []
    if len(waiting) <= room:
        return [[each] for each in waiting]
    return [*([each] for each in waiting[: room - 1]), waiting[room - 1 :]]


def lacking(recipient: RecipientName, notices: Sequence[NoticeRow]) -> Sequence[NoticeRow]:
    """Return those that have not reached a recipient: it may have had them in other messages than the others."""
    return [notice for notice in notices if recipient not in notice.told_to]
