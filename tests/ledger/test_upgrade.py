"""From the tables of 0.1 to those of today, in place, while producers of 0.1 go on."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg2
import pytest

from tests.ledger.test_schema import start_over, upgrade_to
from tests.system import System
from webhooks import deliver, parts
from webhooks.accepting import reading
from webhooks.errors import EventConflict
from webhooks.ledger import schema
from webhooks.model import State
from webhooks.process.spans import in_words

log = logging.getLogger(__name__)

# As a producer of 0.1 sent it.
_ACCEPT = """
INSERT INTO deliveries (id, merchant_id, type, money, body, body_sha256, due_at, sweep_at, queued_at, accepted_at,
    expires_at)
VALUES (%(id)s, %(merchant_id)s, %(type)s, %(money)s, %(body)s, %(body_sha256)s, statement_timestamp() + '0 s',
    statement_timestamp() + '0 s' + '30 s', NULL, statement_timestamp(), statement_timestamp() + '30 days')
ON CONFLICT (id) DO NOTHING RETURNING deliveries.accepted_at
"""
_CONFLICT = (
    "SELECT deliveries.id FROM deliveries WHERE deliveries.id = %(id)s AND deliveries.body_sha256 != %(body_sha256)s"
)

# One delivery after the other in each state that 0.1 knows; every tenth has no body any more.
_FILL = """
WITH given AS (
    SELECT n, 'old-' || lpad(n::text, 7, '0') AS id, 'shop-' || n % 7 AS merchant_id, n % 14 AS kind,
        now() - interval '1 day' + n * interval '1 ms' AS since FROM generate_series(1, :rows) AS n
), bodies AS (
    SELECT id, convert_to('{"id":"' || id || '","type":"refund.completed","merchant_id":"' || merchant_id || '"}',
        'UTF8') AS body FROM given
), made AS (
    INSERT INTO deliveries (id, merchant_id, type, money, body, body_sha256, state, reason, held_for, due_at, sweep_at,
        queued_at, sending_since, silent_since, claimed_by, turn, attempts, fast_spent, slow_spent, slow_since,
        accepted_at, expires_at, finished_at)
    SELECT id, merchant_id, 'refund.completed', true, CASE WHEN kind < 8 OR n % 10 > 0 THEN body END, sha256(body),
        CASE WHEN kind < 4 THEN 'pending' WHEN kind < 8 THEN 'held' WHEN kind < 10 THEN 'delivered' ELSE 'failed' END,
        CASE WHEN kind > 9 THEN (ARRAY['fast_exhausted', 'slow_exhausted', 'rejected', 'cancelled'])[kind - 9] END,
        CASE WHEN kind BETWEEN 4 AND 7 THEN (ARRAY['address', 'breaker', 'lane', 'replay'])[kind - 3] END,
        since, CASE WHEN kind < 4 THEN now() + interval '1 hour' END, CASE WHEN kind IN (1, 2, 3) THEN since END,
        CASE WHEN kind IN (2, 3) THEN since END, CASE WHEN kind = 3 THEN since END,
        CASE WHEN kind IN (2, 3) THEN gen_random_uuid() END, n % 5, 1, n % 9, n % 3,
        CASE WHEN n % 3 > 0 THEN since END, since, now() + interval '20 days', CASE WHEN kind > 7 THEN since END
    FROM given JOIN bodies USING (id)
)
INSERT INTO attempts (delivery_id, number, started_at, duration_ms, outcome, status)
SELECT id, 1, since, 20, 'unavailable', 503 FROM given WHERE n % 2 = 0
"""

_KEPT = "state, reason, held_for, due_at, sweep_at, queued_at, sending_since, turn, attempts, fast_spent, slow_spent"
_STAND = (
    f"SELECT id, merchant_id, type, money, {_KEPT}, slow_since, accepted_at, expires_at, finished_at FROM deliveries"
)


class Producer:
    """A producer of 0.1 that accepts events, one after the other, and now and then the one before once more."""

    def __init__(self, url: str) -> None:
        self.accepted: dict[str, bytes] = {}
        self.longest_s = 0.0
        self._url = url
        self._stop = threading.Event()
        self._error: BaseException | None = None

    def accept(self, connection: Any, event: Mapping[str, str]) -> bool:
        """Accept an event as 0.1 does. Returns whether it is new."""
        given = reading.read(event)
        values = {name: getattr(given, name) for name in ("id", "merchant_id", "type", "money", "body", "body_sha256")}
        began_s = time.monotonic()
        with connection, connection.cursor() as cursor:
            cursor.execute(_ACCEPT, values)
            new = bool(cursor.fetchall())
            if not new:
                cursor.execute(_CONFLICT, values)
                assert cursor.fetchall() == [], "it is no other event"
        self.longest_s = max(self.longest_s, time.monotonic() - began_s)
        self.accepted.setdefault(given.id, given.body)
        return new

    def _run(self) -> None:
        try:
            connection = psycopg2.connect(self._url)
            while not self._stop.is_set():
                event = event_of(f"new-{len(self.accepted)}")
                assert self.accept(connection, event)
                assert not self.accept(connection, event)
                self._stop.wait(0.005)
            connection.close()
        except BaseException as error:  # told to the test below
            self._error = error

    @contextmanager
    def running(self) -> Iterator[None]:
        """Go on for as long as the block lasts."""
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()
        if self._error:
            raise self._error


def event_of(event_id: str) -> dict[str, str]:
    """Return an event for a merchant that takes what it gets."""
    return {"id": event_id, "type": "refund.completed", "merchant_id": "shop-0"}


def standing(system: System) -> dict[str, Any]:
    """Return how every delivery stands."""
    return {row.id: tuple(row) for row in system.sql(f"{_STAND} WHERE id LIKE 'old-%'")}


@pytest.mark.parametrize("rows", [700, pytest.param(100_000, marks=pytest.mark.long)])
def test_nothing_is_lost_on_the_way(system: System, database_url: str, rows: int) -> None:
    """Every state is as it was, every event has its body and its digest, and the ids are known for ever."""
    start_over(system, "0002")
    system.sql("INSERT INTO merchants (id, url, secret) VALUES ('shop-1', 'https://shop.example/', '\\x00')")
    system.sql(_FILL, rows=rows)
    before = standing(system)
    bodies = {row.id: row for row in system.sql("SELECT id, body, body_sha256 FROM deliveries")}
    made = system.sql("SELECT count(*) AS n FROM attempts")[0].n
    sending = system.sql("SELECT id, claimed_by, silent_since FROM deliveries WHERE claimed_by IS NOT NULL")
    producer = Producer(database_url)
    with producer.running():
        began_s = time.monotonic()
        assert schema.upgrade(parts.database())[0] == "0002"
        took_s = time.monotonic() - began_s
        sent = len(producer.accepted)
        system.wait_until(lambda: len(producer.accepted) > sent + 20, "producers of 0.1 go on afterwards")
    slowest = in_words(timedelta(seconds=producer.longest_s))
    log.info("%s deliveries: %.1f s; %s events meanwhile, the slowest took %s", rows, took_s, sent, slowest)

    assert standing(system) == before
    events = {row.id: row for row in system.sql("SELECT id, body, body_sha256 FROM events")}
    assert events.keys() == bodies.keys() | producer.accepted.keys()
    assert all(
        (events[each].body, events[each].body_sha256) == (row.body, row.body_sha256) for each, row in bodies.items()
    )
    assert all(
        (bytes(events[each].body), bytes(events[each].body_sha256)) == (body, hashlib.sha256(body).digest())
        for each, body in producer.accepted.items()
    )
    (row,) = system.sql(
        "SELECT count(*) AS n, count(body) AS bodies,"
        " count(*) FILTER (WHERE event_id = id AND endpoint_id = merchant_id) AS whole FROM deliveries"
    )
    assert (row.n, row.bodies, row.whole) == (len(events), 0, len(events))
    assert system.sql("SELECT count(*) AS n FROM attempts")[0].n == made
    claims = {row.delivery_id: row for row in system.sql("SELECT delivery_id, name, silent_since FROM claims")}
    assert {each: (row.name, row.silent_since) for each, row in claims.items()} == {
        row.id: (row.claimed_by, row.silent_since) for row in sending
    }
    for known in ("old-0000005", "new-0"):
        event = json.loads(bytes(events[known].body))
        assert parts.accepting().accept(event) == known
        with pytest.raises(EventConflict):
            deliver.delay({**event, "amount": "1"})
    assert system.counted().keys() == {state.value for state in State}


def test_what_was_on_its_way_arrives_once(system: System) -> None:
    """What 0.1 accepted, held and was sending is delivered by today's worker, with the body that it had."""
    start_over(system, "0002")
    system.sql(_FILL, rows=140)
    system.sql("UPDATE deliveries SET sweep_at = now() - interval '1 minute', due_at = now() WHERE state = 'pending'")
    bodies = {row.id: bytes(row.body) for row in system.sql("SELECT id, body FROM deliveries WHERE body IS NOT NULL")}
    going = {row.id for row in system.sql("SELECT id FROM deliveries WHERE state IN ('pending', 'held')")}
    schema.upgrade(parts.database())
    system.set(recover_after=2)
    merchant = system.merchant("shop-0")
    for number in range(1, 7):
        system.register(f"shop-{number}", merchant)
    system.start()
    system.wait_until(lambda: not {"pending", "held"} & system.counted().keys(), "all has come to its end")
    assert sorted(request.webhook_id or "" for request in merchant.requests) == sorted(going)
    assert all(request.body == bodies[request.webhook_id or ""] for request in merchant.requests)
    assert system.sql("SELECT * FROM claims") == []


def test_an_upgrade_that_was_killed_goes_on(system: System) -> None:
    """In the middle of moving: what was moved stays so, the rest follows, and 0.1 accepts in between."""
    start_over(system, "0002")
    system.sql(_FILL, rows=700)
    before = standing(system)
    upgrade_to("0003")
    system.sql(
        "WITH moved AS (INSERT INTO events (id, merchant_id, type, money, body, body_sha256, accepted_at)"
        " SELECT id, merchant_id, type, money, body, body_sha256, accepted_at FROM deliveries ORDER BY id LIMIT 300"
        " RETURNING id) UPDATE deliveries SET event_id = deliveries.id, endpoint_id = merchant_id, body = NULL,"
        " body_sha256 = NULL FROM moved WHERE moved.id = deliveries.id"
    )
    connection = psycopg2.connect(system.environment["WEBHOOKS_DATABASE_URL"])
    producer = Producer("")
    assert producer.accept(connection, event_of("new-1"))
    moved, unmoved = ({**event_of(f"old-{n:07}"), "merchant_id": f"shop-{n % 7}"} for n in (5, 600))
    assert not producer.accept(connection, moved)
    assert not producer.accept(connection, unmoved)
    for other in (moved, unmoved):
        with pytest.raises((psycopg2.errors.RaiseException, AssertionError)):
            producer.accept(connection, {**other, "amount": "1"})
        connection.rollback()
    connection.close()
    assert schema.upgrade(parts.database())[0] == "0003"
    assert standing(system) == before
    assert system.sql("SELECT count(*) AS n FROM events")[0].n == 701
    assert system.sql("SELECT count(*) AS n FROM deliveries WHERE body IS NOT NULL")[0].n == 0
