"""The desk: what failed and nobody has dealt with, for a person to look at, and what people have noted about it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Row

from webhooks.errors import NotPossible
from webhooks.ledger import failures
from webhooks.ledger.acts import Rows
from webhooks.ledger.failures import BEHIND, ON_RECORD, OPEN
from webhooks.ledger.replays import Verdict
from webhooks.ledger.rows import Page
from webhooks.ledger.tables import deliveries
from webhooks.model import Reason, State

MOST_GROUPS = 200


@dataclass(frozen=True, slots=True)
class OnDesk:
    """Which failed deliveries are meant; what is None does not narrow. `all`: also what was dealt with already."""

    merchant_id: str | None = None
    reason: Reason | None = None
    money: bool | None = None
    failed_before: datetime | None = None
    all: bool = False


@dataclass(frozen=True, slots=True)
class Numbers:
    """How many are on the desk, of these how many money, and how many nobody has looked at; when the oldest failed."""

    open: int
    money: int
    unseen: int
    money_unseen: int
    oldest: datetime | None
    by_reason: Mapping[Reason, int]


@dataclass(frozen=True, slots=True)
class Group:
    """What is on the desk of one merchant for one reason. `oldest` and `newest` are when they failed.

    `example_id` is the one that failed last, of money where there is any; `status`, `cause` and `excerpt` are of its
    last attempt.
    """

    merchant_id: str
    reason: Reason
    number: int
    money: int
    unseen: int
    oldest: datetime
    newest: datetime
    example_id: str
    status: int | None
    cause: str | None
    excerpt: str | None


@dataclass(frozen=True, slots=True)
class Groups:
    """The first groups of the desk: money before anything else, then what nobody has looked at, the oldest first.

    `left_out` is how many more groups there are.
    """

    items: Sequence[Group]
    left_out: int


@dataclass(frozen=True, slots=True)
class FailedRow:
    """A failed delivery; `status`, `cause` and `excerpt` are of its last attempt, `note` is what was last noted."""

    id: str
    event_id: str
    merchant_id: str
    endpoint_id: str
    type: str
    money: bool
    reason: Reason
    attempts: int
    accepted_at: datetime
    failed_at: datetime
    seen: bool
    dismissed: bool
    status: int | None
    cause: str | None
    excerpt: str | None
    note: str | None


@dataclass(frozen=True, slots=True)
class NoteRow:
    """What a person wrote down about a delivery."""

    at: datetime
    who: str
    text: str


@dataclass(frozen=True, slots=True)
class Dealings:
    """What people had to do with one delivery. `seen` and `dismissed` count since it failed last."""

    seen: bool
    dismissed: bool
    notes: Sequence[NoteRow]


class Desk:
    """What failed and nobody has dealt with. Reads look at an index of just that."""

    def __init__(self, database: Rows) -> None:
        self._database = database

    def within(self, act: Rows) -> Desk:
        """Return the same, with every change a part of an operator's act."""
        return Desk(act)

    def numbers(self) -> Numbers:
        """Return how much is on the desk."""
        rows = self._read(failures.BY_REASON)
        return Numbers(
            open=sum(row.number for row in rows),
            money=sum(row.money for row in rows),
            unseen=sum(row.unseen for row in rows),
            money_unseen=sum(row.money_unseen for row in rows),
            oldest=min((row.oldest for row in rows), default=None),
            by_reason={Reason(row.reason): row.number for row in rows},
        )

    def groups(self, most: int = MOST_GROUPS) -> Groups:
        """Return what is on the desk by merchant and reason, up to so many groups."""
        rows = self._read(failures.GROUPS, {"the_most": most})
        items = [Group(**_of(Group, row)) for row in rows]
        return Groups(items, left_out=rows[0].groups - len(items) if rows else 0)

    def deliveries(self, wanted: OnDesk, limit: int, after: str | None = None) -> Page[FailedRow, str]:
        """Return failed deliveries, money first, then the newest, from the one on that comes behind `after`.

        That is the `next` of another page, and says a place: it holds also when what stood there has left the desk.
        Raises NotPossible for anything else.
        """
        place = {} if after is None else _place(after)
        which = [*_matching(wanted), *([BEHIND] if place else [])]
        rows = self._read(failures.listed(*which), {**place, "the_most": limit + 1})
        found = [FailedRow(**_of(FailedRow, row)) for row in rows]
        return Page(found[:limit], _cursor(found[limit - 1]) if len(found) > limit else None)

    def count(self, wanted: OnDesk) -> int:
        """Return how many such failed deliveries there are."""
        return int(self._read(failures.COUNT_ON_DESK.where(*_matching(wanted)))[0].number)

    def dealings(self, delivery_id: str) -> Dealings:
        """Return what people had to do with a delivery; nothing, where there is none."""
        rows = self._read(failures.STANDS, {"the_id": delivery_id})
        written = [NoteRow(**row._asdict()) for row in self._read(failures.NOTES, {"the_id": delivery_id})]
        return Dealings(rows[0].seen, rows[0].dismissed, written) if rows else Dealings(False, False, written)

    def note(self, who: str, delivery_ids: Iterable[str], text: str) -> list[Verdict]:
        """Write down something about each of these, which count as seen from then on."""
        named = list(dict.fromkeys(delivery_ids))
        written = {row.delivery_id for row in self._write(who, named, text)}
        self._database.rows(failures.SEE, {"the_ids": named})
        return [Verdict(one, None if one in written else _UNKNOWN) for one in named]

    def dismiss(self, who: str, delivery_ids: Iterable[str], text: str) -> list[Verdict]:
        """Take these off the desk, with a note; each stays failed."""
        return self._move(failures.DISMISS, who, delivery_ids, text, _why_not_dismissed)

    def reopen(self, who: str, delivery_ids: Iterable[str], text: str) -> list[Verdict]:
        """Put what was dismissed back on the desk, with a note; it stays seen."""
        return self._move(failures.REOPEN, who, delivery_ids, text, _why_not_reopened)

    def _move(
        self, statement: Any, who: str, delivery_ids: Iterable[str], text: str, why_not: Callable[[Any], str]
    ) -> list[Verdict]:
        named = list(dict.fromkeys(delivery_ids))
        moved = {row.id for row in self._database.rows(statement, {"the_ids": named})}
        self._write(who, sorted(moved), text)
        left = [one for one in named if one not in moved]
        found = {row.id: row for row in self._database.rows(failures.FOUND, {"the_ids": left})} if left else {}
        return [Verdict(one, None if one in moved else why_not(found.get(one))) for one in named]

    def _write(self, who: str, delivery_ids: Sequence[str], text: str) -> Sequence[Row[Any]]:
        if not delivery_ids:
            return []
        return self._database.rows(failures.WRITE, {"the_ids": delivery_ids, "the_who": who, "the_text": text})

    def _read(self, statement: Any, values: Mapping[str, Any] | None = None) -> Sequence[Row[Any]]:
        return self._database.rows(statement, values, repeatable=True)


_UNKNOWN = "there is no such delivery"
_PRUNED = "it has been pruned: it is not on the desk any more"


def _why_not_dismissed(row: Any) -> str:
    if row is None:
        return _UNKNOWN
    reasons = {
        f"it is {row.state}, not failed": row.state != State.FAILED,
        "an operator cancelled it: it is not on the desk": row.reason == Reason.CANCELLED,
        "it was dismissed already": row.dismissed,
    }
    return next((why for why, holds in reasons.items() if holds), _PRUNED)


def _why_not_reopened(row: Any) -> str:
    if row is None:
        return _UNKNOWN
    if row.state != State.FAILED:
        return f"it is {row.state}, not failed"
    return _PRUNED if row.dismissed else "it was not dismissed"


def _of(kind: Any, row: Row[Any]) -> dict[str, Any]:
    values = row._asdict()
    return {**{each.name: values[each.name] for each in fields(kind)}, "reason": Reason(values["reason"])}


def _matching(wanted: OnDesk) -> list[Any]:
    narrowed = {"merchant_id": wanted.merchant_id, "reason": wanted.reason, "money": wanted.money}
    equal = [deliveries.c[name] == value for name, value in narrowed.items() if value is not None]
    if wanted.failed_before is not None:
        equal.append(deliveries.c.finished_at < wanted.failed_before)
    return [ON_RECORD if wanted.all else OPEN, *equal]


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MONEY, _OTHER = "m", "o"
_CURSOR = re.compile(rf"(?P<money>{_MONEY}|{_OTHER})(?P<us>[0-9]{{1,17}})-(?P<id>.+)", re.ASCII)


def _cursor(last: FailedRow) -> str:
    """Write a place of the list: money or not, when it failed, which."""
    return f"{_MONEY if last.money else _OTHER}{(last.failed_at - _EPOCH) // timedelta(microseconds=1)}-{last.id}"


def _place(cursor: str) -> dict[str, Any]:
    written = _CURSOR.fullmatch(cursor)
    if written is None:
        raise NotPossible("that is no place in the list: give the one that the page before named")
    failed_at = _EPOCH + timedelta(microseconds=int(written["us"]))
    return {"the_money": written["money"] == _MONEY, "the_finished_at": failed_at, "the_id": written["id"]}
