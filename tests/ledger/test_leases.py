"""A lease is a row: one holder at a time, nobody for long, and it tells when the work was last done."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from sqlalchemy import literal, text

from tests.ledger.books import Books
from webhooks.demo.stage import wait_until
from webhooks.errors import LedgerUnavailable
from webhooks.ledger.leases import Lease, Pulse

A_MINUTE = timedelta(minutes=1)


def gets(lease: Lease, rest: timedelta = timedelta()) -> bool:
    """Take a lease and do its work, if it is free."""
    with lease.alone(rest) as term:
        return term is not None


def test_one_at_a_time(books: Books) -> None:
    """While one has it another gets nothing; when its work is done the next does at once, and the time is told."""
    lease, pulse = Lease(books.database, "work"), Pulse(books.database)
    assert pulse.last_done("work").ago is None
    with lease.alone() as term:
        assert term
        assert not gets(lease)
        assert pulse.last_done("work").ago is None
    done = pulse.last_done("work")
    assert done.ago is not None
    assert timedelta() <= done.ago < A_MINUTE
    assert gets(lease)


def test_no_session_keeps_it(books: Books) -> None:
    """All sessions end while it is held: it is held all the same, and can be given back over a new one."""
    lease = Lease(books.database, "work")
    with lease.alone():
        books.database.dispose()
        assert not gets(lease)
        assert not books.sql("SELECT 1 FROM pg_locks WHERE locktype = 'advisory'")
    assert gets(lease)


def test_a_frozen_holder_loses_it(books: Books) -> None:
    """After the lease's time another gets it; the first, when it goes on, says that it is done and takes nothing."""
    frozen, other = Lease(books.database, "work", lasts=timedelta(seconds=0.2)), Lease(books.database, "work")
    with frozen.alone():
        with other.alone() as early:
            assert early is None
        books.sql("UPDATE leases SET ends_at = now()")
        with other.alone() as late:
            assert late
            books.sql("UPDATE leases SET finished_at = NULL")
            assert not gets(frozen)
    assert Pulse(books.database).last_done("work").finished_at


def test_what_failed_is_not_done(books: Books) -> None:
    """Work that ends in an error gives the lease back at once, and was not done."""
    lease = Lease(books.database, "work")
    with pytest.raises(LedgerUnavailable), lease.alone():
        raise LedgerUnavailable("away")
    assert Pulse(books.database).last_done("work").finished_at is None
    assert gets(lease, rest=A_MINUTE)


def test_what_was_just_done_is_not_done_again(books: Books) -> None:
    """Five hundred ticks in a burst do the work once; after the rest it is done again."""
    lease = Lease(books.database, "work")
    assert [gets(lease, rest=A_MINUTE) for _ in range(500)] == [True] + [False] * 499
    books.sql("UPDATE leases SET finished_at = finished_at - interval '61 seconds'")
    assert gets(lease, rest=A_MINUTE)


def test_a_ledger_whose_clock_was_set_back(books: Books) -> None:
    """Moments an hour ahead, written before the clock was set back, stop nobody for an hour."""
    lease = Lease(books.database, "work")
    assert gets(lease)
    books.sql("UPDATE leases SET ends_at = now() + interval '1 hour', finished_at = now() + interval '1 hour'")
    assert gets(lease, rest=A_MINUTE)


def test_long_work_renews(books: Books) -> None:
    """Work that goes on renews its lease; what is quickly done sends no statement for it."""
    lease = Lease(books.database, "work", lasts=timedelta(seconds=0.3))
    ends_at = "SELECT ends_at FROM leases"
    with lease.alone() as term:
        assert term
        before = books.sql(ends_at)[0].ends_at
        term.renew()
        assert books.sql(ends_at)[0].ends_at == before

        def is_renewed() -> bool:
            term.renew()
            return bool(books.sql(ends_at)[0].ends_at > before)

        wait_until(is_renewed, "it is renewed")


def test_a_question_is_answered_by_the_way(books: Books) -> None:
    """The statement that takes a lease answers what its holder wants to know first."""
    for answer in (True, False):
        with Lease(books.database, "work", asking=literal(answer)).alone() as term:
            assert term
            assert term.asked is answer


def test_whether_the_ledger_takes_writes(books: Books) -> None:
    """A written row that is confirmed; sessions that only read say so, and a commit that hangs is given up."""
    pulse = Pulse(books.database)
    pulse.check_write()
    with books.database.engine.connect() as other:
        transaction = other.execution_options(isolation_level="READ COMMITTED").begin()
        other.execute(text("SELECT 1 FROM leases FOR UPDATE"))
        with pytest.raises(LedgerUnavailable, match="it confirmed nothing in time"):
            pulse.check_write(within=timedelta(seconds=0.2))
        transaction.rollback()
    pulse.check_write()
    name = books.sql("SELECT current_database()")[0][0]
    books.sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    books.database.dispose()
    with pytest.raises(LedgerUnavailable, match="read-only"):
        pulse.check_write()
    assert "webhooks-late" not in {thread.name for thread in threading.enumerate()}
