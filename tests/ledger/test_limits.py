"""An endpoint's own limits travel with its deliveries, and its deliveries may be held for them."""

from __future__ import annotations

from datetime import timedelta

import psycopg2
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from cryptography.fernet import Fernet, MultiFernet
from sqlalchemy import event

from tests.command import done
from tests.ledger.books import Books
from tests.ledger.line import Line
from tests.ledger.test_schema import start_over
from tests.system import System
from webhooks import parts
from webhooks.errors import LedgerFault
from webhooks.ledger.database import Database
from webhooks.ledger.side_tables import every_table as metadata
from webhooks.model import NO_LIMITS, Changes, HeldFor, Limits

OWN = Limits(lane=3, rate=2.5)


def register(books: Books) -> None:
    """Have an endpoint with limits of its own."""
    books.register()
    books.merchants.set("acme", Changes(lane=3, rate=2.5))


def test_they_travel_from_the_first_message_to_the_last_release(books: Books) -> None:
    """With what is recorded, claimed, published by the sweep, offered to the gate and released."""
    register(books)
    message = books.accept()
    assert (message.limits, books.claim(message).limits) == (OWN, OWN)
    books.accept("evt-2")
    books.age(timedelta(minutes=1))
    (due,) = books.backlog.due(10, ahead=timedelta(), still_queued_from=None)
    assert (due.message.id, due.message.limits) == ("evt-2", OWN)
    books.hold(due.message)
    assert books.backlog.held_endpoints().limits == {"acme": OWN}
    assert [each.limits for each in books.backlog.release({"acme": 1})["acme"]] == [OWN]


def test_whoever_asks_for_nothing_has_none(books: Books) -> None:
    """And so has a merchant that nobody registered."""
    assert books.accept("evt-0", "stranger").limits == NO_LIMITS
    books.register()
    message = books.accept()
    assert (message.limits, books.claim(message).limits) == (NO_LIMITS, NO_LIMITS)


def test_a_lost_answer_takes_them_from_nobody(database_url: str) -> None:
    """What was recorded or claimed all the same comes with its limits."""
    with Line(database_url) as line:
        database = Database(line.url, connections=4)
        books = Books(database, MultiFernet([Fernet(Fernet.generate_key())]), timedelta(days=30))
        register(books)
        line.lose_the_answer_to("webhooks_accept_event")
        message = books.accept()
        assert (message.limits, line.lost.is_set()) == (OWN, True)
        line.lose_the_answer_to("UPDATE deliveries")
        assert (books.claim(message).limits, line.lost.is_set()) == (OWN, True)
        database.dispose()


@pytest.mark.parametrize("held_for", list(HeldFor))
def test_a_delivery_is_held_for_whatever_there_is(books: Books, held_for: HeldFor) -> None:
    """And counted under that name."""
    books.register()
    assert books.ledger.hold(books.accept(), held_for)
    assert books.views.count_held("acme") == {held_for: 1}


@pytest.mark.parametrize("rate", ["0", "0.009", "1000.5", "-1", "'NaN'", "'Infinity'"])
def test_the_table_refuses_a_rate_that_is_none(books: Books, rate: str) -> None:
    """Whoever writes it: a bucket that never fills would hold an endpoint's deliveries for ever."""
    books.register()
    with pytest.raises(LedgerFault, match="rate_is_possible"):
        books.sql(f"UPDATE endpoints SET rate = {rate}")


_BEFORE = (
    """INSERT INTO endpoints (id, merchant_id, url, secret, lane)
    SELECT CASE n WHEN 1 THEN 'acme' ELSE 'ep_' || n END, 'acme', 'https://acme.example/', 's', nullif(n, 1)
    FROM generate_series(1, 3) AS n""",
    """INSERT INTO deliveries (id, event_id, merchant_id, endpoint_id, type, money, state, held_for, due_at,
        accepted_at, expires_at)
    SELECT why, why, 'acme', 'acme', 'kyc.x', false, 'held', why, now(), now(), now() + interval '1 day'
    FROM unnest(ARRAY['address', 'breaker', 'lane', 'operator', 'replay']) AS why""",
)
_COLUMNS = (
    "id, event_id, merchant_id, endpoint_id, type, money, body, body_sha256, state, reason, held_for, due_at,"
    " sweep_at, queued_at, sending_since, turn, attempts, fast_spent, slow_spent, slow_since, accepted_at, expires_at,"
    " finished_at, pruned"
)
_SHOWN = {
    "endpoints": "SELECT id, lane, url FROM endpoints ORDER BY id",
    "deliveries": f"SELECT {_COLUMNS} FROM deliveries",
}


def test_tables_of_the_revision_before_get_rates_in_place(system: System, database_url: str) -> None:
    """Every row stays, no endpoint has a rate, and while the rows are looked through, others write to the table."""
    start_over(system, "0005")
    for statement in _BEFORE:
        system.sql(statement)
    before = {name: system.sql(shown) for name, shown in _SHOWN.items()}
    with psycopg2.connect(database_url) as somebody:
        looked_through: list[str] = []

        def write(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
            if "VALIDATE" in statement:
                cursor = somebody.cursor()
                cursor.execute("LOCK TABLE deliveries IN ROW EXCLUSIVE MODE NOWAIT")
                cursor.execute("SELECT conname FROM pg_constraint WHERE NOT convalidated")
                looked_through.extend(name for (name,) in cursor.fetchall())
            else:
                somebody.rollback()  # an index that is built concurrently waits for whoever writes

        def let_go(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
            if "VALIDATE" in statement:
                somebody.rollback()  # what comes next builds indexes, which waits for whoever writes

        engine = parts.database().engine
        event.listen(engine, "before_cursor_execute", write)
        event.listen(engine, "after_cursor_execute", let_go)
        assert done("db", "upgrade")["before"] == "0005"
        event.remove(engine, "before_cursor_execute", write)
        event.remove(engine, "after_cursor_execute", let_go)
    assert looked_through == ["held_for_is_known"]
    assert {name: system.sql(shown) for name, shown in _SHOWN.items()} == before
    assert {row.rate for row in system.sql("SELECT rate FROM endpoints")} == {None}
    assert system.sql("SELECT conname FROM pg_constraint WHERE NOT convalidated") == []
    with parts.database().engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    system.sql("UPDATE deliveries SET held_for = 'rate'")
