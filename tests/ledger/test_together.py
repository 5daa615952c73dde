"""Claims and finishes of many threads at once: each gets its own, and one's trouble is nobody else's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg2
import pytest
from cryptography.fernet import Fernet, MultiFernet
from sqlalchemy import Executable, text

from tests.ledger.books import Books
from tests.ledger.line import Line
from webhooks.accepting import reading
from webhooks.demo.stage import wait_until
from webhooks.errors import LedgerBusy, LedgerFault
from webhooks.ledger.database import Database
from webhooks.ledger.decryption import Decryption
from webhooks.ledger.together import Together
from webhooks.model import Attempt, Delivery, Message, Outcome, State, Unclaimed, Written
from webhooks.policy.decisions import Budgets, Delivered

_MANY = 20


@contextmanager
def _gathered(books: Books, together: Together, number: int) -> Iterator[None]:
    """Let nobody go first: what is asked in the block waits, until so many do; then all of it is asked at once."""
    together._out = 1
    yield
    wait_until(lambda: len(together._queue) == number, "all have come")
    together._hand_on()


def _at_once(books: Books, together: Together, asks: Sequence[Callable[[], Any]]) -> list[Any]:
    """Have each asked by a thread of its own, all in one statement; return what came of each, faults among it."""

    def outcome(ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(asks)) as pool:
        with _gathered(books, together, len(asks)):
            asked = [pool.submit(outcome, ask) for ask in asks]
        return [each.result() for each in asked]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody goes ahead of a statement that is out, so that a busy machine gathers what it should."""
    monkeypatch.setattr("webhooks.ledger.together._LONGEST_QUEUE_S", 60.0)


@pytest.fixture
def ran(books: Books, monkeypatch: pytest.MonkeyPatch) -> list[Executable]:
    """The statements that went to PostgreSQL."""
    ran: list[Executable] = []
    run = books.database._run

    def noted(statement: Executable, values: Any) -> Any:
        ran.append(statement)
        return run(statement, values)

    monkeypatch.setattr(books.database, "_run", noted)
    return ran


def _accepted(books: Books) -> list[Message]:
    books.register()
    events = [{"id": f"evt-{n:02}", "type": "refund.completed", "merchant_id": "acme"} for n in range(_MANY)]
    return [*books.ledger.record_many([reading.read(event) for event in events])]


def _claims(books: Books, messages: Sequence[Message]) -> list[Any]:
    return _at_once(books, books.ledger._claims, [partial(books.ledger.claim, each) for each in messages])


def _finish(books: Books, delivery: Delivery, excerpt: str | None = None) -> Written:
    attempt = Attempt(delivery.number, delivery.started_at, timedelta(seconds=1), Outcome.DELIVERED, 200, None, excerpt)
    spent = Budgets(delivery.money, delivery.expires_at, delivery.fast_spent, delivery.slow_spent)
    return books.ledger.finish(delivery, attempt, Delivered(), spent, queued=False)


def _finishes(books: Books, deliveries: Sequence[Delivery], excerpts: dict[int, str] | None = None) -> list[Any]:
    given = excerpts or {}
    asks = [partial(_finish, books, each, given.get(n)) for n, each in enumerate(deliveries)]
    return _at_once(books, books.ledger._finishes, asks)


def test_many_at_once_cost_one_statement_and_each_gets_its_own(books: Books, ran: list[Executable]) -> None:
    """Twenty claims, and then twenty finishes: every thread hears of its own delivery."""
    messages = _accepted(books)
    ran.clear()
    deliveries = _claims(books, messages)
    assert [delivery.id for delivery in deliveries] == [message.id for message in messages]
    assert {(each.number, each.turn, each.secret) for each in deliveries} == {(1, 1, "s")}
    assert len({row.name for row in books.sql("SELECT name FROM claims")}) == _MANY
    excerpts = {n: f"answer {n}" for n in range(_MANY)}
    ran.clear()
    assert _finishes(books, deliveries, excerpts) == [Written.IN_TIME] * _MANY
    assert len(ran) == 1
    written = books.sql("SELECT excerpt FROM attempts ORDER BY delivery_id")
    assert len(books.views.last_answers("acme", 2 * _MANY)) == _MANY
    assert [row.excerpt for row in written] == list(excerpts.values())
    assert books.sql("SELECT * FROM claims") == []
    assert {row.state for row in books.sql("SELECT state FROM deliveries")} == {State.DELIVERED}


def test_who_comes_alone_asks_what_is_asked_for_one(books: Books, ran: list[Executable]) -> None:
    """Nobody waits for company: one claim and one finish are a statement each."""
    message, *_ = _accepted(books)
    ran.clear()
    assert _finish(books, books.claim(message)) is Written.IN_TIME
    assert ran == [books.ledger._claims._one, books.ledger._finishes._one]


def test_a_message_that_comes_twice_at_once_is_claimed_once(books: Books) -> None:
    """One of the two is stale, whichever; the others have nothing to do with it."""
    messages = _accepted(books)
    with ThreadPoolExecutor(_MANY) as pool:
        with _gathered(books, books.ledger._claims, _MANY):
            asked = [pool.submit(books.ledger.claim, each) for each in [messages[0], *messages[: _MANY - 1]]]
        came = [each.result() for each in asked]
    assert [isinstance(each, Delivery) for each in came[2:]] == [True] * (_MANY - 2)
    assert [each for each in came[:2] if not isinstance(each, Delivery)] == [Unclaimed.STALE]
    assert {row.attempts for row in books.sql("SELECT attempts FROM deliveries WHERE turn > 0")} == {1}


def test_a_stale_turn_among_many_takes_nothing(books: Books) -> None:
    """Its thread hears so, and so does that of an event which nobody knows; a late finish is late."""
    messages = _accepted(books)
    messages[3] = replace(messages[3], turn=7)
    messages[4] = replace(messages[4], id="unheard-of")
    came = _claims(books, messages)
    assert came[3:5] == [Unclaimed.STALE, Unclaimed.UNKNOWN]
    deliveries = [each for each in came if isinstance(each, Delivery)]
    assert len(deliveries) == _MANY - 2
    books.sql("UPDATE deliveries SET turn = turn + 1, sending_since = NULL WHERE id = :id", id=deliveries[0].id)
    written = _finishes(books, deliveries)
    assert written[1:] == [Written.IN_TIME] * (_MANY - 3)
    assert written[0] is Written.LAST


def test_one_poisoned_finish_fails_alone(books: Books) -> None:
    """What its row refuses, or cannot be said at all, is its own; all others are written down."""
    deliveries = _claims(books, _accepted(books))
    books.sql("ALTER TABLE attempts ADD CONSTRAINT no_poison CHECK (excerpt <> 'poison')")
    written = _finishes(books, deliveries, {5: "poison", 9: "\0"})
    assert isinstance(written[5], LedgerFault)
    assert isinstance(written[9], ValueError)
    others = [each for n, each in enumerate(written) if n not in {5, 9}]
    assert others == [Written.IN_TIME] * (_MANY - 2)
    assert _finish(books, deliveries[5]) is Written.IN_TIME


def test_a_row_that_is_locked_holds_nobody_else(books: Books, database_url: str, ran: list[Executable]) -> None:
    """The others are claimed at once while somebody has it, and it alone waits until it is free."""
    messages = _accepted(books)
    ran.clear()
    with psycopg2.connect(database_url) as other, ThreadPoolExecutor(_MANY) as pool:
        other.cursor().execute("SELECT FROM deliveries WHERE id = 'evt-05' FOR UPDATE")
        with _gathered(books, books.ledger._claims, _MANY):
            asked = [pool.submit(books.ledger.claim, each) for each in messages]
        rest = [each.result() for n, each in enumerate(asked) if n != 5]
        assert all(isinstance(each, Delivery) for each in rest)
        assert not asked[5].done()
        other.rollback()
        assert isinstance(asked[5].result(), Delivery)
    other.close()
    assert ran == [books.ledger._claims._many, books.ledger._claims._one]


def test_a_statement_that_gets_no_lock_fails_only_whose_lock_it_is(database_url: str) -> None:
    """All ask again alone, and are claimed; the one that still gets none hears that the ledger is busy."""
    database = Database(f"{database_url}&options=-clock_timeout%3D100ms", connections=_MANY)
    books = Books(database, MultiFernet([Fernet(Fernet.generate_key())]), timedelta(days=30))
    messages = _accepted(books)
    with psycopg2.connect(database_url) as other:
        other.cursor().execute("INSERT INTO claims VALUES ('evt-05', gen_random_uuid(), now())")  # not yet committed
        came = _claims(books, messages)
        other.rollback()
    other.close()
    assert isinstance(came.pop(5), LedgerBusy)
    assert all(isinstance(each, Delivery) for each in came)
    assert books.row("evt-05").turn == 0
    database.dispose()


@pytest.fixture
def line(database_url: str) -> Iterator[Line]:
    """A way to the ledger that can be broken."""
    with Line(database_url) as line:
        yield line


@pytest.fixture
def far(line: Line) -> Iterator[Books]:
    """The ledger at the end of that line."""
    database = Database(line.url, connections=4, patience=timedelta(seconds=10))
    yield Books(database, MultiFernet([Fernet(Fernet.generate_key())]), timedelta(days=30))
    database.dispose()


def test_many_claims_whose_answer_was_lost_know_themselves(far: Books, line: Line) -> None:
    """Each is one attempt, of the thread that asked; and so is each finish."""
    messages = _accepted(far)
    line.lose_the_answer_to("UPDATE deliveries")
    deliveries = _claims(far, messages)
    assert line.lost.is_set()
    assert [(each.id, each.number) for each in deliveries] == [(message.id, 1) for message in messages]
    line.lose_the_answer_to("INSERT INTO attempts")
    assert _finishes(far, deliveries) == [Written.IN_TIME] * _MANY
    assert line.lost.is_set()
    assert far.sql("SELECT count(*) AS number FROM attempts")[0].number == _MANY


def test_a_statement_that_stands_still_holds_only_those_in_it(
    books: Books, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one waits for a lock, those who come later go ahead of it; and it does, when the lock is gone."""
    monkeypatch.setattr("webhooks.ledger.together._LONGEST_QUEUE_S", 0.1)
    messages = _accepted(books)
    with psycopg2.connect(database_url) as other, ThreadPoolExecutor(_MANY) as pool:
        other.cursor().execute("SELECT FROM deliveries WHERE id = 'evt-00' FOR UPDATE")
        first = pool.submit(books.ledger.claim, messages[0])
        wait_until(lambda: books.ledger._claims._out == 1, "the first statement is out")
        assert all(isinstance(each, Delivery) for each in pool.map(books.ledger.claim, messages[1:]))
        assert not first.done()
        other.rollback()
        assert isinstance(first.result(), Delivery)
    other.close()
    assert (books.ledger._claims._out, books.ledger._claims._queue) == (0, [])


def test_who_waits_is_bounded(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody whose time is over while another's statement is out asks nobody any more, and leaves no place taken."""
    message, *_ = _accepted(books)
    books.ledger._claims._out = 1
    with books.database.within(timedelta(seconds=0.05)), pytest.raises(Exception, match="ledger is busy"):
        books.ledger.claim(message)
    assert (books.ledger._claims._out, books.ledger._claims._queue) == (1, [])


def test_many_claims_write_no_entry_into_an_index(books: Books, database_url: str) -> None:
    """They stay within their rows' pages (HOT), as one does."""
    messages = _accepted(books)
    books.sql("SELECT pg_stat_reset_single_table_counters('deliveries'::regclass)")
    assert all(isinstance(each, Delivery) for each in _claims(books, messages))
    books.database.dispose()
    found = text("SELECT pg_stat_get_tuples_updated(oid) AS made, pg_stat_get_tuples_hot_updated(oid) AS hot "
                 "FROM pg_class WHERE relname = 'deliveries'")  # fmt: skip
    wait_until(lambda: books.database.rows(found)[0].made == _MANY, "all claims are counted")
    assert books.database.rows(found)[0].hot > 0.9 * _MANY


def test_a_forked_process_waits_for_nobody(books: Books) -> None:
    """Those who waited in its parent are not here, nor is what they had asked."""
    message, *_ = _accepted(books)
    books.ledger._claims._out = 1
    books.ledger._claims._begin_anew()
    assert isinstance(books.ledger.claim(message), Delivery)


def test_a_secret_is_decrypted_once_in_a_while_and_a_changed_one_at_once() -> None:
    """It goes by the encrypted bytes; after a few seconds, or when the key is another, nothing is known of it."""
    moment = [100.0]
    cipher = MultiFernet([Fernet(Fernet.generate_key())])
    first, second = cipher.encrypt(b"one"), cipher.encrypt(b"two")
    secrets = Decryption(cipher, now=lambda: moment[0])
    assert (secrets.decrypted(first), secrets.decrypted(second)) == ("one", "two")
    secrets._cipher = None  # type: ignore[assignment]
    assert (secrets.decrypted(first), secrets.decrypted(second)) == ("one", "two")
    assert "one" not in repr(secrets)
    moment[0] += 5
    with pytest.raises(AttributeError):
        secrets.decrypted(first)
