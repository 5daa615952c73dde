"""One event alone is recorded as it would be among many, by a function of the ledger's."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from tests.command import done
from tests.ledger.books import Books
from tests.ledger.test_schema import start_over
from tests.system import System
from webhooks import EventConflict, deliver
from webhooks.accepting import reading
from webhooks.accepting.reading import Event
from webhooks.errors import LedgerOutdated
from webhooks.ledger import recording, routing
from webhooks.model import Message

MOST = timedelta(minutes=3)

_ENDPOINTS = """
INSERT INTO endpoints (id, merchant_id, url, secret, types, lane, rate, removed_at) VALUES
('plain', 'plain', 'https://plain.example/', 's', NULL, NULL, NULL, NULL),
('several', 'several', 'https://several.example/', 's', NULL, 3, NULL, NULL),
('ep_all', 'several', 'https://several.example/', 's', NULL, NULL, 2.5, NULL),
('ep_payments', 'several', 'https://several.example/', 's', '{payment.*,refund.completed}', 7, 1, NULL),
('ep_kyc', 'several', 'https://several.example/', 's', '{kyc.status_changed}', NULL, NULL, NULL),
('ep_gone', 'several', NULL, NULL, NULL, NULL, NULL, now()),
('ep_picky', 'picky', 'https://picky.example/', 's', '{payment.status_changed}', NULL, NULL, NULL),
('left', 'left', NULL, NULL, NULL, NULL, NULL, now())
"""

_MERCHANTS = ("plain", "several", "picky", "left", "stranger", "o'brien \\ %s 100%")
_TYPES = ("payment.status_changed", "refund.completed", "kyc.status_changed", "paymentx")

_ROWS = """
SELECT deliveries.*, events.type, events.money, events.body, events.body_sha256, events.unmatched
FROM events LEFT JOIN deliveries ON event_id = events.id ORDER BY events.id, deliveries.id
"""


def event_of(event_id: str, merchant_id: str, event_type: str) -> Event:
    """Return an event as it is recorded."""
    return reading.read({"id": event_id, "merchant_id": merchant_id, "type": event_type, "status": "paid"})


@pytest.mark.parametrize(("wait", "queued"), [(timedelta(), True), (MOST, True), (MOST, False)])
def test_alone_or_among_many(books: Books, wait: timedelta, queued: bool) -> None:
    """The rows are the same, and so are the messages: for every endpoint that wants it, and for a merchant without."""
    books.sql(_ENDPOINTS)
    pairs = itertools.product(_MERCHANTS, _TYPES)
    events = [event_of(f"evt-{number}", *pair) for number, pair in enumerate(pairs)]
    alone = [message for event in events for message in books.ledger.record(event, wait=wait, queued=queued)]
    rows = _as_stand(books.sql(_ROWS))
    books.sql("TRUNCATE events, deliveries CASCADE")
    together = books.ledger.record_many(events, wait=wait, queued=queued)
    assert _as_taken(alone) == _as_taken(together)
    assert rows == _as_stand(books.sql(_ROWS))
    assert len(rows) > len(events)
    assert {row["unmatched"] for row in rows} == {True, False}


def _as_taken(messages: Any) -> list[tuple[Any, ...]]:
    """Leave out when they were accepted."""
    return sorted((m.id, m.merchant_id, m.type, m.turn, m.limits.lane, m.limits.rate) for m in messages)


def _as_stand(rows: Any) -> list[dict[str, Any]]:
    """Tell moments from when it was accepted."""
    found = []
    for row in rows:
        values = row._asdict()
        accepted_at = values.pop("accepted_at")
        for name in ("due_at", "sweep_at", "queued_at", "expires_at"):
            values[name] = values[name] and values[name] - accepted_at
        found.append(values | {name: bytes(values[name]) for name in ("body", "body_sha256")})
    return found


def test_a_known_id_alone_changes_nothing(books: Books) -> None:
    """The same body is known, and another is a conflict."""
    (message,) = books.ledger.record(event_of("evt-1", "acme", "refund.completed"))
    assert isinstance(message, Message)
    before = books.sql(_ROWS)
    assert books.ledger.record(event_of("evt-1", "acme", "refund.completed")) == []
    with pytest.raises(EventConflict):
        books.ledger.record(event_of("evt-1", "acme", "refund.rejected"))
    assert books.sql(_ROWS) == before


def test_many_endpoints_of_others_cost_one_event_nothing(books: Books) -> None:
    """The plan that is kept finds a merchant's endpoints by its index, however many there are."""
    others = """INSERT INTO endpoints (id, merchant_id, url, secret)
        SELECT 'm-' || n, 'm-' || n, 'https://x.example/', 's' FROM generate_series(1, 5000) AS n"""
    books.sql(others)
    books.sql("ANALYZE endpoints")
    books.register()
    with books.database.transaction() as together:
        for number in range(10):
            together.rows(routing.RECORD_ONE, _values_of(f"evt-{number}"))
        (scans,) = together.rows(text("SELECT pg_stat_get_xact_numscans('endpoints'::regclass) AS whole"))
    assert scans.whole == 0


def _values_of(event_id: str) -> dict[str, Any]:
    values = recording._values_of_one(event_of(event_id, "acme", "refund.completed"))
    terms = {"the_wait": MOST, "the_recover_after": MOST, "the_queued": True, "the_max_age": MOST}
    return {**values, **terms}


def test_tables_without_the_function_ask_for_an_upgrade(system: System) -> None:
    """A producer of this release on tables of the one before hears what to do; after that the event is accepted."""
    start_over(system, "0006")
    event = {"id": "evt-1", "merchant_id": "acme", "type": "refund.completed"}
    with pytest.raises(LedgerOutdated, match=r"run: webhooks db upgrade$"):
        deliver.delay(event)
    assert done("db", "upgrade") == {"before": "0006", "after": "0007"}
    assert deliver.delay(event).id == "evt-1"


def test_a_role_that_may_write_may_accept(system: System) -> None:
    """Also where a database gives nobody the right to call functions: the one that is called here is everybody's."""
    start_over(system, "0006")
    system.sql("ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC")
    done("db", "upgrade")
    (row,) = system.sql(
        "SELECT array_to_string(proacl, ' ') AS rights FROM pg_proc WHERE proname = 'webhooks_accept_event'"
    )
    assert any(each.startswith("=X/") for each in row.rights.split())
