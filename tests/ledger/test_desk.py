"""The desk: what failed and nobody has dealt with, and what people do about it."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from tests.command import done
from tests.ledger.books import Books
from tests.ledger.explained import Explained
from tests.ledger.test_schema import start_over
from tests.system import System
from webhooks import parts
from webhooks.errors import NotPossible
from webhooks.ledger.database import unlimited
from webhooks.ledger.desk import Dealings, Desk, Group, Numbers, OnDesk
from webhooks.ledger.replays import Verdict
from webhooks.ledger.side_tables import every_table as metadata
from webhooks.model import Message, Outcome, Reason
from webhooks.policy.decisions import Failed

A_DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def _merchants(books: Books) -> None:
    for merchant_id in ("acme", "bolt"):
        books.register(merchant_id)


def on_desk(books: Books, **wanted: Any) -> list[str]:
    """Return the ids of what is on the desk, in its order."""
    return [each.id for each in books.desk.deliveries(OnDesk(**wanted), 100).items]


def fail_again(books: Books, delivery_id: str = "evt-1") -> None:
    """Send a failed delivery again, which fails once more."""
    assert books.replays.replay([delivery_id], again=False) == [Verdict(delivery_id)]
    books.sql(
        "UPDATE deliveries SET state = 'pending', held_for = NULL, sweep_at = now() WHERE id = :id", id=delivery_id
    )
    row = books.row(delivery_id)
    again = books.claim(Message(row.id, row.merchant_id, row.type, row.turn, row.due_at))
    assert books.finish(again, Outcome.REJECTED, Failed(Reason.SLOW_EXHAUSTED))


def test_the_desk_holds_what_failed_and_nothing_else(books: Books) -> None:
    """Neither what goes on, nor what an operator cancelled or dismissed, nor what was pruned."""
    for name in ("failed", "dismissed", "pruned"):
        books.fail(name)
    books.accept("pending")
    books.accept("cancelled")
    books.replays.cancel(["cancelled"])
    assert books.desk.dismiss("anna", ["dismissed"], "paid by hand") == [Verdict("dismissed")]
    books.sql("UPDATE deliveries SET pruned = true WHERE id = 'pruned'")
    assert on_desk(books) == ["failed"]
    assert set(on_desk(books, all=True)) == {"failed", "dismissed", "cancelled"}
    assert books.desk.numbers().open == books.desk.groups().items[0].number == 1
    assert books.row("dismissed").state == "failed"


def test_what_failed_is_counted_by_merchant_and_reason_money_first(books: Books) -> None:
    """A group says how many, how many nobody has seen, since when, and shows one with its answer."""
    books.fail("old", "bolt", money=False)
    books.age(A_DAY)
    books.fail("paid-1", reason=Reason.SLOW_EXHAUSTED)
    books.age(A_DAY)
    books.fail("paid-2", reason=Reason.SLOW_EXHAUSTED)
    books.fail("plain", reason=Reason.SLOW_EXHAUSTED, money=False)
    books.sql("UPDATE attempts SET status = 422, cause = 'c', excerpt = 'no' WHERE delivery_id = 'paid-2'")
    books.desk.note("anna", ["paid-1"], "called them")
    found = books.desk.groups()
    first, second, third = (books.row(name).finished_at for name in ("old", "paid-1", "plain"))
    assert found.items == [
        Group("acme", Reason.SLOW_EXHAUSTED, 3, 2, 2, second, third, "paid-2", 422, "c", "no"),
        Group("bolt", Reason.REJECTED, 1, 0, 1, first, first, "old", None, None, None),
    ]
    assert books.desk.numbers() == Numbers(
        open=4,
        money=2,
        unseen=3,
        money_unseen=1,
        oldest=first,
        by_reason={Reason.SLOW_EXHAUSTED: 3, Reason.REJECTED: 1},
    )


def test_only_so_many_groups_are_told_and_how_many_more_there_are(books: Books) -> None:
    """A merchant whose only failure is no money does not push out one whose is."""
    books.fail("plain", money=False)
    books.fail("paid", "bolt")
    found = books.desk.groups(most=1)
    assert ([each.merchant_id for each in found.items], found.left_out) == (["bolt"], 1)


def test_an_empty_desk_is_empty(books: Books) -> None:
    """There is nothing to count and nothing to list."""
    assert books.desk.numbers() == Numbers(0, 0, 0, 0, None, {})
    assert (books.desk.groups().items, on_desk(books)) == ([], [])


def test_the_list_is_narrowed(books: Books) -> None:
    """By merchant, reason, money and when it failed; money comes first, then the newest."""
    books.fail("paid")
    books.fail("plain", money=False)
    books.age(A_DAY)
    books.fail("paid-bolt", "bolt", Reason.EXPIRED)
    books.fail("plain-bolt", "bolt", money=False)
    assert on_desk(books) == ["paid-bolt", "paid", "plain-bolt", "plain"]
    assert on_desk(books, merchant_id="acme") == ["paid", "plain"]
    assert on_desk(books, reason=Reason.EXPIRED) == ["paid-bolt"]
    assert on_desk(books, money=False) == ["plain-bolt", "plain"]
    assert on_desk(books, failed_before=books.row("paid-bolt").finished_at) == ["paid", "plain"]


def test_the_list_goes_on_where_it_ended(books: Books) -> None:
    """Page by page each is listed once, also when the last of a page has left the desk meanwhile."""
    for number in range(5):
        books.fail(f"evt-{number}", money=number > 2)
    listed, after = [], None
    while True:
        page = books.desk.deliveries(OnDesk(), 2, after)
        listed += [each.id for each in page.items]
        books.desk.dismiss("anna", [page.items[-1].id], "dealt with")
        if page.next is None:
            break
        after = page.next
    assert listed == ["evt-4", "evt-3", "evt-2", "evt-1", "evt-0"]


@pytest.mark.parametrize("cursor", ["", "evt-1", "m1764720000000000-", "x1-evt-1", "m999999999999999999-evt-1"])
def test_what_is_no_place_in_the_list_is_refused(books: Books, cursor: str) -> None:
    """It was cut off, or is an id: nobody is left with a page that only looks like the next."""
    with pytest.raises(NotPossible, match="no place in the list"):
        books.desk.deliveries(OnDesk(), 2, cursor)


def test_a_note_makes_seen_and_stays_with_the_delivery(books: Books) -> None:
    """Notes are kept in their order, with who wrote them; the last is listed; an unknown delivery is refused."""
    books.fail()
    assert books.desk.note("anna", ["evt-1", "nothing"], "called them") == [
        Verdict("evt-1"),
        Verdict("nothing", "there is no such delivery"),
    ]
    books.desk.note("bert", ["evt-1"], "they fix it")
    found = books.desk.dealings("evt-1")
    assert (found.seen, found.dismissed) == (True, False)
    assert [(note.who, note.text) for note in found.notes] == [("anna", "called them"), ("bert", "they fix it")]
    (listed,) = books.desk.deliveries(OnDesk(), 10).items
    assert (listed.seen, listed.note) == (True, "they fix it")
    assert books.desk.dealings("nothing") == Dealings(seen=False, dismissed=False, notes=[])


def test_what_was_dismissed_says_by_whom_and_why(books: Books) -> None:
    """It counts as seen; the note stays whatever becomes of the delivery."""
    books.fail()
    books.desk.dismiss("anna", ["evt-1"], "dismissed: paid by hand")
    found = books.desk.dealings("evt-1")
    assert (found.seen, found.dismissed) == (True, True)
    assert [(note.who, note.text) for note in found.notes] == [("anna", "dismissed: paid by hand")]
    (listed,) = books.desk.deliveries(OnDesk(all=True), 10).items
    assert (listed.seen, listed.dismissed) == (True, True)


@pytest.mark.parametrize("what", ["note", "dismiss"])
def test_what_fails_again_is_back_on_the_desk_unseen(books: Books, what: str) -> None:
    """What somebody knew of the first failure says nothing of the second; the notes are kept."""
    books.fail()
    getattr(books.desk, what)("anna", ["evt-1"], "their server was down")
    fail_again(books)
    (listed,) = books.desk.deliveries(OnDesk(), 10).items
    assert (listed.reason, listed.seen, listed.dismissed) == (Reason.SLOW_EXHAUSTED, False, False)
    assert listed.note == "their server was down"
    assert books.desk.numbers().unseen == 1


def test_what_is_not_on_the_desk_is_not_dismissed(books: Books) -> None:
    """Each is told why; nothing of it changes, and no note is written."""
    books.accept("pending")
    for name in ("cancelled", "dismissed", "pruned"):
        books.fail(name)
    books.sql("UPDATE deliveries SET reason = 'cancelled' WHERE id = 'cancelled'")
    books.sql("UPDATE deliveries SET pruned = true WHERE id = 'pruned'")
    books.desk.dismiss("anna", ["dismissed"], "first")
    before = books.sql("SELECT * FROM deliveries ORDER BY id")
    assert books.desk.dismiss("bert", ["pending", "cancelled", "dismissed", "pruned", "nothing", "nothing"], "no") == [
        Verdict("pending", "it is pending, not failed"),
        Verdict("cancelled", "an operator cancelled it: it is not on the desk"),
        Verdict("dismissed", "it was dismissed already"),
        Verdict("pruned", "it has been pruned: it is not on the desk any more"),
        Verdict("nothing", "there is no such delivery"),
    ]
    assert books.sql("SELECT * FROM deliveries ORDER BY id") == before
    assert [row.who for row in books.sql("SELECT who FROM notes")] == ["anna"]


def test_what_was_dismissed_by_mistake_is_put_back(books: Books) -> None:
    """It is on the desk as before, seen, with a note of who did so; what was never dismissed is told why not."""
    books.accept("pending")
    for name in ("wrong", "open", "pruned", "again"):
        books.fail(name)
    books.desk.dismiss("anna", ["wrong", "pruned", "again"], "dismissed: paid")
    books.sql("UPDATE deliveries SET pruned = true WHERE id = 'pruned'")
    fail_again(books, "again")
    assert books.desk.reopen("bert", ["wrong", "open", "pruned", "again", "pending", "nothing", "wrong"], "no") == [
        Verdict("wrong"),
        Verdict("open", "it was not dismissed"),
        Verdict("pruned", "it has been pruned: it is not on the desk any more"),
        Verdict("again", "it was not dismissed"),
        Verdict("pending", "it is pending, not failed"),
        Verdict("nothing", "there is no such delivery"),
    ]
    assert set(on_desk(books)) == {"wrong", "open", "again"}
    found = books.desk.dealings("wrong")
    assert (found.seen, found.dismissed) == (True, False)
    assert [(note.who, note.text) for note in found.notes] == [("anna", "dismissed: paid"), ("bert", "no")]
    assert books.desk.dismiss("anna", ["wrong"], "dismissed: now it is paid") == [Verdict("wrong")]


def test_notes_go_with_the_attempts_that_they_are_about(books: Books) -> None:
    """Once a failed delivery is pruned; what is noted of others stays."""
    books.fail("old")
    books.age(timedelta(days=181))
    books.fail("young")
    books.desk.note("anna", ["old", "young"], "called them")
    assert books.pruning.prune() == 1
    assert [row.delivery_id for row in books.sql("SELECT delivery_id FROM notes")] == ["young"]
    assert on_desk(books) == ["young"]


_MANY = """
INSERT INTO deliveries (id, event_id, merchant_id, endpoint_id, type, money, state, reason,
    due_at, accepted_at, expires_at, finished_at)
SELECT name, name, merchant, merchant, 'a.b', number % 40 = 0, CASE WHEN failed THEN 'failed' ELSE 'delivered' END,
    CASE WHEN failed THEN 'rejected' END, now(), now(), now(), now()
FROM (SELECT number, 'many-' || number AS name, 'm' || number % 700 AS merchant, number % 20 = 0 AS failed
    FROM generate_series(1, 20000) AS number) AS made
"""


def test_the_desk_is_read_by_its_own_index(books: Books) -> None:
    """However many deliveries there are: none but those on the desk are looked at, and rows only of those listed."""
    books.sql(_MANY)
    with unlimited(books.database.engine.connect()) as connection:
        connection.exec_driver_sql("VACUUM ANALYZE deliveries")
    explained = Explained(books.database)
    desk = Desk(explained)
    assert desk.numbers().open == 1000
    assert len(desk.groups().items) == 35
    page = desk.deliveries(OnDesk(), 10)
    desk.deliveries(OnDesk(), 10, page.next)
    desk.deliveries(OnDesk("m0", Reason.REJECTED), 10)
    desk.deliveries(OnDesk(money=False), 10)
    assert desk.count(OnDesk("m0", Reason.REJECTED)) == 28
    assert len(explained.plans) == 7
    for plan in explained.plans:
        assert re.search("Index Only Scan (Backward )?using deliveries_on_desk on deliveries", plan)
        assert "Seq Scan on deliveries" not in plan
        assert not {"deliveries_to_replay", "deliveries_to_prune", "deliveries_of_merchant"} & set(plan.split())


def test_tables_of_the_revision_before_get_a_desk_in_place(system: System) -> None:
    """What failed before lies on it, unseen; what an upgrade that was cut off left behind is built anew."""
    start_over(system, "0007")
    system.sql(
        "INSERT INTO deliveries (id, event_id, merchant_id, endpoint_id, type, money, state, reason,"
        " due_at, accepted_at, expires_at, finished_at)"
        " SELECT name, name, 'acme', 'acme', 'a.b', true, 'failed', 'expired', now(), now(), now(), now()"
        " FROM unnest(ARRAY['evt-1', 'evt-2']) AS name"
    )
    system.sql("ALTER TABLE deliveries ADD COLUMN seen_at timestamptz, ADD COLUMN dismissed_at timestamptz")
    system.sql("CREATE INDEX deliveries_on_desk ON deliveries (merchant_id)")
    done("db", "upgrade")
    with parts.database().engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    (index,) = system.sql("SELECT pg_get_indexdef('deliveries_on_desk'::regclass) AS written")
    assert "finished_at, id) INCLUDE (seen_at) WHERE" in index.written
    numbers = parts.desk().numbers()
    assert (numbers.open, numbers.unseen) == (2, 2)
