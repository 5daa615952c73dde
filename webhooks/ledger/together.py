"""One statement for what many threads ask at the same moment; who comes alone goes alone, and at once."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Executable, Row

from webhooks.errors import AnswerLost, LedgerBusy, LedgerUnavailable
from webhooks.ledger.database import Database

_MOST = 50  # in one statement
_LONGEST_QUEUE_S = 0.1  # behind a statement that is out: one that stands still holds only those that are in it


class _Asked:
    """What one thread asks, and what has become of it; `leads`: the next statement is its own to run."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values
        self.leads = False
        self.row: Row[Any] | None = None
        self.fault: LedgerUnavailable | None = None
        self.woken = threading.Lock()  # the cheapest thing to wait for
        self.woken.acquire()

    def wake(self) -> None:
        """Let it go on, if it waits."""
        if self.woken.locked():
            self.woken.release()

    @property
    def id(self) -> str:
        """Return which delivery it is about: twice in one statement would be one too many."""
        return str(self.values["the_id"])


class Together:
    """Runs `one` for a thread that finds nobody else at work, and `many` for all that came while a statement was out.

    `many` takes each value of `one` under the same name, as an array, and answers for those that it has done, the id
    in front. It waits for no row that somebody else has locked, and leaves it out. Whoever is left out asks again
    alone, and all do where it is refused: what is wrong with one, or locked, is nobody else's trouble. `repeatable` as
    in `Database.rows`.
    """

    def __init__(self, database: Database, one: Executable, many: Executable, *, repeatable: bool = False) -> None:
        self._database = database
        self._one = one
        self._many = many
        self._repeatable = repeatable
        self._begin_anew()
        os.register_at_fork(after_in_child=self._begin_anew)

    def rows(self, values: Mapping[str, Any]) -> Sequence[Row[Any]]:
        """Run the statement for these values, and return the row that it answers for them, if any.

        Raises as `Database.rows`, and ends when that would.
        """
        asked = _Asked(values)
        with self._database.within(self._database.left):
            if self._is_first(asked) or self._comes_to_lead(asked):
                return self._lead(asked)
            return self._answer(asked)

    def _begin_anew(self) -> None:
        """Share nothing with the process that this one was forked from: its threads are not here."""
        self._lock = threading.Lock()
        self._queue: list[_Asked] = []
        self._out = 0

    def _is_first(self, asked: _Asked) -> bool:
        with self._lock:
            if self._out:
                self._queue.append(asked)
                return False
            self._out = 1
            return True

    def _comes_to_lead(self, asked: _Asked) -> bool:
        """Wait for an answer, or until it falls to this thread to ask."""
        try:
            return self._waits_to_lead(asked)
        except BaseException:  # nobody may wait for one who has gone
            with self._lock:
                if asked in self._queue:
                    self._queue.remove(asked)
            if asked.leads:
                self._hand_on()
            raise

    def _waits_to_lead(self, asked: _Asked) -> bool:
        if asked.woken.acquire(timeout=min(_LONGEST_QUEUE_S, self._seconds_left())):
            return asked.leads
        with self._lock:
            if asked.leads:
                return True
            if asked in self._queue:  # what is out stands still
                self._queue.remove(asked)
                self._out += 1
                return True
        if not asked.woken.acquire(timeout=self._seconds_left()):
            raise AnswerLost("the ledger cannot be used: it confirmed nothing in time")
        return asked.leads

    def _lead(self, asked: _Asked) -> Sequence[Row[Any]]:
        """Run the next statement, for all who wait for it."""
        try:
            batch = self._next_with(asked)
            if len(batch) == 1:
                return self._alone(asked)
            self._run(batch)
        finally:
            self._hand_on()
        return self._answer(asked)

    def _next_with(self, asked: _Asked) -> list[_Asked]:
        batch = {asked.id: asked}
        with self._lock:
            for each in self._queue:
                if len(batch) < _MOST:
                    batch.setdefault(each.id, each)
            self._queue = [each for each in self._queue if batch.get(each.id) is not each]
        return sorted(batch.values(), key=lambda each: each.id)

    def _hand_on(self) -> None:
        with self._lock:
            if not self._queue:
                self._out -= 1
                return
            heir = self._queue.pop(0)
            heir.leads = True
            heir.wake()

    def _run(self, batch: Sequence[_Asked]) -> None:
        values = {name: [each.values[name] for each in batch] for name in batch[0].values}
        fault: LedgerUnavailable | None = AnswerLost("the ledger cannot be used: whoever asked it was stopped")
        rows: Sequence[Row[Any]] = ()
        try:
            rows = self._database.rows(self._many, values, repeatable=self._repeatable)
            fault = None
        except LedgerBusy:  # nothing was done
            fault = None
        except LedgerUnavailable as error:
            fault = error
        except Exception:
            fault = None
        finally:
            found = {row[0]: row for row in rows}
            for each in batch:
                each.row = found.get(each.id)
                each.fault = fault and type(fault)(str(fault))  # raised by each in its own thread
                each.wake()

    def _answer(self, asked: _Asked) -> Sequence[Row[Any]]:
        if asked.fault is not None:
            raise asked.fault
        return self._alone(asked) if asked.row is None else [asked.row]

    def _alone(self, asked: _Asked) -> Sequence[Row[Any]]:
        return self._database.rows(self._one, asked.values, repeatable=self._repeatable)

    def _seconds_left(self) -> float:
        return max(self._database.left.total_seconds(), 0)
