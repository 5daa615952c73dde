"""How far the workers have come with a queue, for a broker that does not show what waits in it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import DateTime, Interval, Text, bindparam, func, select
from sqlalchemy.dialects.postgresql import insert

from webhooks.ledger.database import Database
from webhooks.ledger.leases import this_process
from webhooks.ledger.tables import leases

_LATELY = timedelta(seconds=5)

_NOW = func.now()
_NAME, _HOLDER = bindparam("the_name", type_=Text()), bindparam("the_holder", type_=Text())
_QUEUED_AT = bindparam("the_queued_at", type_=DateTime(timezone=True))
_SPAN = bindparam("the_span", type_=Interval())
_NOTED = {"holder": _HOLDER, "ends_at": _NOW, "finished_at": _QUEUED_AT}

# Whoever notes last counts, and not the latest moment: a message that the broker has put back is older than what was
# taken before it, and so is what waits behind it; and the ledger's clock may have been set back.
_NOTE = insert(leases).values(name=_NAME, **_NOTED).on_conflict_do_update(index_elements=["name"], set_=_NOTED)
_LAST = select(leases.c.finished_at, leases.c.ends_at.between(_NOW - _SPAN, _NOW).label("lately")).where(
    leases.c.name == _NAME
)


@dataclass(frozen=True, slots=True)
class Taking:
    """When the message that was last taken from a queue had been published, and whether it was taken just now."""

    queued_at: datetime
    lately: bool


class Taken:
    """What workers have taken from queues, one row for each queue."""

    def __init__(self, database: Database, *, lately: timedelta = _LATELY) -> None:
        self._database = database
        self._lately = lately

    def note(self, queue: str, queued_at: datetime) -> None:
        """Note that a message was taken which had been published at `queued_at`, by the ledger's clock."""
        values = {"the_name": _name_of(queue), "the_holder": this_process(), "the_queued_at": queued_at}
        self._database.rows(_NOTE, values, repeatable=True)

    def last(self, queue: str) -> Taking | None:
        """Return what was noted last, None where nothing ever was."""
        rows = self._database.rows(_LAST, {"the_name": _name_of(queue), "the_span": self._lately}, repeatable=True)
        return Taking(rows[0].finished_at, rows[0].lately) if rows else None


def _name_of(queue: str) -> str:
    return f"taken from {queue}"
