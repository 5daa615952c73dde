"""What the story relies on in a ledger: turns (I3), what is final (I8), and what comes too late."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.contracts.benches import LedgerBench, Standing
from webhooks.model import Attempt, Delivery, HeldFor, Ladder, Message, Outcome, Reason, State, Unclaimed, Written
from webhooks.policy.decisions import Budgets, Decision, Delivered, Failed, RetryAt

AN_HOUR = timedelta(hours=1)
ENDS: list[tuple[Outcome, Decision, State, Reason | None]] = [
    (Outcome.DELIVERED, Delivered(), State.DELIVERED, None),
    (Outcome.REJECTED, Failed(Reason.REJECTED), State.FAILED, Reason.REJECTED),
]


def claim(bench: LedgerBench, message: Message) -> Delivery:
    """Claim a delivery that can be claimed."""
    delivery = bench.ledger.claim(message)
    assert isinstance(delivery, Delivery), delivery
    return delivery


def finish(
    bench: LedgerBench, delivery: Delivery, outcome: Outcome, decision: Decision, *, queued: bool = False
) -> Written:
    """Write down an attempt that was charged to the fast ladder."""
    attempt = Attempt(delivery.number, delivery.started_at, timedelta(seconds=1), outcome, ladder=Ladder.FAST)
    spent = Budgets(delivery.money, delivery.expires_at, fast_spent=delivery.fast_spent + 1)
    return bench.ledger.finish(delivery, attempt, decision, spent, queued=queued)


def retry(delivery: Delivery, wait: timedelta = timedelta()) -> RetryAt:
    """Decide to try again."""
    return RetryAt(delivery.started_at + wait, Ladder.FAST)


def next_message(bench: LedgerBench, message: Message) -> Message:
    """Return the message that a delivery's present turn would have."""
    return replace(message, turn=bench.stands(message.id).turn)


def test_a_claim_brings_what_sending_needs(ledger_bench: LedgerBench) -> None:
    """And counts the attempt; the turn has moved on."""
    message = ledger_bench.accept()
    delivery = claim(ledger_bench, message)
    assert (delivery.id, delivery.merchant_id, delivery.type) == ("evt-1", "acme", "refund.completed")
    assert (delivery.turn, delivery.number, delivery.fast_spent, delivery.slow_since) == (message.turn + 1, 1, 0, None)
    assert (delivery.url, delivery.money) == ("https://acme.example/", True)
    assert delivery.expires_at - delivery.started_at > timedelta(days=29)
    assert (bool(delivery.secret), b"evt-1" in delivery.body) == (True, True)
    assert ledger_bench.stands() == Standing(State.PENDING, turn=delivery.turn, number=1, sending=True, queued=True)


def test_a_message_is_good_for_one_claim(ledger_bench: LedgerBench) -> None:
    """Every copy is stale from then on, also once the attempt is over: it claims, holds and unqueues nothing (I3)."""
    message = ledger_bench.accept()
    delivery = claim(ledger_bench, message)
    assert finish(ledger_bench, delivery, Outcome.UNAVAILABLE, retry(delivery), queued=True) is Written.IN_TIME
    before = ledger_bench.stands()
    assert ledger_bench.ledger.claim(message) is Unclaimed.STALE
    assert not ledger_bench.ledger.hold(message, HeldFor.BREAKER)
    ledger_bench.ledger.unqueue(message.id, message.turn)
    assert ledger_bench.stands() == before


def test_what_is_being_sent_is_nobody_elses(ledger_bench: LedgerBench) -> None:
    """Not even a message of its present turn takes, holds or unqueues it."""
    message = ledger_bench.accept()
    claim(ledger_bench, message)
    before, live = ledger_bench.stands(), next_message(ledger_bench, message)
    assert ledger_bench.ledger.claim(live) is Unclaimed.STALE
    assert not ledger_bench.ledger.hold(live, HeldFor.BREAKER)
    ledger_bench.ledger.unqueue(live.id, live.turn)
    assert ledger_bench.stands() == before


@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        (lambda bench: bench.take_address(), Unclaimed.NO_ADDRESS),
        (lambda bench: bench.pause(), Unclaimed.PAUSED),
        (lambda bench: bench.remove(), Unclaimed.REMOVED),
        (lambda bench: bench.age(timedelta(days=30)), Unclaimed.STALE),
    ],
    ids=["no address", "paused", "removed", "expired"],
)
def test_why_a_live_message_claims_nothing(
    ledger_bench: LedgerBench, prepare: Callable[[LedgerBench], None], why: Unclaimed
) -> None:
    """Nothing is spent, and the turn stays, so that the same message may hold it."""
    message = ledger_bench.accept()
    prepare(ledger_bench)
    assert ledger_bench.ledger.claim(message) is why
    assert ledger_bench.stands() == Standing(State.PENDING, turn=message.turn, number=0, queued=True)


def test_what_went_to_a_removed_endpoint_ends_once(ledger_bench: LedgerBench) -> None:
    """As cancelled, without an attempt, and whether it is money is told; to one that is there nothing ends by this."""
    message = ledger_bench.accept()
    assert ledger_bench.ledger.end_removed(message) is None
    ledger_bench.remove()
    assert [ledger_bench.ledger.end_removed(message) for _ in range(2)] == [True, None]
    assert ledger_bench.stands() == Standing(State.FAILED, turn=message.turn + 1, number=0, reason=Reason.CANCELLED)


def test_a_message_of_another_ledger(ledger_bench: LedgerBench) -> None:
    """It is told apart from a stale one, also by whoever holds it."""
    foreign = replace(ledger_bench.accept(), id="foreign")
    assert ledger_bench.ledger.claim(foreign) is Unclaimed.UNKNOWN
    assert not ledger_bench.ledger.hold(foreign, HeldFor.BREAKER)
    assert (ledger_bench.ledger.is_recorded("foreign"), ledger_bench.ledger.is_recorded("evt-1")) == (False, True)


def test_a_message_that_comes_too_early_goes(ledger_bench: LedgerBench) -> None:
    """Some worker's clock is ahead: the sweep publishes another one in time."""
    message = ledger_bench.accept()
    delivery = claim(ledger_bench, message)
    assert finish(ledger_bench, delivery, Outcome.UNAVAILABLE, retry(delivery, AN_HOUR), queued=True) is Written.IN_TIME
    assert ledger_bench.stands().queued
    assert ledger_bench.ledger.claim(next_message(ledger_bench, message)) is Unclaimed.STALE
    stands = ledger_bench.stands()
    assert (stands.queued, stands.number, stands.turn) == (False, 1, delivery.turn)
    ledger_bench.age(AN_HOUR)
    assert claim(ledger_bench, next_message(ledger_bench, message)).number == 2


@pytest.mark.parametrize("held_for", HeldFor)
def test_what_is_held_has_no_message(ledger_bench: LedgerBench, held_for: HeldFor) -> None:
    """It is put aside once, and the message that did it is stale."""
    message = ledger_bench.accept()
    assert ledger_bench.ledger.hold(message, held_for)
    assert ledger_bench.stands() == Standing(State.HELD, turn=message.turn + 1, number=0, held_for=held_for)
    assert not ledger_bench.ledger.hold(message, held_for)
    live = next_message(ledger_bench, message)
    assert not ledger_bench.ledger.hold(live, HeldFor.LANE)
    assert ledger_bench.ledger.claim(message) is ledger_bench.ledger.claim(live) is Unclaimed.STALE
    assert ledger_bench.stands().held_for is held_for


@pytest.mark.parametrize("queued", [True, False])
def test_a_retry_waits_with_or_without_a_message(ledger_bench: LedgerBench, queued: bool) -> None:
    """Its turn is that of the claim, its due time the decision's, its budget what was spent."""
    message = ledger_bench.accept()
    delivery = claim(ledger_bench, message)
    assert (
        finish(ledger_bench, delivery, Outcome.UNAVAILABLE, retry(delivery, AN_HOUR), queued=queued) is Written.IN_TIME
    )
    stands = ledger_bench.stands()
    assert 3590 <= stands.due_in <= 3600
    waits = Standing(State.PENDING, turn=delivery.turn, number=1, queued=queued, fast_spent=1, due_in=stands.due_in)
    assert (stands, ledger_bench.outcomes()) == (waits, [Outcome.UNAVAILABLE])
    ledger_bench.age(AN_HOUR)
    again = claim(ledger_bench, next_message(ledger_bench, message))
    assert (again.number, again.turn, again.fast_spent, again.body) == (2, delivery.turn + 1, 1, delivery.body)


@pytest.mark.parametrize(("outcome", "decision", "state", "reason"), ENDS, ids=["delivered", "failed"])
def test_what_is_final_stays(
    ledger_bench: LedgerBench, outcome: Outcome, decision: Decision, state: State, reason: Reason | None
) -> None:
    """No message of whichever turn, no late worker and no fault changes it (I8)."""
    message = ledger_bench.accept()
    delivery = claim(ledger_bench, message)
    assert finish(ledger_bench, delivery, outcome, decision) is Written.IN_TIME
    final = Standing(state, turn=delivery.turn, number=1, reason=reason, fast_spent=1)
    assert (ledger_bench.stands(), ledger_bench.outcomes()) == (final, [outcome])
    for stale in (message, next_message(ledger_bench, message)):
        assert ledger_bench.ledger.claim(stale) is Unclaimed.STALE
        assert not ledger_bench.ledger.hold(stale, HeldFor.BREAKER)
        ledger_bench.ledger.unqueue(stale.id, stale.turn)
        ledger_bench.ledger.hand_back(stale.id, stale.turn, AN_HOUR)
    assert ledger_bench.stands() == final


def test_the_same_finish_again_changes_nothing(ledger_bench: LedgerBench) -> None:
    """Its first answer may have been lost: it is recognised, and nothing is charged twice."""
    delivery = claim(ledger_bench, ledger_bench.accept())
    for _ in range(2):
        assert finish(ledger_bench, delivery, Outcome.UNAVAILABLE, retry(delivery)) is Written.IN_TIME
    assert (ledger_bench.stands().fast_spent, ledger_bench.outcomes()) == (1, [Outcome.UNAVAILABLE])


def test_who_comes_too_late_decides_nothing(ledger_bench: LedgerBench) -> None:
    """His delivery was taken back: what is unknown of the attempt is filled in, and nothing is charged."""
    delivery = claim(ledger_bench, ledger_bench.accept())
    ledger_bench.take_back()
    before = ledger_bench.stands()
    assert (before.turn, before.number, before.sending, before.queued) == (delivery.turn + 1, 1, False, False)
    assert ledger_bench.outcomes() == [Outcome.UNKNOWN]
    assert finish(ledger_bench, delivery, Outcome.REJECTED, Failed(Reason.REJECTED)) is Written.LATE
    assert (ledger_bench.stands(), ledger_bench.outcomes()) == (before, [Outcome.REJECTED])


def test_who_comes_too_late_leaves_his_successor_alone(ledger_bench: LedgerBench) -> None:
    """The second worker is sending, and finishes as if nobody else had been there."""
    message = ledger_bench.accept()
    first = claim(ledger_bench, message)
    ledger_bench.take_back()
    second = claim(ledger_bench, next_message(ledger_bench, message))
    assert finish(ledger_bench, first, Outcome.UNAVAILABLE, retry(first)) is Written.LATE
    assert (ledger_bench.stands().sending, ledger_bench.stands().turn) == (True, second.turn)
    assert finish(ledger_bench, second, Outcome.DELIVERED, Delivered()) is Written.IN_TIME
    assert ledger_bench.stands().state is State.DELIVERED
    assert ledger_bench.outcomes() == [Outcome.UNAVAILABLE, Outcome.DELIVERED]


def test_a_late_2xx_ends_what_waits(ledger_bench: LedgerBench) -> None:
    """The merchant has it: no message claims it any more."""
    message = ledger_bench.accept()
    delivery = claim(ledger_bench, message)
    ledger_bench.take_back()
    live = next_message(ledger_bench, message)
    assert finish(ledger_bench, delivery, Outcome.DELIVERED, Delivered()) is Written.LAST
    stands = ledger_bench.stands()
    assert (stands.state, stands.held_for, stands.queued) == (State.DELIVERED, None, False)
    assert ledger_bench.ledger.claim(live) is Unclaimed.STALE


def test_a_late_2xx_is_not_undone_by_the_successor(ledger_bench: LedgerBench) -> None:
    """Whatever he was answered: it is an attempt, and the delivery stays delivered (I8)."""
    message = ledger_bench.accept()
    first = claim(ledger_bench, message)
    ledger_bench.take_back()
    second = claim(ledger_bench, next_message(ledger_bench, message))
    assert finish(ledger_bench, first, Outcome.DELIVERED, Delivered()) is Written.LAST
    assert finish(ledger_bench, second, Outcome.REJECTED, Failed(Reason.REJECTED)) is Written.LATE
    assert ledger_bench.stands().state is State.DELIVERED
    assert ledger_bench.outcomes() == [Outcome.DELIVERED, Outcome.REJECTED]


def test_a_late_2xx_leaves_what_was_sent_again_by_hand(ledger_bench: LedgerBench) -> None:
    """An operator wants a second copy: a replay has an age of its own, and nothing else does."""
    message = ledger_bench.accept()
    first = claim(ledger_bench, message)
    ledger_bench.take_back()
    second = claim(ledger_bench, next_message(ledger_bench, message))
    assert finish(ledger_bench, second, Outcome.REJECTED, Failed(Reason.REJECTED)) is Written.IN_TIME
    ledger_bench.replay()
    before = ledger_bench.stands()
    assert (before.state, before.held_for, before.fast_spent) == (State.HELD, HeldFor.REPLAY, 0)
    assert finish(ledger_bench, first, Outcome.DELIVERED, Delivered()) is Written.LATE
    assert (ledger_bench.stands(), ledger_bench.outcomes()) == (before, [Outcome.DELIVERED, Outcome.REJECTED])


def test_what_is_handed_back_has_spent_nothing(ledger_bench: LedgerBench) -> None:
    """It is due again after the wait, without a message; the claim that it undoes counts for nothing (I10)."""
    message = ledger_bench.accept()
    delivery = claim(ledger_bench, message)
    ledger_bench.ledger.hand_back(delivery.id, delivery.turn, AN_HOUR)
    stands = ledger_bench.stands()
    assert 3590 <= stands.due_in <= 3600
    assert stands == Standing(State.PENDING, turn=delivery.turn + 1, number=0, due_in=stands.due_in)
    ledger_bench.age(AN_HOUR)
    assert claim(ledger_bench, next_message(ledger_bench, message)).number == 1
    assert ledger_bench.outcomes() == []


def test_only_the_claim_at_hand_is_handed_back(ledger_bench: LedgerBench) -> None:
    """Not one that somebody else has made since, and not a delivery that nobody is sending."""
    message = ledger_bench.accept()
    ledger_bench.ledger.hand_back(message.id, message.turn, AN_HOUR)
    first = claim(ledger_bench, message)
    ledger_bench.take_back()
    claim(ledger_bench, next_message(ledger_bench, message))
    before = ledger_bench.stands()
    ledger_bench.ledger.hand_back(first.id, first.turn, AN_HOUR)
    assert ledger_bench.stands() == before
    assert (before.number, before.sending) == (2, True)


def test_what_could_not_be_published_has_no_message(ledger_bench: LedgerBench) -> None:
    """Its turn stays: should the message come after all, it is as good as the sweep's."""
    message = ledger_bench.accept()
    ledger_bench.ledger.unqueue(message.id, message.turn)
    assert ledger_bench.stands() == Standing(State.PENDING, turn=message.turn, number=0)
    assert claim(ledger_bench, message).number == 1
