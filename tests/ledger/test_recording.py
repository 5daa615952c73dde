"""One event alone is recorded as it would be among many, by a function of the ledger's."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from operator import attrgetter
from typing import Any

import pytest
from sqlalchemy import text

from tests.command import done
from tests.ledger.books import Books
from tests.ledger.test_schema import start_over
from tests.system import System
from webhooks import EventConflict, deliver
from webhooks.accepting import reading
from webhooks.accepting.bursts import MOST_AT_ONCE
from webhooks.accepting.reading import Event
from webhooks.errors import LedgerOutdated
from webhooks.ledger import recording, routing, schema
from webhooks.model import Message

MOST = timedelta(minutes=3)

_ENDPOINTS = """
INSERT INTO endpoints (id, merchant_id, url, secret, types, lane, rate, removed_at) VALUES
('plain', 'plain', 'https://plain.example/', 's', NULL, NULL, NULL, NULL),
('several', 'several', 'https://several.example/', 's', NULL, 4, NULL, NULL),
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


_NARROW = """
INSERT INTO endpoints (id, merchant_id, url, secret, lane, paused_at, removed_at) VALUES
('plain', 'plain', 'https://plain.example/', 's', NULL, NULL, NULL),
('narrow', 'narrow', 'https://narrow.example/', 's', 2, NULL, NULL),
('ep_wide', 'narrow', 'https://wide.example/', 's', 1000, NULL, NULL),
('paused', 'paused', 'https://paused.example/', 's', 3, now(), NULL),
('left', 'left', NULL, NULL, NULL, NULL, now())
"""

_HELD = """
SELECT endpoint_id, held_for, count(*) AS number, min(event_id) AS first, max(queued_at) AS queued_at FROM deliveries
GROUP BY endpoint_id, held_for ORDER BY endpoint_id, held_for NULLS FIRST
"""


@pytest.mark.parametrize("queued", [True, False])
def test_of_many_no_more_than_a_lane_takes_go_at_once(books: Books, queued: bool) -> None:
    """The rest of a statement's events is held, for what it would have been held for, and has no message."""
    books.sql(_NARROW)
    merchants = ("plain", "narrow", "paused", "left")
    events = [event_of(f"evt-{number:02}", name, _TYPES[0]) for number in range(30) for name in merchants]
    events = [replace(event, id=f"{event.id}-{event.merchant_id}") for event in events]
    messages = books.ledger.record_many(sorted(events, key=attrgetter("id")), queued=queued)
    most = {"plain": MOST_AT_ONCE, "narrow": 2, "ep_wide": 30, "paused": 3, "left": MOST_AT_ONCE}
    going, held = {}, {}
    for row in books.sql(_HELD):
        assert (row.queued_at is not None) == (queued and row.held_for is None)
        if row.held_for is None:
            going[row.endpoint_id] = row.number
        else:
            held[row.endpoint_id] = (row.held_for, row.number, int(row.first.split("-")[1]))
    assert going == most == Counter(message.endpoint_id for message in messages)
    assert held == {
        "plain": ("lane", 10, 20),
        "narrow": ("lane", 28, 2),
        "paused": ("operator", 27, 3),
        "left": ("address", 10, 20),
    }


def test_what_is_held_when_it_is_recorded_is_released_in_its_turn(books: Books) -> None:
    """The oldest first, like whatever else is held; and it is known when it comes again."""
    books.sql(_NARROW)
    events = [event_of(f"evt-{number:02}", "narrow", _TYPES[0]) for number in range(6)]
    assert len(books.ledger.record_many(events)) == 2 + 6
    assert books.ledger.record_many(events) == []
    taken = books.backlog.release({"narrow": 3})["narrow"]
    assert [(message.id, message.turn) for message in taken] == [("evt-02", 1), ("evt-03", 1), ("evt-04", 1)]


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
    assert done("db", "upgrade") == {"before": "0006", "after": schema._head(schema._config())}
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
