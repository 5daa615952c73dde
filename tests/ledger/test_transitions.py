"""Every way of a delivery from state to state, tried from every state on a real table."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.ledger.books import Books
from webhooks.ledger import transitions
from webhooks.ledger.removal import cancel_some
from webhooks.ledger.transitions import Transition
from webhooks.model import Delivery, Ladder, Message, Outcome, Reason
from webhooks.policy.decisions import Decision, Delivered, Failed, RetryAt

WAITING, SENT, HELD, DELIVERED, FAILED = STATES = ("waiting", "being sent", "held", "delivered", "failed")
A_SECOND = timedelta(seconds=1)


def begin(books: Books) -> None:
    """Have one delivery in each state; its id, its event's and its merchant's are the state's name."""
    for state in STATES:
        books.register(state)
        message = books.accept(state.replace(" ", "-"), state)
        if state == HELD:
            assert books.hold(message)
        elif state != WAITING:
            delivery = books.claim(message)
            if state == DELIVERED:
                assert books.finish(delivery, Outcome.DELIVERED, Delivered())
            elif state == FAILED:
                assert books.finish(delivery, Outcome.REJECTED, Failed(Reason.REJECTED))


def standing(row: Any) -> str:
    """Say in which state a row is."""
    return (SENT if row.sending_since else WAITING) if row.state == "pending" else str(row.state)


def rows(books: Books) -> dict[str, Any]:
    """Return the row of each delivery, by the state in which it began."""
    return {row.merchant_id: row for row in books.sql("SELECT * FROM deliveries")}


def message_of(row: Any) -> Message:
    """Return a message of this very turn, so that nothing but the state can refuse it."""
    return Message(row.id, row.merchant_id, row.type, row.turn, row.accepted_at)


def delivery_of(row: Any) -> Delivery:
    """Return what a worker holds that has claimed this very turn."""
    names = ("id", "event_id", "merchant_id", "endpoint_id", "type", "turn", "money", "due_at", "expires_at")
    budgets = ("fast_spent", "slow_spent", "slow_since")
    same: dict[str, Any] = {name: getattr(row, name) for name in (*names, *budgets)}
    started_at = row.sending_since or row.accepted_at
    return Delivery(**same, number=max(row.attempts, 1), started_at=started_at, url="", secret="", body=b"")


def suspect_and_bury(books: Books, _row: Any) -> None:
    """Let leases run out, and take back what nobody has written down."""
    for _ in range(2):
        books.sql("UPDATE claims SET ends_at = now()")
        books.backlog.suspect()
    books.sql("UPDATE claims SET ends_at = now()")
    books.backlog.bury()


def expire(books: Books, _row: Any) -> None:
    """Let all be past their age."""
    books.sql("UPDATE deliveries SET expires_at = now()")
    books.backlog.expire()


def publish(books: Books, _row: Any) -> None:
    """Look for what is due within a day."""
    books.backlog.due(10, ahead=timedelta(days=1), still_queued_from=None)


def remove(books: Books, row: Any) -> None:
    """Take the endpoint away, and nothing more."""
    if books.merchants.find(row.endpoint_id):
        books.merchants.remove(row.endpoint_id)


def removed_under_the_sweep(books: Books, row: Any) -> None:
    """The sweep meets what is held for an endpoint that is gone."""
    remove(books, row)
    books.backlog.end_removed([row.endpoint_id])


def removed_by_hand(books: Books, row: Any) -> None:
    """An operator ends what is unfinished."""
    remove(books, row)
    cancel_some(books.database, row.endpoint_id)


def removed_under_a_worker(books: Books, row: Any) -> None:
    """A worker meets a message for an endpoint that is gone."""
    remove(books, row)
    books.ledger.end_removed(message_of(row))


def late(outcome: Outcome) -> Callable[[Books, Any], object]:
    """A worker whose claim was given up, and of which somebody else may have the delivery now, has an answer."""

    def answer(books: Books, row: Any) -> None:
        before = replace(delivery_of(row), turn=row.turn - 1, number=row.attempts + 7)
        decision = Delivered() if outcome is Outcome.DELIVERED else RetryAt(row.accepted_at, Ladder.FAST)
        assert not books.finish(before, outcome, decision)

    return answer


@dataclass(frozen=True)
class Way:
    """What is tried, from where it leads on and where to, and whether it makes every message stale."""

    transition: Callable[..., Transition]
    tried: Callable[[Books, Any], object]
    leads: Mapping[str, str]
    turns: bool = True


def finish(outcome: Outcome, decision: Decision) -> Callable[[Books, Any], object]:
    """A worker writes down how its attempt went; what it is not sending has another way, see `late`."""

    def write(books: Books, row: Any) -> None:
        if row.sending_since or outcome is not Outcome.DELIVERED:
            books.finish(delivery_of(row), outcome, decision)

    return write


SOME_TIME = datetime(2026, 1, 31, tzinfo=UTC)
UNDER_WAY = {WAITING: FAILED, HELD: FAILED}

WAYS = {
    "a claim": Way(transitions.claimed, lambda books, row: books.ledger.claim(message_of(row)), {WAITING: SENT}),
    "a hold": Way(transitions.held, lambda books, row: books.hold(message_of(row)), {WAITING: HELD}),
    "a release": Way(
        transitions.released, lambda books, row: books.backlog.release({row.endpoint_id: 9}), {HELD: WAITING}
    ),
    "a probe": Way(
        transitions.released, lambda books, row: books.backlog.release_probes([row.endpoint_id]), {HELD: WAITING}
    ),
    "a sweep": Way(transitions.published, publish, {WAITING: WAITING}, turns=False),
    "no message": Way(
        transitions.unqueued, lambda books, row: books.ledger.unqueue(row.id, row.turn), {WAITING: WAITING}, turns=False
    ),
    "no messages": Way(
        transitions.unqueued, lambda books, row: books.backlog.leave([message_of(row)]), {WAITING: WAITING}, turns=False
    ),
    "a 2xx": Way(transitions.finished, finish(Outcome.DELIVERED, Delivered()), {SENT: DELIVERED}, turns=False),
    "a 4xx": Way(transitions.finished, finish(Outcome.REJECTED, Failed(Reason.REJECTED)), {SENT: FAILED}, turns=False),
    "a 5xx": Way(
        transitions.finished,
        finish(Outcome.UNAVAILABLE, RetryAt(SOME_TIME, Ladder.FAST)),
        {SENT: WAITING},
        turns=False,
    ),
    "a late 2xx": Way(
        transitions.delivered_late, late(Outcome.DELIVERED), {WAITING: DELIVERED, SENT: DELIVERED, HELD: DELIVERED}
    ),
    "a late 5xx": Way(transitions.delivered_late, late(Outcome.UNAVAILABLE), {}),
    "a fault of ours": Way(
        transitions.handed_back, lambda books, row: books.ledger.hand_back(row.id, row.turn, A_SECOND), {SENT: WAITING}
    ),
    "a dead worker": Way(transitions.buried, suspect_and_bury, {SENT: WAITING}),
    "30 days": Way(transitions.expired, expire, UNDER_WAY),
    "a cancel": Way(transitions.cancelled, lambda books, row: books.replays.cancel([row.id]), UNDER_WAY),
    "a removal": Way(transitions.cancelled, removed_by_hand, UNDER_WAY),
    "a removal and a message": Way(transitions.cancelled, removed_under_a_worker, UNDER_WAY),
    "a removal and a sweep": Way(transitions.cancelled, removed_under_the_sweep, {HELD: FAILED}),
    "a replay": Way(
        transitions.replayed, lambda books, row: books.replays.replay([row.id], again=False), {FAILED: HELD}
    ),
    "a replay again": Way(
        transitions.replayed,
        lambda books, row: books.replays.replay([row.id], again=True),
        {DELIVERED: HELD, FAILED: HELD},
    ),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_way_leads_where_it_should_and_from_nowhere_else(books: Books, way: Way) -> None:
    """Each delivery that may go it is where it leads, by one turn if somebody took it; the others are as they were."""
    begin(books)
    prepared = rows(books)
    for row in prepared.values():
        way.tried(books, row)
    after = rows(books)
    assert {state: standing(after[state]) for state in STATES} == {**{state: state for state in STATES}, **way.leads}
    moved = {state: after[state].turn - prepared[state].turn for state in STATES}
    assert moved == {state: int(state in way.leads and way.turns) for state in STATES}
    untouched = [state for state in STATES if state not in way.leads]
    assert [facts(after[state]) for state in untouched] == [facts(prepared[state]) for state in untouched]
    assert all(facts(after[state]) != facts(prepared[state]) for state in way.leads)


def facts(row: Any) -> dict[str, Any]:
    """Return a row without the times that a test sets to bring the sweep about."""
    return {name: value for name, value in row._asdict().items() if name != "expires_at"}


def test_every_way_is_tried() -> None:
    """A transition that is added has its line in the table above."""
    named = {
        function
        for name, function in inspect.getmembers(transitions, inspect.isfunction)
        if not name.startswith("_") and inspect.signature(function).return_annotation == "Transition"
    }
    assert {way.transition for way in WAYS.values()} == named
    assert len(named) == 12


def test_only_a_replay_leads_away_from_an_end() -> None:
    """What was delivered or has failed stays so, whatever else happens (I8)."""
    assert {way.transition for way in WAYS.values() if {DELIVERED, FAILED} & way.leads.keys()} == {transitions.replayed}
