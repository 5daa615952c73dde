"""Single statements that keep the promises: turns, leases, finality, ages."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.ledger.books import RECOVER_AFTER, Books
from webhooks.accepting import reading
from webhooks.errors import WebhooksError
from webhooks.ledger.backlog import HeldEndpoints
from webhooks.ledger.holding import Holding
from webhooks.ledger.views import Wanted
from webhooks.model import NO_LIMITS, Delivery, HeldFor, Ladder, Outcome, Reason, State, Unclaimed
from webhooks.policy.decisions import Delivered, Failed, RetryAt

A_SECOND = timedelta(seconds=1)
LEASE = timedelta(seconds=15)
EVENT = {"id": "evt-1", "type": "refund.completed", "merchant_id": "acme"}


def test_a_claim_makes_every_other_message_stale(books: Books) -> None:
    """Of two messages of one turn the second finds nothing, while the first is being sent and after it (I3)."""
    books.register()
    message = books.accept()
    delivery = books.claim(message)
    assert books.ledger.claim(message) is Unclaimed.STALE
    books.finish(delivery, Outcome.UNAVAILABLE, RetryAt(delivery.started_at, Ladder.FAST))
    assert books.ledger.claim(message) is Unclaimed.STALE
    assert books.claim(replace(message, turn=delivery.turn)).number == 2


def test_a_claim_before_its_time_is_refused(books: Books) -> None:
    """A worker whose clock is ahead shortens no wait: the sweep publishes the delivery again when it is due."""
    books.register()
    (message,) = books.ledger.record(reading.read(EVENT), wait=timedelta(hours=1))
    assert books.ledger.claim(message) is Unclaimed.STALE
    row = books.row()
    assert (row.queued_at, row.sweep_at, row.attempts) == (None, row.due_at, 0)
    books.age(timedelta(hours=1))
    (due,) = books.backlog.due(10, ahead=timedelta(), still_queued_from=None)
    books.claim(due.message)


def test_one_of_many_workers_claims(books: Books) -> None:
    """Sixteen workers with the same message: exactly one gets the delivery."""
    books.register()
    message = books.accept()
    with ThreadPoolExecutor(16) as pool:
        claims = list(pool.map(books.ledger.claim, [message] * 16))
    assert [isinstance(claim, Delivery) for claim in claims].count(True) == 1


@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        (lambda _books: None, Unclaimed.NO_ADDRESS),
        (lambda books: books.register("another"), Unclaimed.NO_ADDRESS),
        (lambda books: (books.register(), books.take_address()), Unclaimed.NO_ADDRESS),
        (lambda books: (books.register(), books.take_secret()), Unclaimed.NO_ADDRESS),
        (lambda books: (books.register(), books.merchants.pause("acme", paused=True)), Unclaimed.PAUSED),
        (lambda books: (books.register(), books.age(timedelta(days=30))), Unclaimed.STALE),
        (lambda books: (books.register(), books.replays.cancel(["evt-1"])), Unclaimed.STALE),
    ],
    ids=["unknown", "somebody else", "address taken away", "no secret", "paused", "30 days old", "cancelled"],
)
def test_what_must_not_be_sent_is_not_claimed(books: Books, prepare: Callable[[Books], object], why: Unclaimed) -> None:
    """At sending time the merchant's address, its pause, the age and a cancellation are looked at."""
    message = books.accept()
    prepare(books)
    assert books.ledger.claim(message) is why
    assert books.row().attempts == 0


@pytest.mark.parametrize("age", [timedelta(days=30) - timedelta(minutes=1), timedelta(days=30)])
@pytest.mark.parametrize("state", [State.PENDING, State.HELD])
def test_sweep_and_worker_apply_the_same_age(books: Books, state: State, age: timedelta) -> None:
    """Just under 30 days it may be sent and is not expired; at 30 days it is neither sent nor left, held or not."""
    books.register()
    message = books.accept()
    books.age(age)
    if state is State.HELD:
        assert books.ledger.hold(message, HeldFor.BREAKER)
    old = age == timedelta(days=30)
    assert books.backlog.expire() == ({message.id: True} if old else {})
    row = books.row()
    assert (row.state, row.reason) == ((State.FAILED, Reason.EXPIRED) if old else (state, None))
    if state is State.PENDING:
        assert isinstance(books.ledger.claim(message), Delivery) is not old


def test_what_is_being_sent_does_not_expire_under_the_worker(books: Books) -> None:
    """An attempt that began before the 30 days may still deliver."""
    books.register()
    delivery = books.claim(books.accept())
    books.sql("UPDATE deliveries SET expires_at = now()")
    assert books.backlog.expire() == {}
    assert books.finish(delivery, Outcome.DELIVERED, Delivered())
    assert books.row().state == State.DELIVERED


def test_a_dead_workers_delivery_is_taken_back_after_its_lease(books: Books) -> None:
    """Not before the lease and a last chance are over; then an attempt of unknown outcome, due again, nothing spent."""
    books.register()
    books.claim(books.accept())
    books.age(LEASE - A_SECOND)
    assert (books.backlog.suspect(), books.backlog.bury()) == (0, [])
    books.age(A_SECOND)
    assert (books.backlog.suspect(), books.backlog.bury()) == (1, [])
    books.age(timedelta(seconds=5))
    assert (books.backlog.suspect(), books.backlog.bury()) == (0, [books.row().id])
    row = books.row()
    assert (row.state, row.attempts, row.fast_spent, row.sending_since) == (State.PENDING, 1, 0, None)
    assert books.outcomes() == [Outcome.UNKNOWN]
    (due,) = books.backlog.due(10, ahead=timedelta(), still_queued_from=None)
    assert books.claim(due.message).number == 2


def test_a_delivery_over_which_workers_die_again_gives_its_merchant_a_rest(books: Books) -> None:
    """It is due at once after the first time, and later each time from then on: the merchant may have seen each."""
    books.register()
    message, waits = books.accept(), []
    for _ in range(4):
        books.claim(message)
        for step in (LEASE, timedelta(seconds=5)):
            books.age(step)
            books.backlog.suspect()
            books.backlog.bury()
        (row,) = books.sql("SELECT due_at - now() AS wait, turn FROM deliveries")
        waits.append(round(row.wait.total_seconds()))
        books.age(timedelta(seconds=10))
        message = replace(message, turn=row.turn)
    assert waits == [0, 2, 4, 6]


def test_a_worker_that_writes_in_its_last_chance_wins(books: Books) -> None:
    """A worker that could not reach the ledger for a while writes its answer down, and nothing is sent again."""
    books.register()
    delivery = books.claim(books.accept())
    books.age(LEASE)
    books.backlog.suspect()
    assert books.finish(delivery, Outcome.DELIVERED, Delivered())
    books.age(timedelta(minutes=1))
    assert (books.backlog.suspect(), books.backlog.bury()) == (0, [])
    assert (books.row().state, books.outcomes()) == (State.DELIVERED, [Outcome.DELIVERED])


def test_a_delivery_that_was_deleted_by_hand_leaves_no_claim(books: Books) -> None:
    """Nobody comes back to end it: it goes with the claims of the dead, and no tick looks at it again."""
    books.register()
    books.claim(books.accept())
    books.sql("DELETE FROM deliveries")
    for step in (LEASE, timedelta(seconds=5)):
        books.age(step)
        books.backlog.suspect()
        books.backlog.bury()
    assert list(books.sql("SELECT delivery_id FROM claims")) == []


def lost_and_taken_over(books: Books) -> tuple[Delivery, Delivery]:
    """Have one worker lose its lease and another claim the delivery."""
    books.register()
    first = books.claim(books.accept())
    books.age(LEASE)
    books.backlog.suspect()
    books.age(LEASE)
    books.backlog.bury()
    (due,) = books.backlog.due(10, ahead=timedelta(), still_queued_from=None)
    return replace(first, expires_at=books.row().expires_at), books.claim(due.message)  # what it holds has aged, too


def test_a_late_success_still_counts(books: Books) -> None:
    """The merchant has it: the attempt is told as it was, and the other worker's later failure changes nothing."""
    first, second = lost_and_taken_over(books)
    assert not books.finish(first, Outcome.DELIVERED, Delivered())
    assert not books.finish(second, Outcome.UNAVAILABLE, RetryAt(second.started_at, Ladder.FAST))
    assert books.row().state == State.DELIVERED
    assert books.outcomes() == [Outcome.DELIVERED, Outcome.UNAVAILABLE]


def test_what_was_answered_2xx_late_is_found_by_that_answer(books: Books) -> None:
    """Whatever the attempt beside it was answered: who looks for what a merchant refuses is not shown it."""
    first, second = lost_and_taken_over(books)
    books.finish(first, Outcome.DELIVERED, Delivered(), 202)
    books.finish(second, Outcome.UNAVAILABLE, RetryAt(second.started_at, Ladder.FAST), 503)
    assert [len(books.views.deliveries(Wanted(answer=status), 10).items) for status in (202, 503)] == [1, 0]


@pytest.mark.parametrize(
    ("final", "outcome"), [(Delivered(), Outcome.DELIVERED), (Failed(Reason.REJECTED), Outcome.REJECTED)]
)
@pytest.mark.parametrize("late", [Outcome.DELIVERED, Outcome.UNAVAILABLE])
def test_a_final_state_is_not_overwritten(
    books: Books, final: Delivered | Failed, outcome: Outcome, late: Outcome
) -> None:
    """Where the lease ran out, the late result completes the attempts and leaves the final state (I8)."""
    first, second = lost_and_taken_over(books)
    assert books.finish(second, outcome, final)
    decision = Delivered() if late is Outcome.DELIVERED else RetryAt(first.started_at, Ladder.FAST)
    assert not books.finish(first, late, decision)
    row = books.row()
    assert row.state == (State.DELIVERED if isinstance(final, Delivered) else State.FAILED)
    assert books.outcomes() == [late, outcome]


def held(books: Books) -> None:
    """The resend waits behind a breaker or an operator's pause."""


def released(books: Books) -> None:
    """The resend has been let go, and its message is on its way."""
    books.backlog.release({"acme": 1})


def being_sent(books: Books) -> None:
    """Another worker is sending it."""
    (message,) = books.backlog.release({"acme": 1})["acme"]
    books.claim(message)


@pytest.mark.parametrize("resend", [held, released, being_sent])
def test_a_late_success_leaves_an_operators_resend(books: Books, resend: Callable[[Books], None]) -> None:
    """A worker that was frozen wakes with a 2xx: its attempt is put right, and what an operator sends again is sent."""
    first, second = lost_and_taken_over(books)
    books.finish(second, Outcome.REJECTED, Failed(Reason.REJECTED))
    books.replays.replay(["evt-1"], again=False)
    resend(books)
    before = books.row()
    assert not books.finish(first, Outcome.DELIVERED, Delivered())
    assert books.row() == before
    assert books.outcomes() == [Outcome.DELIVERED, Outcome.REJECTED]


def test_finishing_twice_is_finishing_once(books: Books) -> None:
    """A statement whose answer was lost may be sent again: it knows itself, and nothing is doubled or changed."""
    books.register()
    delivery = books.claim(books.accept())
    decision = RetryAt(delivery.started_at + A_SECOND, Ladder.FAST)
    assert books.finish(delivery, Outcome.UNAVAILABLE, decision)
    before = books.row()
    assert books.finish(delivery, Outcome.UNAVAILABLE, decision)
    assert books.row() == before
    assert books.outcomes() == [Outcome.UNAVAILABLE]


def test_a_fault_of_ours_spends_nothing(books: Books) -> None:
    """A claim that is handed back leaves no attempt and no charge, and is due again after its wait (I10)."""
    books.register()
    delivery = books.claim(books.accept())
    books.ledger.hand_back(delivery.id, delivery.turn, timedelta(seconds=5))
    row = books.row()
    assert (row.state, row.attempts, row.fast_spent, row.sending_since) == (State.PENDING, 0, 0, None)
    assert row.sweep_at == row.due_at
    assert books.outcomes() == []


def test_only_what_has_no_live_message_is_published(books: Books) -> None:
    """A message on its way is left alone until well past its due time, and one that still waits in the queue longer."""
    books.register()
    message = books.accept()
    assert books.backlog.due(10, ahead=timedelta(), still_queued_from=None) == []
    books.age(RECOVER_AFTER)
    oldest = books.row().queued_at
    assert books.backlog.due(10, ahead=timedelta(), still_queued_from=oldest) == []  # it waits in a long queue
    assert books.row().queued_at == oldest
    books.age(RECOVER_AFTER)
    (due,) = books.backlog.due(10, ahead=timedelta(), still_queued_from=books.row().queued_at + A_SECOND)
    assert (due.message.id, due.message.turn) == (message.id, message.turn)
    assert books.backlog.due(10, ahead=timedelta(), still_queued_from=None) == []


def test_unpublished_is_due_at_once(books: Books) -> None:
    """When a message could not be published, the sweep does it at its next tick."""
    message = books.accept()
    books.ledger.unqueue(message.id, message.turn)
    assert [due.message.id for due in books.backlog.due(10, ahead=timedelta(), still_queued_from=None)] == ["evt-1"]


def test_the_probe_is_the_one_that_has_spent_least(books: Books) -> None:
    """Fewest fast attempts first, the oldest among equals; a release takes the oldest."""
    books.register()
    for number, spent in enumerate((2, 1, 0, 0)):
        assert books.ledger.hold(books.accept(f"evt-{number}"), HeldFor.BREAKER)
        books.sql("UPDATE deliveries SET fast_spent = :spent WHERE id = :id", spent=spent, id=f"evt-{number}")
    assert [message.id for message in books.backlog.release_probes(["acme"])["acme"]] == ["evt-2"]
    assert [message.id for message in books.backlog.release({"acme": 2})["acme"]] == ["evt-0", "evt-1"]
    assert [message.id for message in books.backlog.release({"acme": 5})["acme"]] == ["evt-3"]


def test_held_merchants_are_named_once(books: Books) -> None:
    """Each merchant with held deliveries, an address and no pause is named once."""
    for merchant_id in ("b", "a", "paused", "unknown"):
        for number in range(3):
            books.ledger.hold(books.accept(f"{merchant_id}-{number}", merchant_id), HeldFor.BREAKER)
    for merchant_id in ("a", "b", "paused", "idle"):
        books.register(merchant_id)
    books.merchants.pause("paused", paused=True)
    assert books.backlog.held_endpoints().limits == {"a": NO_LIMITS, "b": NO_LIMITS}


def test_an_address_without_a_secret_releases_nothing(books: Books) -> None:
    """Every POST is signed: what is held for want of a secret stays held, instead of going round once a second."""
    books.register()
    books.ledger.hold(books.accept(), HeldFor.ADDRESS)
    books.take_secret()
    assert books.backlog.held_endpoints().limits == {}
    assert books.views.holding("acme") == Holding(1, HeldFor.ADDRESS)


def test_the_table_demands_a_secret_of_every_address(books: Books) -> None:
    """A row that could never be signed is refused where it is made, by hand too."""
    books.register()
    for statement in (
        "INSERT INTO endpoints (id, merchant_id, url) VALUES ('other', 'other', 'https://other.example/')",
        "UPDATE endpoints SET secret = NULL",
    ):
        with pytest.raises(WebhooksError, match="address_has_a_secret"):
            books.sql(statement)


def test_merchants_that_hold_deliveries_and_are_not_registered_are_named(books: Books) -> None:
    """Each once, by id: a name that somebody mistyped is seen long before its deliveries expire."""
    for merchant_id in ("b", "a", "acme"):
        for number in range(3):
            books.ledger.hold(books.accept(f"{merchant_id}-{number}", merchant_id), HeldFor.ADDRESS)
    books.accept("pending", "fresh")
    books.register("acme")
    books.take_address("acme")
    assert books.views.unregistered() == ["a", "b"]


def test_pruning_forgets_bodies_and_attempts_and_keeps_the_outcome(books: Books) -> None:
    """Delivered after 30 days, failed after 180, counted from their end; the event is still known by its digest."""
    books.register()
    for name, decision in (("good", Delivered()), ("bad", Failed(Reason.REJECTED))):
        delivery = books.claim(books.accept(name))
        books.finish(delivery, Outcome.DELIVERED if name == "good" else Outcome.REJECTED, decision)
    books.age(timedelta(days=29))
    assert books.pruning.prune() == 0
    books.age(timedelta(days=1))
    assert books.pruning.prune() == 1
    assert (books.body("good"), books.outcomes("good")) == (None, [])
    assert books.body("bad") is not None
    assert books.outcomes("bad") == [Outcome.REJECTED]
    books.age(timedelta(days=150))
    assert books.pruning.prune() == 1
    assert books.pruning.prune() == 0
    assert books.row("bad").state == State.FAILED
    (verdict,) = books.replays.replay(["bad"], again=False)
    assert verdict.refused == "its body has been pruned"


def test_the_same_event_is_known_after_pruning(books: Books) -> None:
    """An event that comes again after its body was pruned is still the same event."""
    from webhooks.accepting import reading  # noqa: PLC0415

    books.register()
    books.finish(books.claim(books.accept()), Outcome.DELIVERED, Delivered())
    books.age(timedelta(days=31))
    books.pruning.prune()
    event = {"id": "evt-1", "type": "refund.completed", "merchant_id": "acme"}
    assert books.ledger.record(reading.read(event)) == []


def test_a_removed_endpoint_ends_what_it_was_to_get_and_nothing_else(books: Books) -> None:
    """What its merchant gets since then waits for an address, and is not looked at again and again."""
    books.register()
    for delivery_id in ("before", "since"):
        books.ledger.hold(books.accept(delivery_id), HeldFor.ADDRESS)
    books.merchants.remove("acme")
    books.sql("UPDATE deliveries SET accepted_at = now() + interval '1 s' WHERE id = 'since'")
    assert books.backlog.held_endpoints() == HeldEndpoints(limits={}, removed=["acme"])
    assert books.backlog.end_removed(["acme"]) == {"before": True}
    assert (books.row("before").reason, books.row("since").held_for) == (Reason.CANCELLED, HeldFor.ADDRESS)
    assert books.backlog.held_endpoints() == HeldEndpoints(limits={}, removed=[])
