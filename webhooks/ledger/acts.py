"""An operator's act: what it changes and its line in the audit count together, or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from sqlalchemy import Executable, Row

from webhooks.errors import AnswerLost
from webhooks.ledger.audit import lines, told_of
from webhooks.ledger.database import Database, Transaction
from webhooks.model import Operator
from webhooks.observing.observers import NOBODY, Observers
from webhooks.observing.operators import Acted


class Rows(Protocol):
    """What runs statements: the database, each in a transaction of its own, or an act, all in one."""

    def rows(
        self, statement: Executable, values: Mapping[str, Any] | None = None, *, repeatable: bool = False
    ) -> Sequence[Row[Any]]:
        """Run a statement and return its rows; see Database.rows."""
        ...


class Act:
    """One transaction; see `act`."""

    def __init__(self, transaction: Transaction, by: Operator) -> None:
        self._transaction = transaction
        self._by = by
        self.noted: list[Acted] = []

    def rows(
        self,
        statement: Executable,
        values: Mapping[str, Any] | None = None,
        *,
        repeatable: bool = False,  # noqa: ARG002 - nothing is repeated within an act
    ) -> Sequence[Row[Any]]:
        """Run one more statement and return its rows."""
        return self._transaction.rows(statement, values)

    def note(self, what: str) -> None:
        """Add a line to the audit."""
        self._note([Acted(self._by.name, what, self._by.why, None)])

    def note_deliveries(self, what: str, delivery_ids: Sequence[str]) -> None:
        """Add what names these deliveries to the audit, in as many lines as that takes; none for none."""
        if delivery_ids:
            self._note(told_of(self._by, what, delivery_ids))

    def _note(self, acted: Sequence[Acted]) -> None:
        self.rows(lines(acted))
        self.noted += acted


@contextmanager
def act(database: Database, by: Operator, unsure: str, look: str, observers: Observers = NOBODY) -> Iterator[Act]:
    """Run what belongs together in one transaction, whatever it raises undoing all of it; told once it counts.

    Where the answer to its end is lost, AnswerLost says what is not known (`unsure`, such as "acme was set"), and with
    which command to look.
    """
    try:
        with database.transaction() as transaction:
            done = Act(transaction, by)
            yield done
    except AnswerLost as error:
        raise AnswerLost(f"it is not known whether {unsure}: {error}; look with: {look}") from error
    for acted in done.noted:
        observers.tell(acted)
