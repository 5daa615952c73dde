"""Lost answers, standing connections, and what the URL says: the way to PostgreSQL, broken where it can break."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from cryptography.fernet import Fernet, MultiFernet
from sqlalchemy import text

from tests.ledger.books import Books
from tests.ledger.line import Line
from webhooks.accepting import reading
from webhooks.demo.stage import wait_until
from webhooks.errors import AnswerLost, EventConflict, LedgerBusy, LedgerFault, LedgerUnavailable, SettingsError
from webhooks.ledger import statements
from webhooks.ledger.database import Database
from webhooks.ledger.pooling import kept_beside
from webhooks.model import Delivery, Ladder, Message, Outcome, State
from webhooks.observing.facts import Fact
from webhooks.observing.observers import Observers
from webhooks.policy.decisions import RetryAt

EVENT = {"id": "evt-1", "type": "refund.completed", "merchant_id": "acme"}


@pytest.fixture
def line(database_url: str) -> Iterator[Line]:
    """A way to the empty ledger that can be broken."""
    with Line(database_url) as line:
        yield line


@pytest.fixture
def told() -> list[Fact]:
    """What the way to the ledger says of itself."""
    return []


@pytest.fixture
def books(line: Line, told: list[Fact]) -> Iterator[Books]:
    """The ledger at the end of that line."""
    observers = Observers([told.append])
    database = Database(line.url, connections=4, patience=timedelta(seconds=10), observers=observers)
    yield Books(database, MultiFernet([Fernet(Fernet.generate_key())]), timedelta(days=30))
    database.dispose()


def alone(database: Database, statement: str) -> Sequence[Any]:
    """Run a statement by itself."""
    return database.rows(text(statement))


def in_a_transaction(database: Database, statement: str) -> Sequence[Any]:
    """Run a statement in a transaction."""
    with database.transaction() as transaction:
        return transaction.rows(text(statement))


def test_an_event_whose_acceptance_was_lost_is_published(books: Books, line: Line) -> None:
    """It is in the ledger once, and the producer publishes its message as if nothing had been."""
    line.lose_the_answer_to("webhooks_accept_event")
    (message,) = books.ledger.record(reading.read(EVENT))
    assert line.lost.is_set()
    assert message == Message("evt-1", "acme", "refund.completed", 0, books.row().queued_at)
    assert books.ledger.record(reading.read(EVENT)) == []
    with pytest.raises(EventConflict):
        books.ledger.record(reading.read({**EVENT, "amount": "1"}))


def test_another_body_under_a_known_id_is_a_conflict_also_when_an_answer_was_lost(books: Books, line: Line) -> None:
    """What was accepted before is not taken for what this call has done."""
    books.ledger.record(reading.read(EVENT))
    line.lose_the_answer_to("webhooks_accept_event")
    with pytest.raises(EventConflict):
        books.ledger.record(reading.read({**EVENT, "amount": "1"}))
    assert line.lost.is_set()


@pytest.mark.parametrize("statement", ["INSERT INTO deliveries", "COMMIT\0"], ids=["before its end", "at its end"])
def test_a_batch_whose_acceptance_was_lost_is_published(books: Books, line: Line, statement: str) -> None:
    """All of it is in the ledger once, whether or not it was done before the answer was lost, with all its messages."""
    events = [reading.read({**EVENT, "id": f"evt-{number}"}) for number in range(5)]
    line.lose_the_answer_to(statement)
    recorded = books.ledger.record_many(events)
    assert line.lost.is_set()
    assert sorted(message.id for message in recorded) == [event.id for event in events]
    assert books.ledger.record_many(events) == []


def test_a_machine_without_descriptors_is_a_busy_ledger(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has an answer to write down waits, and nobody meets a bare error of the system."""

    def none_left(_descriptor: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with books.database.engine.connect() as connection:
        connection.invalidate()
    monkeypatch.setattr(os, "dup", none_left)
    for _ in ("one that was given up", "a new one"):
        for ask in (alone, in_a_transaction, alone):
            with pytest.raises(LedgerBusy, match="no descriptor or thread left"):
                ask(books.database, "SELECT 1")
        books.database.engine.dispose()
    monkeypatch.undo()
    assert books.database._places._value == 8
    books.sql("SELECT 1")


def test_all_statements_on_a_connection_share_one_watch(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, they take no further descriptor, and pile nothing up with the watchdog."""
    pid = alone(books.database, "SELECT pg_backend_pid()")
    monkeypatch.setattr(os, "dup", pytest.fail)
    for _ in range(100):
        assert alone(books.database, "SELECT pg_backend_pid()") == pid
    assert in_a_transaction(books.database, "SELECT pg_backend_pid()") == pid
    assert len(books.database._watchdog._watched) == 1


def test_a_connection_that_is_closed_leaves_no_descriptor(books: Books) -> None:
    """Neither the watch over it nor the eye on it keeps it open."""
    with books.database.engine.connect() as connection:
        kept = kept_beside(connection.connection)
    books.sql("SELECT 1")
    assert kept._descriptor.fileno() >= 0
    books.database.engine.dispose()
    assert kept._descriptor.fileno() == -1


def test_a_forked_process_shares_nothing(books: Books) -> None:
    """Neither connections, nor the watch over them, nor who waited for a place."""
    books.database._places.acquire()
    watchdog = books.database._watchdog
    books.database._begin_anew()
    assert books.database._places._value == 8
    assert books.database._watchdog is not watchdog
    books.sql("SELECT 1")


def test_a_claim_whose_answer_was_lost_knows_itself(books: Books, line: Line) -> None:
    """It is one attempt, claimed by the worker that asked, and by nobody else."""
    books.register()
    message = books.accept()
    line.lose_the_answer_to("UPDATE deliveries")
    delivery = books.claim(message)
    assert line.lost.is_set()
    assert (delivery.number, books.row().attempts) == (1, 1)
    assert not isinstance(books.ledger.claim(message), Delivery)


def test_a_claim_that_was_lost_and_ends_later_knows_itself(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked for while it is under way, and ends before the second claim is through: it is this worker's."""
    books.register()
    message = books.accept()
    run, under_way = Database.rows, list[Any]()

    def lose(self: Database, statement: Any, values: Any = None, **how: Any) -> Any:
        if statement is statements.CLAIM and not under_way:
            under_way.append(values)
            raise AnswerLost("the ledger cannot be used: gone")
        found = run(self, statement, values, **how)
        if statement is statements.CLAIMED and under_way[0]:
            under_way[0] = run(self, statements.CLAIM, under_way[0]) and None
        return found

    monkeypatch.setattr(Database, "rows", lose)
    assert books.claim(message).number == 1
    assert under_way == [None]


def test_a_finish_whose_answer_was_lost_knows_itself(books: Books, line: Line) -> None:
    """The retry is this worker's to publish; one that comes late for it is still late."""
    books.register()
    delivery = books.claim(books.accept())
    decision = RetryAt(delivery.started_at + timedelta(minutes=5), Ladder.FAST)
    line.lose_the_answer_to("INSERT INTO attempts")
    assert books.finish(delivery, Outcome.UNAVAILABLE, decision)
    assert line.lost.is_set()
    assert books.outcomes() == [Outcome.UNAVAILABLE]
    books.sql("UPDATE deliveries SET turn = turn + 1")
    assert not books.finish(delivery, Outcome.UNAVAILABLE, decision)


def test_a_release_whose_answer_was_lost_takes_no_second_batch(books: Books, line: Line) -> None:
    """What must not run twice does not: the caller hears that nobody knows."""
    books.register()
    for number in range(4):
        message = books.accept(f"evt-{number}")
        assert books.hold(message)
    line.lose_the_answer_to("UPDATE deliveries")
    with pytest.raises(AnswerLost):
        books.backlog.release({"acme": 2})
    assert len(books.sql("SELECT id FROM deliveries WHERE state = :held", held=State.HELD)) == 2


def test_a_connection_that_died_while_idle_is_not_used(books: Books, told: list[Fact], database_url: str) -> None:
    """It is found dead before anything is sent over it, so that even what must not run twice goes through."""
    with books.database.engine.connect() as connection:
        kept = kept_beside(connection.connection)
    other = Database(database_url)
    other.rows(text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
                    "AND pid <> pg_backend_pid()"))  # fmt: skip
    other.dispose()
    wait_until(lambda: not kept.is_alive(), "the pooled connection has been hung up")
    books.database.rows(text("UPDATE deliveries SET turn = turn"))
    assert told == []


def test_a_line_that_stands_still_holds_nobody_for_long(books: Books, line: Line) -> None:
    """A producer hears LedgerUnavailable within its bound; the same event again is the same event."""
    books.ledger._patience = timedelta(seconds=0.5)
    books.sql("SELECT 1")  # a pooled connection: nothing but this side's own bound can end the wait
    heard = threading.Event()

    def hand_over() -> None:
        with pytest.raises(LedgerUnavailable):
            books.ledger.record(reading.read(EVENT))
        heard.set()

    with line.standing_still():
        producer = threading.Thread(target=hand_over)
        producer.start()
        assert heard.wait(10)
        producer.join()
    books.ledger._patience = timedelta(seconds=10)
    books.ledger.record(reading.read(EVENT))
    assert len(books.sql("SELECT id FROM deliveries")) == 1


def test_waiting_for_a_free_connection_is_bounded_too(books: Books) -> None:
    """With every connection taken, a caller hears that the ledger is busy."""
    for _ in range(8):
        books.database._places.acquire()
    with books.database.within(timedelta(seconds=0.1)), pytest.raises(LedgerBusy, match="no database connection"):
        books.sql("SELECT 1")


def test_the_tighter_of_two_bounds_counts(books: Books) -> None:
    """Whichever was set first, and no longer than its block."""
    second, hour = timedelta(seconds=1), timedelta(hours=1)
    database = books.database
    for outer, inner in ((second, hour), (hour, second)):
        with database.within(outer):
            with database.within(inner):
                assert database.left <= second
            assert (database.left <= second) is (outer == second)
    assert second < database.left < hour


@pytest.mark.parametrize(("run", "fault"), [(alone, AnswerLost), (in_a_transaction, LedgerUnavailable)])
def test_a_statement_past_its_bound_is_cancelled_and_its_connection_given_up(
    database_url: str, run: Callable[[Database, str], object], fault: type[Exception]
) -> None:
    """Nobody knows what became of it, and the cancellation meets nobody else's statement."""
    database = Database(database_url, connections=1)  # no line of ours: psycopg2 lets no thread run while it cancels
    pid = "SELECT pg_backend_pid()"
    before = alone(database, pid)
    with database.within(timedelta(seconds=0.2)), pytest.raises(fault, match="confirmed nothing in time"):
        run(database, "SET LOCAL statement_timeout = 0; SELECT pg_sleep(600)")
    assert alone(database, pid) != before
    asleep = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%pg_sleep(600)%'"
    wait_until(lambda: len(alone(database, asleep)) == 1, "the statement has been cancelled")  # this one finds itself
    database.dispose()


@pytest.mark.parametrize(
    ("trouble", "fault"),
    [
        ("SELECT 1/0", LedgerFault),
        ("INSERT INTO endpoints (id, merchant_id, url) VALUES ('acme', 'acme', 'https://acme.example')", LedgerFault),
        ("SET LOCAL ROLE pg_monitor; DELETE FROM endpoints", LedgerFault),
        ("SELECT 'x'::int", LedgerFault),
        ("SELECT * FROM nowhere", LedgerUnavailable),
        ("SET LOCAL statement_timeout = '10ms'; SELECT pg_sleep(5)", LedgerBusy),
        ("SELECT pg_terminate_backend(pg_backend_pid())", AnswerLost),
        ("SET LOCAL transaction_read_only = on; DELETE FROM endpoints", LedgerUnavailable),
    ],
)
def test_only_what_is_away_is_unavailable(books: Books, trouble: str, fault: type[Exception]) -> None:
    """A constraint, a privilege or a row's data is no outage, and is told apart from one."""
    with pytest.raises(fault) as caught:
        books.database.rows(text(trouble))
    assert isinstance(caught.value, LedgerUnavailable) is (fault is not LedgerFault)
    assert "\n" not in str(caught.value)
    books.sql("SELECT 1")


def test_a_session_that_takes_no_writes_is_given_up(books: Books, database_url: str) -> None:
    """The sessions of a database that was read-only for a while are replaced at the first write that they refuse."""
    name = books.sql("SELECT current_database()")[0][0]
    books.database.dispose()
    admin = Database(database_url)
    admin.rows(text(f"ALTER DATABASE {name} SET default_transaction_read_only = on"))
    assert books.sql("SELECT 1")
    admin.rows(text("SET default_transaction_read_only = off"))
    admin.rows(text(f"ALTER DATABASE {name} SET default_transaction_read_only = off"))
    admin.dispose()
    books.accept()
    assert books.row().state == State.PENDING


def test_with_one_session_go_all_that_are_as_old(books: Books) -> None:
    """Where one was lost to a failover, so were the others: no statement has to find out for each of them."""
    pid = "SELECT pg_backend_pid()"
    with books.database.transaction() as one:
        before = {one.rows(text(pid))[0], alone(books.database, pid)[0]}
    with pytest.raises(AnswerLost):
        books.sql("SELECT pg_terminate_backend(pg_backend_pid())")
    with books.database.transaction() as one:
        after = {one.rows(text(pid))[0], alone(books.database, pid)[0]}
    assert len(after - before) == 2


def test_one_outage_is_told_twice(books: Books, line: Line, told: list[Fact], database_url: str) -> None:
    """However many ask meanwhile: one when it begins, and one when it is over."""
    name = books.sql("SELECT current_database()")[0][0]
    admin = Database(database_url.replace(f"/{name}", "/postgres"))
    admin.rows(text(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false"))
    admin.rows(text(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"))
    for _ in range(5):
        with pytest.raises(LedgerUnavailable):
            books.sql("SELECT 1")
    admin.rows(text(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true"))
    admin.dispose()
    books.sql("SELECT 1")
    assert [fact.name for fact in told] == ["ledger.away", "ledger.back"]


def test_limits_hold_for_each_statement_and_stay_nowhere(books: Books, database_url: str) -> None:
    """They travel with the statement, so that a session lent out by a pooler keeps nothing of them."""
    books.database = Database(database_url, connections=1)
    for name, limited in (("statement_timeout", "15s"), ("lock_timeout", "5s"), ("TimeZone", "UTC")):
        assert books.sql(f"SHOW {name}")[0][0] == limited
    with books.database.transaction() as transaction:
        assert transaction.rows(text("SHOW idle_in_transaction_session_timeout"))[0][0] == "1min"
    with books.database.engine.connect() as connection:
        raw = connection.connection.cursor()
        raw.execute("SHOW statement_timeout")
        assert raw.fetchone() == ("0",)
    books.database.dispose()


def test_what_the_url_says_wins(database_url: str, line: Line) -> None:
    """Options, a name for the application, a time-out, and several hosts of which the first is not there."""
    more = "?options=-csearch_path%3Dshop%20-cstatement_timeout%3D7s&application_name=shop&connect_timeout=3"
    hosts = line.url.replace("127.0.0.1", "127.0.0.1:1,127.0.0.1")
    database = Database(f"{hosts}{more}&target_session_attrs=read-write")
    shown = {
        name: database.rows(text(f"SHOW {name}"))[0][0]
        for name in ("search_path", "statement_timeout", "lock_timeout", "application_name")
    }
    database.dispose()
    assert shown == {
        "search_path": "shop",
        "statement_timeout": "7s",
        "lock_timeout": "5s",
        "application_name": "shop",
    }


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("postgresql://u:p@h/db?pool_size=3", "pool_size is no parameter of PostgreSQL's"),
        ("postgresql://u:secret%@h/db", "it cannot be read"),
        ("postgresql://u:secret@h/db?client_encoding=latin1", "client_encoding must be utf8"),
    ],
)
def test_a_url_that_cannot_be_used_is_one_line(url: str, why: str) -> None:
    """It names the parameter, and shows no piece of a password."""
    with pytest.raises(SettingsError, match=why) as caught:
        Database(url)
    assert "secret" not in str(caught.value)


def test_statements_count_together_or_not_at_all(books: Books) -> None:
    """A transaction that fails in its last statement leaves nothing."""

    def two_acts() -> None:
        with books.database.transaction() as transaction:
            transaction.rows(text("INSERT INTO endpoints (id, merchant_id) VALUES ('acme', 'acme')"))
            transaction.rows(text("SELECT 1/0"))

    with pytest.raises(LedgerFault):
        two_acts()
    assert books.sql("SELECT id FROM endpoints") == []


@pytest.mark.parametrize(
    ("lost", "fault", "done"), [("COMMIT\0", AnswerLost, 1), ("INSERT INTO endpoints", LedgerUnavailable, 0)]
)
def test_a_transaction_knows_when_nobody_knows(
    books: Books, line: Line, lost: str, fault: type[Exception], done: int
) -> None:
    """Only where the answer to its end was lost is it unknown whether it was done."""

    def two_acts() -> None:
        with books.database.transaction() as transaction:
            transaction.rows(text("INSERT INTO endpoints (id, merchant_id) VALUES ('acme', 'acme')"))
            transaction.rows(text("UPDATE endpoints SET paused_at = now()"))

    line.lose_the_answer_to(lost)
    with pytest.raises(fault) as caught:
        two_acts()
    assert type(caught.value) is fault
    assert len(books.sql("SELECT id FROM endpoints")) == done


def test_connections_are_not_kept_for_ever(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past their age they are replaced, so that a name that has moved is looked up again."""
    assert books.database.engine.pool._recycle == 300
    pid = "SELECT pg_backend_pid()"
    before = books.sql(pid)
    assert books.sql(pid) == before
    monkeypatch.setattr(books.database.engine.pool, "_recycle", 0)
    assert books.sql(pid) != before
