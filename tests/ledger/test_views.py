"""What operators read of the ledger: found, counted, by the minute, and as endpoints answered."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest
from sqlalchemy import text

from tests.ledger.books import Books
from webhooks.ledger import answering, counting
from webhooks.ledger.views import Wanted
from webhooks.model import Attempt, HeldFor, Outcome, Reason, State
from webhooks.policy.decisions import Budgets, Decision, Delivered, Failed


def carry(books: Books, event_id: str, decision: Decision, *, status: int | None, took_ms: int = 100) -> None:
    """Accept an event, and bring its delivery to an end by one attempt."""
    delivery = books.claim(books.accept(event_id))
    outcome = Outcome.DELIVERED if isinstance(decision, Delivered) else Outcome.REJECTED
    attempt = Attempt(1, delivery.started_at, timedelta(milliseconds=took_ms), outcome, status)
    books.ledger.finish(delivery, attempt, decision, Budgets(delivery.money, delivery.expires_at), queued=False)


@pytest.fixture
def some(books: Books) -> Books:
    """One delivery of each state at acme, and one held of somebody who is not registered."""
    books.register()
    carry(books, "sent", Delivered(), status=200, took_ms=20)
    carry(books, "gone", Failed(Reason.REJECTED), status=404, took_ms=80)
    books.hold(books.accept("held"))
    books.accept("due")
    books.hold(books.accept("strange", "nobody"))
    return books


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Wanted(), {"sent", "gone", "held", "due", "strange"}),
        (Wanted(merchant_id="nobody"), {"strange"}),
        (Wanted(endpoint_id="acme", state=State.HELD), {"held"}),
        (Wanted(endpoint_id="ep_none"), set()),
        (Wanted(held_for=HeldFor.BREAKER), {"held", "strange"}),
        (Wanted(held_for=HeldFor.ADDRESS), set()),
        (Wanted(reason=Reason.REJECTED), {"gone"}),
        (Wanted(money=False), set()),
        (Wanted(money=True, state=State.FAILED), {"gone"}),
        (Wanted(answer=404), {"gone"}),
        (Wanted(answer=200), {"sent"}),
        (Wanted(type="refund.completed", answer=500), set()),
    ],
)
def test_deliveries_are_chosen_by_what_is_known_of_them(some: Books, wanted: Wanted, expected: set[str]) -> None:
    """Each field narrows the list."""
    assert {item.id for item in some.views.deliveries(wanted, 10).items} == expected


def test_standing_says_how_many_there_are_of_everything(some: Books) -> None:
    """Held by cause, failed by reason and how many of them money, who holds them, and who of these is a stranger."""
    stands = some.views.standing()
    assert stands.by_state == {State.PENDING: 1, State.HELD: 2, State.DELIVERED: 1, State.FAILED: 1}
    assert (stands.held, stands.failed, stands.failed_money) == ({HeldFor.BREAKER: 2}, {Reason.REJECTED: 1}, 1)
    assert (stands.total, stands.is_about) == (5, False)
    assert {(each.merchant_id, each.number, each.registered) for each in stands.holders} == {
        ("acme", 1, True),
        ("nobody", 1, False),
    }
    assert stands.unregistered == ["nobody"]
    assert stands.most_overdue
    assert stands.most_overdue.delivery_id == "due"


def test_the_pace_tells_what_went_through(some: Books) -> None:
    """The last minute as it is now, and steps of one length for an hour and a day, whatever happened in them."""
    pace = some.views.pace()
    last = pace.last_minute
    assert (last.accepted, last.delivered, last.failed) == (5, 1, 1)
    assert last.lag is not None
    assert (len(pace.hour), len(pace.day)) == (60, 288)
    assert {each.lasts for each in pace.day} == {timedelta(minutes=5)}


def test_an_endpoints_answers_are_counted_and_timed(some: Books) -> None:
    """How many of its attempts were answered 2xx, how long an answer took, and what it holds and has failed."""
    for performance in (some.views.performance_at("acme"), some.views.performance_of("acme")):
        for answered in (performance.hour, performance.day):
            assert (answered.attempts, answered.delivered, answered.share) == (2, 1, 0.5)
            assert answered.median == timedelta(milliseconds=20)
        assert (performance.held, performance.failed) == ({HeldFor.BREAKER: 1}, {Reason.REJECTED: 1})
    assert some.views.performance_at("nobody").day.share is None


def test_the_last_answers_come_newest_first(some: Books) -> None:
    """As many as are asked for."""
    assert [each.status for each in some.views.last_answers("acme", 10)] == [404, 200]
    assert [each.status for each in some.views.last_answers("acme", 1)] == [404]


def test_a_delivery_is_found_by_what_its_event_carries(books: Books) -> None:
    """By its event's id, too."""
    books.accept("evt-1")
    assert [(each.delivery.id, each.field) for each in books.views.find("evt-1", 10)] == [("evt-1", "id")]
    assert books.views.find("evt-2", 10) == []


def test_an_attempt_whose_worker_died_is_its_endpoints_too(books: Books) -> None:
    """Of unknown outcome at first; what is written down late of it is no further one."""
    books.register()
    delivery = books.claim(books.accept())
    books.age(timedelta(minutes=1))
    books.backlog.suspect()
    books.age(timedelta(minutes=1))
    assert books.backlog.bury() == 1
    assert [each.outcome for each in books.views.last_answers("acme", 10)] == [Outcome.UNKNOWN]
    assert not books.finish(delivery, Outcome.DELIVERED, Delivered())
    assert [each.outcome for each in books.views.last_answers("acme", 10)] == [Outcome.DELIVERED]


def test_a_late_attempt_that_nobody_wrote_down_is_its_endpoints_too(books: Books) -> None:
    """As when the delivery was taken away by hand in between."""
    books.register()
    delivery = books.claim(books.accept())
    books.sql("UPDATE deliveries SET turn = turn + 1, sending_since = NULL")
    assert not books.finish(delivery, Outcome.UNAVAILABLE, Delivered())
    assert [each.outcome for each in books.views.last_answers("acme", 10)] == [Outcome.UNAVAILABLE]


def test_of_a_busy_endpoint_the_last_answers_are_looked_at(some: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    """As far back as that goes, and it says since when."""
    monkeypatch.setattr(answering, "MOST_ANSWERS", 1)
    day = some.views.performance_at("acme").day
    assert (day.attempts, day.delivered) == (1, 0)
    assert day.since == some.views.last_answers("acme", 1)[0].started_at


def test_what_is_many_is_told_about(some: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows than are counted are estimated; what is known one by one is never more than all there is."""
    monkeypatch.setattr(counting, "MOST_COUNTED", 3)
    monkeypatch.setattr(counting, "_FIRST_ROWS", text("SELECT 4 AS number"))
    some.sql("ANALYZE deliveries")
    stands = some.views.standing()
    assert (stands.total, stands.delivered, stands.is_about) == (5, 1, True)


def test_a_replay_goes_on_where_it_has_come_to(books: Books) -> None:
    """The next batch does not look at what lies before; without that, it begins with the oldest."""
    books.register()
    for number in range(4):
        carry(books, f"evt-{number}", Failed(Reason.REJECTED), status=404)
    now = books.views.now()
    again = partial(books.replays.replay_some, Wanted(), again=False, finished_before=now + timedelta(hours=1), most=1)
    first = again()
    second = again(reached=first.reached)
    assert (first.ids, second.ids) == (["evt-0"], ["evt-1"])
    books.sql(
        "UPDATE deliveries SET state = 'failed', reason = 'rejected', finished_at = now(), held_for = NULL"
        " WHERE id = 'evt-0'"
    )
    assert again(reached=second.reached).ids == ["evt-2"]
    assert again().ids == ["evt-0"]
