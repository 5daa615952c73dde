"""The road from the first release's tables: in place, under its running producers, and with nothing lost."""

from __future__ import annotations

import logging
import time
from collections import Counter
from contextlib import closing

import psycopg2
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from tests.command import done
from tests.forks import Fork
from tests.ledger.first_release import EACH_ONCE, SERVED, Producer, fill, old_event
from tests.ledger.test_schema import start_over, upgrade_to
from tests.system import System
from webhooks import EventConflict, deliver, parts
from webhooks.ledger import schema
from webhooks.ledger.side_tables import every_table as metadata
from webhooks.process.spans import in_words

log = logging.getLogger(__name__)

_DELIVERY = """id, merchant_id, type, money, state, reason, held_for, due_at, sweep_at, queued_at, sending_since, turn,
    attempts, fast_spent, slow_spent, slow_since, accepted_at, expires_at, finished_at"""
_EVENT = "id, merchant_id, type, money, body, body_sha256, accepted_at"
_MERCHANT = "id, url, secret, previous_secret, previous_until, standard_headers, paused_at, created_at, updated_at"

# What was there, and what is there now of it.
_SAME = {
    "events": (f"SELECT {_EVENT} FROM before.deliveries", f"SELECT {_EVENT} FROM events WHERE id LIKE 'old-%'"),
    "deliveries": (
        f"SELECT {_DELIVERY}, id, merchant_id, finished_at IS NOT NULL AND body IS NULL FROM before.deliveries",
        f"SELECT {_DELIVERY}, event_id, endpoint_id, pruned FROM deliveries WHERE id LIKE 'old-%'",
    ),
    "attempts": ("SELECT *, NULL FROM before.attempts", "SELECT * FROM attempts"),
    "claims": (
        "SELECT id, claimed_by, sweep_at, silent_since FROM before.deliveries WHERE sending_since IS NOT NULL",
        "SELECT delivery_id, name, ends_at, silent_since FROM claims",
    ),
    "endpoints": (f"SELECT {_MERCHANT}, id FROM before.merchants", f"SELECT {_MERCHANT}, merchant_id FROM endpoints"),
}

# Only the served merchant is really there.
_LEAVE_THE_OTHERS = (
    "UPDATE endpoints SET paused_at = now() WHERE id <> 'acme'",
    "UPDATE deliveries SET sweep_at = now() + interval '1 day' WHERE merchant_id <> 'acme' AND state = 'pending'",
)


_ROWS = pytest.mark.parametrize("rows", [EACH_ONCE, pytest.param(100_000, marks=pytest.mark.long)])


@_ROWS
def test_nothing_is_lost_on_the_way(system: System, database_url: str, rows: int) -> None:
    """Every state is as it was, and no producer of 0.1 is refused, before, meanwhile and afterwards."""
    start_over(system, "0002")
    fill(system, rows, "https://acme.example/")
    with Producer(database_url, rows) as producer:
        _await_producer(system, producer)
        began_s = time.monotonic()
        assert done("db", "upgrade")["before"] == "0002"
        took_s, meanwhile = time.monotonic() - began_s, len(producer.accepted)
        _await_producer(system, producer)
    log.info("%s deliveries: %.1f s; %s events, the slowest %s", rows, took_s, meanwhile, in_words(producer.longest))
    assert producer.mistakes == []
    _is_the_same(system)
    _has_accepted(system, producer)
    _is_known(rows)


@_ROWS
def test_killed_in_the_middle_it_goes_on_and_all_arrives_once(system: System, database_url: str, rows: int) -> None:
    """What 0.1 accepted, held and was sending, and what it goes on accepting, is delivered by today's worker."""
    system.set(recover_after=2)
    merchant = system.merchant(SERVED, registered=False)
    start_over(system, "0002")
    fill(system, rows, merchant.url())
    with Producer(database_url, rows) as producer:
        upgrade_to("0003")
        _kill_in_the_middle(system, database_url)
        _await_producer(system, producer)
        assert done("db", "upgrade")["before"] == "0003"
        _is_the_same(system)
        for statement in _LEAVE_THE_OTHERS:
            system.sql(statement)
        system.start()
        _await_producer(system, producer)
    assert producer.mistakes == []
    _has_accepted(system, producer)
    wanted = _bodies_to_come(system, producer)
    system.wait_until(lambda: _unfinished(system) == 0, "all are delivered", timeout=60 + rows / 500)
    assert Counter(request.webhook_id for request in merchant.requests) == Counter(wanted.keys())
    assert {request.webhook_id: request.body for request in merchant.requests} == wanted
    assert system.sql("SELECT FROM claims JOIN deliveries ON id = delivery_id WHERE merchant_id = 'acme'") == []


def _await_producer(system: System, producer: Producer) -> None:
    soon = len(producer.accepted) + 20
    system.wait_until(lambda: producer.mistakes or len(producer.accepted) >= soon, "the producer goes on")
    assert producer.mistakes == []


def _kill_in_the_middle(system: System, database_url: str) -> None:
    """Kill an upgrade that waits for the last event that it would move."""
    with closing(psycopg2.connect(database_url)) as somebody, somebody.cursor() as cursor:
        cursor.execute("SELECT id FROM deliveries WHERE id LIKE 'old-%' ORDER BY id DESC LIMIT 1 FOR UPDATE")
        output = system.folder / "upgrade"
        upgrade = Fork(["-m", "webhooks", "db", "upgrade"], system.environment, output, folder=system.folder)
        try:
            system.wait_until(lambda: _waiting_for_a_row(system) or upgrade.poll() is not None, "it is in the middle")
            assert upgrade.poll() is None, output.read_text()
        finally:
            upgrade.kill()
            upgrade.wait(10)


def _waiting_for_a_row(system: System) -> bool:
    waiting = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%moved AS%'"
    return bool(system.sql(waiting))


def _is_the_same(system: System) -> None:
    for what, (before, after) in _SAME.items():
        for one, other in ((before, after), (after, before)):
            assert system.sql(f"{one} EXCEPT ALL {other} LIMIT 5") == [], what
    assert system.sql("SELECT conname FROM pg_constraint WHERE NOT convalidated") == []
    assert system.sql("SELECT indexrelid::regclass FROM pg_index WHERE NOT indisvalid") == []
    assert system.sql("SELECT FROM deliveries WHERE body IS NOT NULL OR body_sha256 IS NOT NULL") == []
    with parts.database().engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    schema.check(parts.database())


def _is_known(rows: int) -> None:
    """Both a body that is there and one that was pruned: the same event is known, another is refused."""
    for number in (1, rows // 2, *range(rows - 16, rows + 1)):
        assert parts.accepting().accept(old_event(number)) == f"old-{number}"
        with pytest.raises(EventConflict):
            deliver.delay(old_event(number, amount="1"))


def _has_accepted(system: System, producer: Producer) -> None:
    """Each event that the producer was told is accepted, with its body and one delivery, and no other."""
    rows = system.sql("SELECT id, events.body FROM events JOIN deliveries USING (id) WHERE event_id NOT LIKE 'old-%'")
    assert {row.id: bytes(row.body) for row in rows} == producer.accepted
    assert len(rows) == len(producer.accepted)
    assert producer.taken_back


def _bodies_to_come(system: System, producer: Producer) -> dict[str | None, bytes]:
    """Return what the served merchant is to get, by id."""
    unfinished = "SELECT id, body FROM before.deliveries WHERE merchant_id = 'acme' AND state IN ('pending', 'held')"
    since = {each: body for each, body in producer.accepted.items() if b'"acme"' in body}
    return {row.id: bytes(row.body) for row in system.sql(unfinished)} | since


def _unfinished(system: System) -> int:
    return len(system.sql("SELECT FROM deliveries WHERE merchant_id = 'acme' AND state IN ('pending', 'held')"))
