"""What becomes of the deliveries to an endpoint that an operator has removed: what is unfinished ends as cancelled."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Text, bindparam, func, select

from webhooks.ledger import transitions
from webhooks.ledger.acts import Rows
from webhooks.ledger.statements import REMOVED
from webhooks.ledger.tables import deliveries, endpoints
from webhooks.model import State

_BATCH = 500

_ENDPOINT = bindparam("the_endpoint_id", type_=Text())
_OF_IT = (deliveries.c.endpoint_id == _ENDPOINT, deliveries.c.sending_since.is_(None))

# The held ones have an index by endpoint; the pending ones are few, or must be looked for among all that are pending.
_GONE = [
    transitions.cancelled()
    .of_locked(
        deliveries.c.id.in_(
            select(deliveries.c.id)
            .join(endpoints, endpoints.c.id == deliveries.c.endpoint_id)
            .where(*_OF_IT, deliveries.c.state == state, REMOVED)
            .limit(_BATCH)
            .with_for_update(skip_locked=True, of=deliveries)
        )
    )
    .returning(deliveries.c.id)
    for state in (State.HELD, State.PENDING)
]

_UNFINISHED = select(func.count().label("number")).where(
    deliveries.c.endpoint_id == _ENDPOINT, deliveries.c.state.in_([State.HELD, State.PENDING])
)


def cancel_some(act: Rows, endpoint_id: str) -> Sequence[str]:
    """End up to 500 deliveries that nobody is sending. Returns their ids, and none when all have ended."""
    for gone in _GONE:
        ended = act.rows(gone, {"the_endpoint_id": endpoint_id})
        if ended:
            return [row.id for row in ended]
    return []


def count_unfinished(rows: Rows, endpoint_id: str) -> int:
    """Return how many deliveries of an endpoint are on their way or held."""
    number: int = rows.rows(_UNFINISHED, {"the_endpoint_id": endpoint_id}, repeatable=True)[0].number
    return number
