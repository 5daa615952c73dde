"""How much there is of what somebody should know about."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from sqlalchemy import text

from tests import courier
from tests.system import System
from webhooks import parts
from webhooks.ledger import counting, holding
from webhooks.ledger.holding import Pile
from webhooks.model import HeldFor

KYC = {"type": "kyc.status_changed"}
PAID = {"type": "payment.status_changed", "status": "paid"}

_FILLED = """
INSERT INTO deliveries (id, event_id, merchant_id, endpoint_id, type, money, state, reason, due_at, accepted_at,
 expires_at, sweep_at, finished_at)
SELECT 'old-' || n, 'old-' || n, 'acme', 'acme', 'a.b', true, :state, :reason, now() + make_interval(days => 1),
 now() - make_interval(days => 40), now() + make_interval(days => 1),
 now() + make_interval(days => CAST(:sweep AS integer)), now() - make_interval(days => CAST(:ago + n % 30 AS integer))
FROM generate_series(CAST(:first AS integer), :last) AS n
"""


def accept(merchant_id: str, *ids: str, **event: str) -> None:
    """Accept events whose messages are lost."""
    for event_id in ids:
        courier.accept({**(event or KYC), "id": event_id, "merchant_id": merchant_id})


def test_an_empty_ledger_has_nothing_to_tell(system: System) -> None:
    """And no question fails for it."""
    stock = parts.views().stock()
    assert (stock.held, parts.views().holding_most(3), parts.views().holders(3)) == ({}, [], [])
    assert (stock.overdue, stock.oldest, stock.money_failed) == (0, timedelta(), 0)


def test_held_ones_are_counted_by_cause_with_their_endpoints(system: System) -> None:
    """Those of one endpoint may be held for several things."""
    accept("acme", "a-1", "a-2", "a-3")
    accept("other", "o-1")
    accept("free", "f-1")
    hold = "UPDATE deliveries SET state = 'held', held_for = :cause, sweep_at = NULL WHERE id = ANY(:ids)"
    system.sql(hold, cause="breaker", ids=["a-1", "a-2", "o-1"])
    system.sql(hold, cause="lane", ids=["a-3"])
    assert parts.views().stock().held == {HeldFor.BREAKER: Pile(3, endpoints=2), HeldFor.LANE: Pile(1, endpoints=1)}
    assert [(heap.endpoint_id, heap.number) for heap in parts.views().holding_most(1)] == [("acme", 3)]


def test_overdue_is_what_should_have_been_sent(system: System) -> None:
    """However it came to that: it may be queued, or its message lost. What is being sent, held or far is not."""
    accept("acme", "now", "old", "older", "sent", "held", "far")
    due = "UPDATE deliveries SET due_at = now() - make_interval(secs => :ago) WHERE id = :id"
    for event_id, ago in (("old", 90), ("older", 300), ("sent", 900), ("held", 900), ("far", -900)):
        system.sql(due, id=event_id, ago=ago)
    system.sql("UPDATE deliveries SET sweep_at = due_at WHERE id IN ('old', 'far')")
    system.sql("UPDATE deliveries SET sweep_at = now() + interval '29 seconds' WHERE id = 'older'")  # its message waits
    system.sql("UPDATE deliveries SET sending_since = now() WHERE id = 'sent'")
    system.sql("UPDATE deliveries SET state = 'held', held_for = 'lane', sweep_at = NULL WHERE id = 'held'")
    stock = parts.views().stock()
    assert stock.overdue == 2
    assert 300 <= stock.oldest.total_seconds() < 360


@pytest.mark.parametrize(
    ("event", "change", "counted"),
    [
        (PAID, "", 1),
        (KYC, "", 0),
        (PAID, "reason = 'cancelled'", 0),
        (PAID, "finished_at = now() - interval '25 hours'", 1),
        (PAID, "dismissed_at = now()", 0),
    ],
)
def test_failed_money_needs_a_person_until_it_is_dealt_with(
    system: System, event: dict[str, str], change: str, counted: int
) -> None:
    """What an operator has cancelled or dismissed needs nobody, nor what is no money."""
    accept("acme", "evt-1", **event)
    system.sql("UPDATE deliveries SET state = 'failed', reason = 'expired', finished_at = now(), sweep_at = NULL")
    if change:
        system.sql(f"UPDATE deliveries SET {change}")
    assert parts.views().stock().money_failed == counted


def test_a_replay_takes_away_what_needed_a_person(system: System) -> None:
    """It is held again, and on its way."""
    accept("acme", "evt-1", **PAID)
    system.sql("UPDATE deliveries SET state = 'failed', reason = 'expired', finished_at = now(), sweep_at = NULL")
    assert parts.views().stock().money_failed == 1
    system.sql("UPDATE deliveries SET state = 'held', held_for = 'replay', reason = NULL, finished_at = NULL")
    assert parts.views().stock().money_failed == 0


def test_accepted_events_are_counted_by_the_server(system: System) -> None:
    """Without a scan of what there is."""
    before = parts.views().stock().accepted
    # More deliveries than events, as those of merchants with several endpoints have.
    system.sql(_FILLED, first=1, last=5, state="delivered", reason=None, sweep=None, ago=1)
    accept("acme", *(f"evt-{number}" for number in range(7)))
    system.wait_until(
        lambda: system.sql("SELECT pg_stat_force_next_flush()") and parts.views().stock().accepted - before == 7,
        "the server has counted seven",
    )


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        (counting._OVERDUE, r"deliveries_to_sweep .*\n.*Index Cond: \(sweep_at"),
        (counting._LONGEST, r"deliveries_to_sweep .*\n.*Index Cond: \(sweep_at"),
        (counting._MONEY_FAILED, "deliveries_(on_desk|failed)"),
        (holding._BY_CAUSE, "deliveries_(held|to_probe)"),
        (holding._ENDPOINTS, "deliveries_(held|to_probe)"),
        (holding._MERCHANTS, "deliveries_(held|to_probe)"),
    ],
)
def test_each_number_is_read_by_an_index(system: System, statement: object, index: str) -> None:
    """Among many that are done, wait for later, or failed long ago, none of those is looked at."""
    for number, (state, reason, sweep, ago) in enumerate(
        [("delivered", None, None, 1), ("pending", None, 30, None), ("failed", "rejected", None, 2)]
    ):
        system.sql(
            _FILLED, first=2000 * number, last=2000 * number + 1999, state=state, reason=reason, sweep=sweep, ago=ago
        )
    accept("acme", "evt-1")
    system.sql("ANALYZE deliveries")
    values = {"the_recover_after": timedelta(seconds=30), "the_most": 3}
    with parts.database().engine.connect() as connection:
        compiled = statement.compile(connection)  # type: ignore[attr-defined]
        given = {name: values.get(name, value) for name, value in compiled.params.items()}
        written = connection.connection.cursor().mogrify(str(compiled), given).decode()
    plan = "\n".join(row[0] for row in parts.database().rows(text("EXPLAIN " + written.replace(":", "\\:"))))
    assert re.search(index, plan), plan
    assert "Seq Scan" not in plan
