"""What the sweep asks of the ledger: who has died, what has expired, what is due, and who is held.

Every question is bounded, so that an idle tick costs the same whatever the number of deliveries. The statements stand
in `webhooks.ledger.sweeping` and `webhooks.ledger.releasing`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Executable, Row

from webhooks.ledger.database import Database
from webhooks.ledger.releasing import END_ALL_REMOVED, HELD_ENDPOINTS, KEEP_PLACE, RELEASE, RELEASE_PROBES
from webhooks.ledger.statements import UNQUEUE_ALL, turns_of
from webhooks.ledger.sweeping import BURY, DUE, EXPIRE, SUSPECT
from webhooks.model import NO_LIMITS, Limits, Message

_BATCH = 500


@dataclass(frozen=True, slots=True)
class Due:
    """A message to publish, and how long it has yet to wait."""

    message: Message
    wait: timedelta


@dataclass(frozen=True, slots=True)
class HeldEndpoints:
    """A page of the endpoints that have held deliveries: those whose may go, with their own limits, and the removed.

    It holds those `after` a name; `last` is the name after which the next page begins, None where there is no more.
    """

    limits: Mapping[str, Limits]
    removed: Sequence[str]
    after: str = ""
    last: str | None = None


class Backlog:
    """The ledger as the sweep sees it; where nothing else is said a batch is at most 500 rows."""

    def __init__(self, database: Database, *, recover_after: timedelta) -> None:
        self._database = database
        self._recover_after = recover_after

    def expire(self) -> Mapping[str, bool]:
        """Fail what is past its age, held or not; what is being sent right now may finish.

        Returns which, and of each whether it is money.
        """
        return _whether_money(self._database.rows(EXPIRE, {"the_most": _BATCH}, repeatable=True))

    def suspect(self) -> int:
        """Mark the attempts whose lease has run out; returns how many.

        The worker gets a little longer: it may be alive with an answer that it could not write down while the
        database was away, and that answer must win over another POST.
        """
        return len(self._database.rows(SUSPECT, {"the_most": _BATCH}, repeatable=True))

    def bury(self) -> Sequence[str]:
        """Take deliveries back from workers that died over them: an attempt of unknown outcome, due again at once.

        Returns which.
        """
        return [row.delivery_id for row in self._database.rows(BURY, {"the_most": _BATCH}, repeatable=True)]

    def due(self, most: int, *, ahead: timedelta, still_queued_from: datetime | None) -> Sequence[Due]:
        """Take up to `most` deliveries that are due within `ahead` and have no live message.

        `still_queued_from` is when the oldest message in the broker's queues was published: whatever was published
        since then still waits there, and is left to its message (I7).
        """
        values = {"the_most": most, "the_ahead": ahead, "the_still_queued_from": still_queued_from}
        taken = self._database.rows(DUE, {**values, "the_recover_after": self._recover_after})
        return [Due(_message(row), max(row.wait, timedelta())) for row in taken if row.taken]

    def leave(self, messages: Sequence[Message]) -> None:
        """Note that these were not published after all: the next tick takes them again."""
        self._database.rows(UNQUEUE_ALL, turns_of(messages), repeatable=True)

    def held_endpoints(self, after: str | None = None, *, most: int = _BATCH) -> HeldEndpoints:
        """Return the endpoints whose held deliveries may go, by address and operator, or end, since it was removed.

        They are those among the next `most` that hold any, in the order of their ids: after the one that is named, or
        from where `keep_place` has it. Each costs one index entry.
        """
        rows = self._database.rows(HELD_ENDPOINTS, {"the_after": after, "the_most": most}, repeatable=True)
        concerned = [row for row in rows if row.concerned]
        return HeldEndpoints(
            limits={row.endpoint_id: _limits(row) for row in concerned if not row.removed},
            removed=[row.endpoint_id for row in concerned if row.removed],
            after=rows[0].began,
            last=rows[-1].endpoint_id if len(rows) == most else None,
        )

    def keep_place(self, after: str) -> None:
        """Note where the next tick's first page begins: after an endpoint, or with the first, which is after ''."""
        self._database.rows(KEEP_PLACE, {"the_after": after}, repeatable=True)

    def end_removed(self, endpoint_ids: Sequence[str]) -> Mapping[str, bool]:
        """End the held deliveries of endpoints that were removed after they were accepted; returns as `expire`."""
        values = {"the_endpoint_ids": endpoint_ids, "the_most": _BATCH}
        return _whether_money(self._database.rows(END_ALL_REMOVED, values, repeatable=True))

    def release_probes(self, endpoint_ids: Iterable[str]) -> Mapping[str, Sequence[Message]]:
        """Take of each endpoint the held delivery that has spent the fewest fast attempts, the oldest among equals."""
        return self._released(RELEASE_PROBES, dict.fromkeys(endpoint_ids, 1))

    def release(self, numbers: Mapping[str, int]) -> Mapping[str, Sequence[Message]]:
        """Take of each endpoint up to so many held deliveries, oldest first; as many rows as that comes to."""
        return self._released(RELEASE, numbers)

    def _released(self, release: Executable, numbers: Mapping[str, int]) -> Mapping[str, Sequence[Message]]:
        asked = {"the_endpoint_ids": list(numbers), "the_numbers": list(numbers.values())}
        released: dict[str, list[Message]] = defaultdict(list)
        rows = self._database.rows(release, {**asked, "the_recover_after": self._recover_after})
        for row in sorted(rows, key=lambda row: (row.accepted_at, row.id)):
            released[row.endpoint_id].append(_message(row))
        return released


def _whether_money(rows: Sequence[Row[Any]]) -> Mapping[str, bool]:
    return {row.id: row.money for row in rows}


def _limits(row: Row[Any]) -> Limits:
    return NO_LIMITS if row.lane is None and row.rate is None else Limits(row.lane, row.rate)


def _message(row: Row[Any]) -> Message:
    """Return a message, before which first tries of others go: whoever waits for it has waited before."""
    return Message(
        row.id,
        row.merchant_id,
        row.type,
        turn=row.turn,
        queued_at=row.queued_at,
        limits=_limits(row),
        may_wait=True,
        retries=row.attempts,
    )
