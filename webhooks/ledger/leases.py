"""Leases: what one process at a time does, and when it was last done. Rows only, nothing that lives in a session."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Interval,
    Text,
    bindparam,
    case,
    false,
    func,
    literal,
    not_,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.dialects.postgresql import insert

from webhooks.errors import WebhooksError
from webhooks.ledger.database import Database
from webhooks.ledger.tables import leases

SWEEPING = "sweep"
_CHECK = "check"  # written by whoever wants to know whether the ledger takes writes

_NOW = func.now()
_NAME, _HOLDER = bindparam("the_name", type_=Text()), bindparam("the_holder", type_=Text())
_LASTS, _REST = bindparam("the_lasts", type_=Interval()), bindparam("the_rest", type_=Interval())

# A moment further ahead than any lease lasts was written before the ledger's clock was set back: it counts for nothing.
_TOO_FAR = _NOW + timedelta(seconds=20)
_IS_HELD = leases.c.ends_at.between(_NOW, _TOO_FAR)
_WAS_JUST_DONE = func.coalesce((leases.c.finished_at > _NOW - _REST) & (leases.c.finished_at < _TOO_FAR), false())
_IS_MINE = leases.c.holder == _HOLDER

_TAKE = (
    insert(leases)
    .values(name=_NAME, holder=_HOLDER, ends_at=_NOW + _LASTS)
    .on_conflict_do_update(
        index_elements=["name"],
        set_={"holder": _HOLDER, "ends_at": _NOW + _LASTS},
        where=or_(_IS_MINE, not_(_IS_HELD) & not_(_WAS_JUST_DONE)),  # mine: when the first answer was lost
    )
)
_ITS_ROW = update(leases).where(leases.c.name == _NAME)
_RENEW = _ITS_ROW.where(_IS_MINE).values(ends_at=_NOW + _LASTS)
_GIVE_UP = _ITS_ROW.where(_IS_MINE).values(ends_at=_NOW)
# Work that outlived its lease was done all the same; whoever holds the lease by now keeps it.
_FINISH = _ITS_ROW.values(finished_at=_NOW, ends_at=case((_IS_MINE, _NOW), else_=leases.c.ends_at))

_LAST_DONE = select(_NOW.label("now"), leases.c.holder, leases.c.finished_at).select_from(
    select(literal(1).label("one")).subquery().outerjoin(leases, leases.c.name == _NAME)
)
_WRITE = (
    insert(leases)
    .values(name=_CHECK, holder=_HOLDER, ends_at=_NOW, finished_at=_NOW)
    .on_conflict_do_update(index_elements=["name"], set_={"holder": _HOLDER, "ends_at": _NOW, "finished_at": _NOW})
)


class Term:
    """A lease while it is held; `asked` is what the statement that took it has answered."""

    def __init__(self, database: Database, values: dict[str, Any], lasts: timedelta, *, asked: bool) -> None:
        self.asked = asked
        self._database = database
        self._values = values
        self._lasts = lasts
        self._renew_at_s = 0.0
        self._plan_renewal()

    def renew(self) -> None:
        """Keep the lease for its whole time from now; costs a statement only when a third of it has passed."""
        if time.monotonic() >= self._renew_at_s:
            self._database.rows(_RENEW, {**self._values, "the_lasts": self._lasts}, repeatable=True)
            self._plan_renewal()

    def _plan_renewal(self) -> None:
        self._renew_at_s = time.monotonic() + self._lasts.total_seconds() / 3


class Lease:
    """The right to do something alone, for a time.

    A holder that is frozen or dead loses it when its time is over. One that only took longer goes on beside the next,
    so what is done under a lease must do no harm when two do it. `asking` is a question about the ledger that the
    statement which takes the lease answers at the same time.
    """

    def __init__(
        self,
        database: Database,
        name: str,
        *,
        lasts: timedelta = timedelta(seconds=10),
        asking: ColumnElement[bool] | None = None,
    ) -> None:
        self._database = database
        self._name = name
        self._lasts = lasts
        self._take = _TAKE.returning((true() if asking is None else asking).label("asked"))

    @contextmanager
    def alone(self, rest: timedelta = timedelta()) -> Iterator[Term | None]:
        """Give a term to one caller at a time, over all processes; None while another has it.

        None also where the work was done within `rest`. Leaving the block in peace says that the work is done.
        """
        mine = {"the_name": self._name, "the_holder": this_process()}
        taken = self._database.rows(self._take, {**mine, "the_lasts": self._lasts, "the_rest": rest}, repeatable=True)
        if not taken:
            yield None
            return
        try:
            yield Term(self._database, mine, self._lasts, asked=bool(taken[0].asked))
        except BaseException:
            with suppress(WebhooksError):  # then it ends by itself
                self._database.rows(_GIVE_UP, mine, repeatable=True)
            raise
        self._database.rows(_FINISH, mine, repeatable=True)


@dataclass(frozen=True, slots=True)
class Done:
    """When something was last done to the end, by the ledger's clock, which showed `now`; None: never."""

    now: datetime
    finished_at: datetime | None
    by: str | None

    @property
    def ago(self) -> timedelta | None:
        """How long ago that was."""
        return None if self.finished_at is None else self.now - self.finished_at


class Pulse:
    """The ledger as those see it who want to know whether it lives."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def last_done(self, name: str = SWEEPING) -> Done:
        """Return when the work under a lease was last done."""
        (row,) = self._database.rows(_LAST_DONE, {"the_name": name}, repeatable=True)
        return Done(row.now, row.finished_at, row.holder)

    def check_write(self, *, within: timedelta = timedelta(seconds=3)) -> None:
        """Write a row and wait for its commit. Raises LedgerUnavailable where that is refused, or takes too long."""
        with self._database.within(within):
            self._database.rows(_WRITE, {"the_holder": this_process()}, repeatable=True)


def this_process() -> str:
    """Name this process and this moment: two threads, or a process that follows on another, are not the same holder."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
