"""Finding deliveries by what support has in hand: a payment's id, a merchant's own number, the id of the event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Integer, text

from webhooks.ledger.rows import DeliveryRow
from webhooks.ledger.shown import SHOWN, Reads, delivery_of
from webhooks.ledger.transitions import the
from webhooks.model import event_of

_COLUMNS = ", ".join(each.name for each in SHOWN)

# Of a value that many events have, the newest only: each costs an index entry.
_FIND = text(f"""
WITH known AS (
    SELECT id AS event_id, 'id' AS field FROM events WHERE id = :the_id
    UNION ALL
    (SELECT event_id, field FROM event_keys WHERE value = :the_value ORDER BY accepted_at DESC LIMIT :the_most)
), found AS (
    SELECT DISTINCT ON (going.id) going.*, known.field
    FROM known, LATERAL (
        SELECT {_COLUMNS} FROM deliveries WHERE id = known.event_id
        UNION ALL
        SELECT {_COLUMNS} FROM deliveries WHERE event_id = known.event_id AND event_id <> id
    ) AS going
    ORDER BY going.id, known.field
)
SELECT * FROM found ORDER BY accepted_at DESC, id LIMIT :the_most
""").bindparams(the("most", Integer))  # noqa: S608 - all of it is written here


@dataclass(frozen=True, slots=True)
class Found:
    """A delivery whose event carries what was asked for, in this field of its body; `id` is the event's own."""

    delivery: DeliveryRow
    field: str


class Finds(Reads):
    """Looking for deliveries by a value."""

    def find(self, value: str, limit: int) -> Sequence[Found]:
        """Return the deliveries of the events that carry a value in one of the fields by which they are found.

        The newest come first. Fields are those that `WEBHOOKS_KEYS` named when an event was accepted, and its id.
        """
        rows = self._rows(_FIND, the_id=event_of(value), the_value=value, the_most=limit)
        return [Found(delivery_of(row), row.field) for row in rows]
