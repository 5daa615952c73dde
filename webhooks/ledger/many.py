"""The claim and the finish of many deliveries, each in one statement: what `webhooks.ledger.statements` says of one.

Each value comes as an array, under the name that it has for one. A row that somebody else has locked is left out, so
that one such row holds nobody, and two statements never wait for each other. Rows are taken in the order of their ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import CTE, Boolean, Integer, Interval, Text, Uuid, bindparam, column, func, null, select
from sqlalchemy.dialects.postgresql import ARRAY, insert

from webhooks.ledger import transitions
from webhooks.ledger.statements import ATTEMPT, CLAIMED_COLUMNS, MAY_BE_SENT, ends_claim_of
from webhooks.ledger.tables import attempts, claims, deliveries
from webhooks.ledger.transitions import NOW

_THIS_TURN = {"id": Text(), "turn": Integer()}


def _locked(kinds: Mapping[str, Any]) -> CTE:
    """Return the given deliveries, with what is given for each, of which the turn is still this one; locked."""
    given = (
        func.unnest(*(bindparam(f"the_{name}", type_=ARRAY(kind)) for name, kind in kinds.items()))
        .table_valued(*(column(name, kind) for name, kind in kinds.items()), name="given")
        .render_derived()
    )
    return (
        select(given)
        .join(deliveries, (deliveries.c.id == given.c.id) & (deliveries.c.turn == given.c.turn))
        .order_by(given.c.id)
        .with_for_update(of=deliveries, key_share=True, skip_locked=True)
        .cte("locked")
        .prefix_with("MATERIALIZED")
    )


_CLAIMING = _locked({**_THIS_TURN, "lease": Interval(), "claim": Uuid()})

_TAKEN = (
    transitions.claimed()
    .of(deliveries.c.id == _CLAIMING.c.id, deliveries.c.turn == _CLAIMING.c.turn)
    .where(*MAY_BE_SENT)
    .returning(*CLAIMED_COLUMNS, _CLAIMING.c.claim, _CLAIMING.c.lease)
    .cte("taken")
)

_NOTED = insert(claims).from_select(
    ["delivery_id", "name", "ends_at", "silent_since"],
    select(_TAKEN.c.id, _TAKEN.c.claim, NOW + _TAKEN.c.lease, null()),
)

CLAIM_MANY = select(*(each for each in _TAKEN.c if each.name not in {"claim", "lease"})).add_cte(
    _NOTED.on_conflict_do_update(
        index_elements=["delivery_id"],
        set_={"name": _NOTED.excluded.name, "ends_at": _NOTED.excluded.ends_at, "silent_since": null()},
    ).cte("noted")
)

_OF_THE_ROW = ("state", "reason", "due_at", "sweep_at", "fast_spent", "slow_spent", "slow_since")
_FINISHING = _locked(
    {
        **_THIS_TURN,
        **{name: deliveries.c[name].type for name in _OF_THE_ROW},
        **dict.fromkeys(("queued", "final"), Boolean()),
        **{name: attempts.c[name].type for name in ATTEMPT},
    }
)

_FINISHED = (
    transitions.finished(lambda name, _kind=None: _FINISHING.c[name])
    .of(deliveries.c.id == _FINISHING.c.id, deliveries.c.turn == _FINISHING.c.turn)
    .returning(*deliveries.c["id", "endpoint_id"], *_FINISHING.c[ATTEMPT])
    .cte("finished")
)

FINISH_MANY = (
    insert(attempts)
    .from_select(["delivery_id", "endpoint_id", *ATTEMPT], select(_FINISHED))
    .on_conflict_do_nothing()
    .returning(attempts.c.delivery_id)
    .add_cte(ends_claim_of(_FINISHED))
)
