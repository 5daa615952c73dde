"""Finding deliveries by what support has in hand: a payment's id, a merchant's own number, the id of the event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Integer, text

from webhooks.ledger.rows import DeliveryRow
from webhooks.ledger.shown import SHOWN, Reads, delivery_of
from webhooks.ledger.transitions import the

_FIND = text(f"""
SELECT {", ".join(f"deliveries.{each.name}" for each in SHOWN)}, found.field
FROM (
    SELECT id AS event_id, CASE WHEN id = :the_text THEN 'id' WHEN convert_from(body, 'UTF8')::jsonb ->> 'payment_id'
        = :the_text THEN 'payment_id' WHEN convert_from(body, 'UTF8')::jsonb ->> 'external_id' = :the_text
        THEN 'external_id' END AS field
    FROM events
) AS found
JOIN deliveries ON deliveries.event_id = found.event_id
WHERE found.field IS NOT NULL
ORDER BY deliveries.accepted_at DESC, deliveries.id LIMIT :the_most
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
        return [Found(delivery_of(row), row.field) for row in self._rows(_FIND, the_text=value, the_most=limit)]
