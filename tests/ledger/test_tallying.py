"""What went through is counted minute by minute: each once, also after an outage, and what came late is not lost."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tests.ledger.books import Books
from tests.ledger.test_views import carry
from webhooks.ledger.tallying import KEPT
from webhooks.model import Reason
from webhooks.policy.decisions import Delivered, Failed

_MINUTE = timedelta(minutes=1)


def some_minutes_ago(books: Books, minutes: int) -> None:
    """Have one delivery accepted, sent 3 s too late and delivered, and one failed, in the middle of that minute."""
    books.register()
    carry(books, f"sent-{minutes}", Delivered(), status=200)
    carry(books, f"gone-{minutes}", Failed(Reason.REJECTED), status=404)
    moment = "date_trunc('minute', now()) - :ago + interval '30 s'"
    values = {"ago": minutes * _MINUTE, "like": f"%-{minutes}"}
    books.sql(
        f"UPDATE deliveries SET accepted_at = {moment}, due_at = {moment}, finished_at = {moment} WHERE id LIKE :like",
        **values,
    )
    books.sql(f"UPDATE attempts SET started_at = {moment} + interval '3 s' WHERE delivery_id LIKE :like", **values)


def tallied(books: Books) -> list[tuple[Any, ...]]:
    """Return the minutes in which something happened: how long ago, and what."""
    rows = books.sql("SELECT date_trunc('minute', now()) - minute AS ago, tallies.* FROM tallies ORDER BY minute")
    return [(r.ago // _MINUTE, r.accepted, r.delivered, r.failed, r.lag) for r in rows if r.accepted or r.delivered]


def test_a_minute_that_is_over_is_counted_once_however_often(books: Books) -> None:
    """The one that goes on is not counted yet."""
    some_minutes_ago(books, 2)
    some_minutes_ago(books, 0)
    while books.tallying.tally() > 10:
        pass
    counted = [(2, 2, 1, 1, timedelta(seconds=3))]
    assert tallied(books) == counted
    books.tallying.tally()
    assert tallied(books) == counted


def test_what_commits_late_is_counted_all_the_same(books: Books) -> None:
    """A producer's transaction says when an event was accepted, and may end after that minute was counted."""
    while books.tallying.tally() > 10:
        pass
    some_minutes_ago(books, 2)
    books.tallying.tally()
    assert tallied(books) == [(2, 2, 1, 1, timedelta(seconds=3))]


def test_after_an_outage_it_catches_up(books: Books) -> None:
    """By two hours each time, so that no time takes long; no minute is left out."""
    while books.tallying.tally() > 10:
        pass
    books.sql("DELETE FROM tallies WHERE minute > now() - interval '5 hours'")
    some_minutes_ago(books, 250)
    taken = []
    while (number := books.tallying.tally()) > 10:
        taken.append(number)
    assert max(taken) == 120
    assert tallied(books) == [(250, 2, 1, 1, timedelta(seconds=3))]
    (row,) = books.sql("SELECT count(*) AS number, max(minute) - min(minute) AS span FROM tallies")
    assert row.span == (row.number - 1) * _MINUTE


def test_long_past_minutes_are_forgotten(books: Books) -> None:
    """Whatever was counted in them."""
    old = "INSERT INTO tallies (minute, accepted, delivered, failed) VALUES (now() - :ago, 1, 1, 0)"
    books.sql(old, ago=KEPT + _MINUTE)
    books.tallying.tally()
    assert tallied(books) == []


def test_what_is_held_for_a_while_is_not_late(books: Books) -> None:
    """A breaker's pause is no lag: it is told of what went its way without being held."""
    books.register()
    message = books.accept("evt-1")
    books.hold(message)
    assert books.backlog.release({"acme": 1})["acme"]
    books.sql("UPDATE deliveries SET sending_since = now(), turn = turn + 1, attempts = 1")
    books.sql("UPDATE deliveries SET state = 'delivered', finished_at = now(), sending_since = NULL, sweep_at = NULL")
    books.sql("INSERT INTO attempts (delivery_id, number, started_at, outcome) VALUES ('evt-1', 1, now(), 'delivered')")
    last = books.views.pace().last_minute
    assert (last.delivered, last.lag) == (1, None)


def test_the_picture_has_what_is_counted_and_what_is_not_yet(books: Books) -> None:
    """An hour by the minute, a day by five minutes; a minute that nobody has counted yet is counted as it is read."""
    some_minutes_ago(books, 30)
    some_minutes_ago(books, 1)
    before = books.views.pace()
    assert sum(each.accepted for each in before.hour) == 2
    while books.tallying.tally() > 10:
        pass
    pace = books.views.pace()
    assert [(60 - at, each.accepted) for at, each in enumerate(pace.hour) if each.accepted] == [(30, 2), (1, 2)]
    assert sum(each.accepted for each in pace.day) == 4
    assert pace.day[-1].lag == timedelta(seconds=3)
