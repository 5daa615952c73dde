"""The road from the first release's tables: in place, under its running producers, and with nothing lost."""

from __future__ import annotations

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
from tests.ledger.test_schema import lead_to, start_over
from tests.system import System
from webhooks import EventConflict, parts
from webhooks.accepting import reading
from webhooks.ledger import schema
from webhooks.ledger.tables import metadata

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
    "attempts": ("SELECT * FROM before.attempts", "SELECT * FROM attempts"),
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


@pytest.mark.parametrize("rows", [EACH_ONCE, pytest.param(100_000, marks=pytest.mark.long)])
def test_an_upgrade_under_a_running_producer(system: System, database_url: str, rows: int) -> None:
    """Killed in the middle and run again, it loses nothing, changes nothing, and refuses no producer of 0.1."""
    system.set(recover_after=2)
    merchant = system.merchant(SERVED, registered=False)
    start_over(system, "0002")
    fill(system, rows, merchant.url())
    with Producer(database_url, rows) as producer:
        _await_producer(system, producer)
        started = time.monotonic()
        lead_to("0003")
        _kill_in_the_middle(system, database_url)
        assert done("db", "upgrade")["before"] == "0003"
        seconds = time.monotonic() - started
        _await_producer(system, producer)  # it goes on until it is replaced
        _is_the_same(system)
        _is_known(rows)
        for statement in _LEAVE_THE_OTHERS:
            system.sql(statement)
        system.start()
        _await_producer(system, producer)
    print(f"{rows:,} deliveries: {seconds:.1f} s, at most {producer.longest.total_seconds():.2f} s for a producer")  # noqa: T201 - for -s
    assert producer.mistakes == []
    _has_accepted(system, producer)
    wanted = _unfinished_before(system) + sum(b'"acme"' in body for body in producer.accepted.values())
    system.wait_until(lambda: _unfinished(system) == 0, "all are delivered", timeout=60 + rows / 500)
    posts = Counter(request.webhook_id for request in merchant.requests)
    assert (len(posts), posts.total()) == (wanted, wanted)


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
    for number in range(1, 1 + min(rows, 17)):
        assert parts.ledger().record(reading.read(old_event(number))) == []
        with pytest.raises(EventConflict):
            parts.ledger().record(reading.read(old_event(number, amount="1")))


def _has_accepted(system: System, producer: Producer) -> None:
    """Each event that the producer was told is accepted, with its body and one delivery, and no other."""
    rows = system.sql("SELECT id, events.body FROM events JOIN deliveries USING (id) WHERE event_id NOT LIKE 'old-%'")
    assert {row.id: bytes(row.body) for row in rows} == producer.accepted
    assert len(rows) == len(producer.accepted)
    assert producer.taken_back


def _unfinished_before(system: System) -> int:
    unfinished = "SELECT FROM before.deliveries WHERE merchant_id = 'acme' AND state IN ('pending', 'held')"
    return len(system.sql(unfinished))


def _unfinished(system: System) -> int:
    return len(system.sql("SELECT FROM deliveries WHERE merchant_id = 'acme' AND state IN ('pending', 'held')"))
