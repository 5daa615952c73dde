"""How a row of the ledger becomes a value, and the way by which everything that is shown is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from sqlalchemy import Executable, Row, Text, bindparam, func, select

from webhooks.ledger.database import Database
from webhooks.ledger.rows import AttemptRow, DeliveryRow
from webhooks.ledger.tables import attempts, deliveries
from webhooks.model import HeldFor, Ladder, Outcome, Reason, State

SHOWN = [deliveries.c[field.name] for field in fields(DeliveryRow)]
SHOWN_OF_ATTEMPT = [attempts.c[field.name] for field in fields(AttemptRow)]
THE_ID = bindparam("the_id", type_=Text())

_NOW = select(func.now().label("moment"))

_WORDS = {"state": State, "reason": Reason, "held_for": HeldFor, "outcome": Outcome, "ladder": Ladder}


def delivery_of(row: Row[Any]) -> DeliveryRow:
    """Return the delivery of a row of SHOWN."""
    return DeliveryRow(**_in_words(row, DeliveryRow))


def attempt_of(row: Row[Any]) -> AttemptRow:
    """Return the attempt of a row of SHOWN_OF_ATTEMPT."""
    return AttemptRow(**_in_words(row, AttemptRow))


def _in_words(row: Row[Any], kind: type[DeliveryRow | AttemptRow]) -> dict[str, Any]:
    """Return a row's values, with our own words where the table has texts; what else the row has is left out."""
    values = {field.name: getattr(row, field.name) for field in fields(kind)}
    return {
        name: _WORDS[name](value) if name in _WORDS and value is not None else value for name, value in values.items()
    }


class Reads:
    """Whoever reads from the ledger and changes nothing."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def _rows(self, asked: Executable, **values: Any) -> Sequence[Row[Any]]:
        return self._database.rows(asked, values, repeatable=True)

    def _of(self, asked: Executable, its_id: str) -> Sequence[Row[Any]]:
        return self._rows(asked, the_id=its_id)

    def now(self) -> datetime:
        """Return the moment by the ledger's clock, by which everything that is shown counts."""
        moment: datetime = self._rows(_NOW)[0].moment
        return moment
