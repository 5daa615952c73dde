"""The story, every branch of it, on parts in memory: `tests/contracts` says that the real ones do the same."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.fakes.clock import START
from tests.fakes.ledger import SECRET
from tests.fakes.stage import Stage
from webhooks.delivery import SENT_TWICE, SENT_TWICE_ANSWERED, Made, Moved, SetAside
from webhooks.errors import LedgerBusy, LedgerFault, LedgerUnavailable, LocalFault
from webhooks.gate.values import Admitted, MayProbe
from webhooks.model import (
    Answer,
    Delivery,
    HeldFor,
    Ladder,
    Message,
    Outcome,
    Reason,
    Refusal,
    Silence,
    State,
    Unclaimed,
)
from webhooks.observing import facts
from webhooks.observing.facts import Attempted, BreakerClosed, BreakerOpened, DeliveryHeld, Finished
from webhooks.observing.surroundings import ClockWrong, StrangersMet
from webhooks.policy.breaker import Effect
from webhooks.policy.decisions import AFTER_OUR_FAULT, Delivered, Failed, RetryAt
from webhooks.signing import verify

NAMES = "evt-1", "acme", "acme", "refund.completed"
AWAY = LedgerUnavailable("away")


@pytest.fixture
def stage() -> Stage:
    """A delivery whose message is at hand, to a merchant that answers 200."""
    return Stage()


def test_delivered(stage: Stage) -> None:
    """One signed POST of the stored bytes; the attempt is written down, its place given back, and all of it is told."""
    assert stage.attempt() == Delivered()
    (post,) = stage.sender.posts
    assert (post.url, post.body, post.headers["X-Webhook-Id"]) == ("https://acme.example/hook", stage.row.body, "evt-1")
    timestamp, signature = post.headers["X-Webhook-Timestamp"], post.headers["X-Webhook-Signature"]
    assert verify(SECRET, timestamp=timestamp, signature=signature, body=post.body, now=stage.clock.time())
    assert (stage.row.state, stage.row.attempts[1].outcome) == (State.DELIVERED, Outcome.DELIVERED)
    assert (stage.in_flight, stage.gate.reported, stage.publisher.queue) == (0, [Effect.SUCCESS], [])
    attempted, finished = stage.told
    assert isinstance(attempted, Attempted)
    assert (attempted.delivery_id, attempted.attempt, attempted.decision, attempted.late) == (
        "evt-1",
        1,
        Delivered(),
        False,
    )
    assert finished == Finished(*NAMES, State.DELIVERED, None, money=True)


def test_an_attempt_tells_how_late_it_began(stage: Stage) -> None:
    """Counted from the due time; what was held waited for something else, and says so."""
    stage.row.due_at = stage.clock.now - timedelta(seconds=3)
    stage.sender.answers(Answer(503))
    stage.attempt()
    stage.row.due_at = stage.clock.now - timedelta(hours=6)
    stage.attempt(replace(stage.row.message, slot="a slot"))
    first, second = (fact for fact in stage.told if isinstance(fact, Attempted))
    assert [(round(each.lag / timedelta(seconds=1)), each.released) for each in (first, second)] == [
        (3, False),
        (6 * 3600, True),
    ]


def test_held_by_the_breaker(stage: Stage) -> None:
    """Nothing is claimed, sent or spent: a row that nobody touches."""
    stage.open_breaker()
    assert stage.attempt() == SetAside(HeldFor.BREAKER, until=stage.gate.show("acme").until)
    assert (stage.row.state, stage.row.held_for, stage.row.number) == (State.HELD, HeldFor.BREAKER, 0)
    assert (stage.sender.posts, stage.told) == ([], [DeliveryHeld(*NAMES, HeldFor.BREAKER)])


def test_held_by_the_lane(stage: Stage) -> None:
    """Ten others are in flight."""
    for number in range(10):
        stage.gate.admit("acme", f"other-{number}")
    assert stage.attempt() == SetAside(HeldFor.LANE)
    assert (stage.row.held_for, stage.told) == (HeldFor.LANE, [DeliveryHeld(*NAMES, HeldFor.LANE)])


def test_what_is_slow_goes_on_in_a_queue_of_its_own(stage: Stage) -> None:
    """Nothing is claimed or held: the same turn travels there, with a place that is kept for it, and is sent."""
    make_slow(stage)
    assert stage.attempt() == Moved()
    assert (stage.sender.posts, stage.told, stage.row.state) == ([], [], State.PENDING)
    ((moved, wait),) = stage.publisher.queue
    assert moved == replace(stage.message, slot=moved.slot, slow=True)
    assert (bool(moved.slot), wait) == (True, timedelta())
    assert stage.attempt(moved) == Delivered()
    assert len(stage.sender.posts) == 1


def test_what_is_slow_while_the_broker_is_away(stage: Stage) -> None:
    """The sweep publishes it later; nothing is spent."""
    make_slow(stage)
    stage.publisher.away = True
    assert stage.attempt() == Moved()
    assert (stage.row.queued, stage.row.number, stage.sender.posts) == (False, 0, [])


def make_slow(stage: Stage) -> None:
    """Let the merchant take four seconds for another attempt."""
    other = stage.gate.admit("acme", "other")
    assert isinstance(other, Admitted)
    stage.gate.report("acme", other, Effect.SUCCESS, took=timedelta(seconds=4))


def test_the_gate_hears_how_long_the_post_took(stage: Stage) -> None:
    """Not how long the ledger took to hand the delivery over."""
    claim = stage.ledger.claim

    def claim_slowly(message: Message) -> Delivery | Unclaimed:
        stage.clock.advance(timedelta(seconds=2))
        return claim(message)

    stage.ledger.claim = claim_slowly  # type: ignore[method-assign]
    stage.sender.meanwhile = lambda: stage.clock.advance(timedelta(seconds=3))
    assert stage.attempt() == Delivered()
    assert stage.gate.took == [timedelta(seconds=3)]


def test_held_but_stale(stage: Stage) -> None:
    """The message of an earlier turn holds nothing, and is no stranger's."""
    stage.row.move_on()
    stage.open_breaker()
    assert stage.attempt() == SetAside(None)
    assert (stage.row.state, stage.told) == (State.PENDING, [])


@pytest.mark.parametrize("breaker", ["working", "paused"])
def test_unknown(stage: Stage, breaker: str) -> None:
    """A message of another ledger, held or let pass, leads to nothing and is told."""
    if breaker == "paused":
        stage.open_breaker()
    assert stage.attempt(replace(stage.message, id="foreign")) == SetAside(None)
    assert (stage.told, stage.in_flight, stage.sender.posts) == ([StrangersMet(1, "foreign")], 0, [])


def test_busy(stage: Stage) -> None:
    """This very delivery is in flight: its message goes, and the sweep asks again."""
    stage.gate.admit("acme", "evt-1")
    assert stage.attempt() == SetAside(None)
    assert (stage.row.queued, stage.row.state, stage.in_flight) == (False, State.PENDING, 1)
    assert (stage.sender.posts, stage.told) == ([], [])


def test_stale(stage: Stage) -> None:
    """The gate let it pass, the ledger did not: the place is given back, and counts nowhere."""
    stage.row.move_on()
    assert stage.attempt() == SetAside(None)
    assert (stage.in_flight, stage.gate.reported, stage.told) == (0, [Effect.NOTHING], [])
    assert (stage.sender.posts, stage.row.number) == ([], 0)


@pytest.mark.parametrize("why", [HeldFor.ADDRESS, HeldFor.OPERATOR])
def test_held_by_the_ledger(stage: Stage, why: HeldFor) -> None:
    """Its merchant has no address, or is paused by a person."""
    if why is HeldFor.ADDRESS:
        stage.ledger.addresses.clear()
    else:
        stage.ledger.paused.add("acme")
    assert stage.attempt() == SetAside(why)
    assert (stage.row.held_for, stage.in_flight, stage.gate.reported) == (why, 0, [Effect.NOTHING])
    assert (stage.told, stage.sender.posts) == ([DeliveryHeld(*NAMES, why)], [])


def test_its_endpoint_was_removed(stage: Stage) -> None:
    """It ends as cancelled, without an attempt, and the place is given back."""
    stage.ledger.removed.add("acme")
    assert stage.attempt() == Failed(Reason.CANCELLED)
    assert (stage.row.state, stage.row.reason, stage.row.number) == (State.FAILED, Reason.CANCELLED, 0)
    assert (stage.in_flight, stage.gate.reported, stage.sender.posts) == (0, [Effect.NOTHING], [])
    assert stage.told == [Finished(*NAMES, State.FAILED, Reason.CANCELLED, money=True)]


def test_a_fault_of_this_machine_spends_nothing(stage: Stage) -> None:
    """It came before the last byte was out: the claim is taken back, and tried again in a while (I10)."""
    stage.sender.answers(LocalFault("no sockets"))
    with pytest.raises(LocalFault):
        stage.attempt()
    assert (stage.row.number, stage.row.sending_since, stage.row.queued) == (0, None, False)
    assert stage.row.due_at == stage.clock.now + AFTER_OUR_FAULT
    assert (stage.in_flight, stage.gate.reported, stage.row.attempts) == (0, [Effect.NOTHING], {})


def test_a_secret_that_cannot_be_read_is_a_fault_of_ours(stage: Stage) -> None:
    """The ledger says so at the claim."""
    stage.ledger.trouble.plan("claim", LocalFault("no key"))
    with pytest.raises(LocalFault):
        stage.attempt()
    assert (stage.in_flight, stage.gate.reported, stage.sender.posts) == (0, [Effect.NOTHING], [])


def test_a_bug_in_mid_post_leaves_the_claim_standing(stage: Stage) -> None:
    """Nobody knows what the merchant saw: the lease runs out, and the sweep writes down that it is unknown (I4)."""
    stage.sender.answers(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        stage.attempt()
    assert (stage.row.number, stage.row.sending_since is not None) == (1, True)
    assert (stage.in_flight, stage.gate.reported) == (0, [Effect.NOTHING])


@pytest.mark.parametrize("error", [AWAY, LedgerFault("not this one"), ZeroDivisionError()])
def test_a_claim_that_fails_keeps_no_place(stage: Stage, error: Exception) -> None:
    """Whatever the ledger says, the gate's lease ends with it, and nothing is sent."""
    stage.ledger.trouble.plan("claim", error)
    with pytest.raises(type(error)):
        stage.attempt()
    assert (stage.in_flight, stage.gate.reported, stage.sender.posts) == (0, [Effect.NOTHING], [])


def test_a_claim_that_took_too_long_is_handed_back(stage: Stage) -> None:
    """The gate's lease would end before the attempt, and another probe could start (I5)."""
    with pytest.raises(LedgerBusy):
        stage.attempt(slowest_claim=timedelta(microseconds=-1))
    assert (stage.row.number, stage.row.sending_since, stage.row.due_at) == (0, None, stage.clock.now)
    assert (stage.in_flight, stage.sender.posts, stage.told) == (0, [], [])


def test_a_claim_that_is_just_in_time_is_not(stage: Stage) -> None:
    """No time has passed but the gate's own microsecond."""
    assert stage.attempt(slowest_claim=timedelta(microseconds=1)) == Delivered()


def test_an_answer_is_written_down_however_long_the_ledger_is_away(stage: Stage) -> None:
    """It is tried again after growing waits, the gate has heard of it before, and nothing is sent twice."""
    stage.ledger.trouble.plan("finish", *[AWAY] * 8)
    assert stage.attempt() == Delivered()
    assert stage.stopping.waited == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0]
    assert (stage.row.state, stage.gate.reported, len(stage.sender.posts)) == (State.DELIVERED, [Effect.SUCCESS], 1)


def test_who_is_told_to_stop_tries_three_times_more(stage: Stage) -> None:
    """Then the answer stays unwritten; the breaker has counted it, and the sweep will take the delivery back."""
    stage.sender.answers(503)
    stage.stopping.after = 2
    stage.ledger.trouble.plan("finish", *[AWAY] * 6)
    with pytest.raises(LedgerUnavailable):
        stage.attempt()
    assert (stage.stopping.waited, stage.clock.slept) == ([0.1, 0.2], [0.4, 0.8, 1.6])
    assert (stage.gate.reported, stage.gate.show("acme").failures) == ([Effect.FAILURE], 1)
    assert (stage.row.sending_since is not None, stage.publisher.queue, stage.told) == (True, [], [])


def test_who_is_told_to_stop_may_just_make_it(stage: Stage) -> None:
    """The ledger is back at the last try."""
    stage.stopping.after = 0
    stage.ledger.trouble.plan("finish", *[AWAY] * 3)
    assert stage.attempt() == Delivered()
    assert (stage.stopping.waited, stage.row.state) == ([], State.DELIVERED)


def test_what_the_ledger_refuses_for_good_is_not_waited_for(stage: Stage) -> None:
    """Waiting does not mend it."""
    stage.ledger.trouble.plan("finish", LedgerFault("not this one"))
    with pytest.raises(LedgerFault):
        stage.attempt()
    assert (stage.stopping.waited, stage.told) == ([], [])


def test_an_answer_that_was_too_late_decides_nothing(stage: Stage) -> None:
    """Somebody else has the delivery: no retry of this one is published, and it is told as late."""
    stage.sender.answers(503)
    stage.sender.meanwhile = lambda: stage.ledger.take_back("evt-1")
    assert stage.attempt() == SetAside(None)
    assert (stage.row.state, stage.row.spent.fast_spent, stage.publisher.queue) == (State.PENDING, 0, [])
    (attempted,) = stage.told
    assert isinstance(attempted, Attempted)
    assert attempted.late


def test_a_2xx_that_was_too_late_is_shown_as_what_it_is(stage: Stage) -> None:
    """The merchant has it, whoever writes it down: where that ends the delivery, it is told as its end, and once."""
    stage.sender.meanwhile = lambda: stage.ledger.take_back("evt-1")
    assert stage.attempt() == Delivered()
    attempted, finished = stage.told
    assert isinstance(attempted, Attempted)
    assert (stage.row.state, attempted.late) == (State.DELIVERED, True)
    assert finished == Finished(*NAMES, State.DELIVERED, None, money=True)


def test_a_2xx_that_came_after_the_end_ends_nothing(stage: Stage) -> None:
    """What is final stays (I8), and nothing is told twice."""

    def take_back_and_fail() -> None:
        stage.ledger.take_back("evt-1")
        stage.row.state, stage.row.reason = State.FAILED, Reason.CANCELLED

    stage.sender.meanwhile = take_back_and_fail
    assert stage.attempt() == Delivered()
    assert (stage.row.state, stage.names_told()) == (State.FAILED, ["delivery.attempted"])


def test_a_retry_that_is_near_counts_down_in_the_broker(stage: Stage) -> None:
    """Its message carries the next turn, and comes a second after the attempt's end, never earlier."""
    stage.sender.answers(503)
    stage.sender.meanwhile = lambda: stage.clock.advance(timedelta(seconds=3))
    decision = stage.attempt()
    assert isinstance(decision, RetryAt)
    assert (decision.ladder, decision.due_at - START > timedelta(seconds=4)) == (Ladder.FAST, True)
    ((message, wait),) = stage.publisher.queue
    assert (message.id, message.turn, message.slot, message.retries) == ("evt-1", stage.row.turn, None, 1)
    assert stage.clock.now + wait >= decision.due_at == stage.row.due_at
    assert (stage.row.queued, stage.row.spent.fast_spent, stage.gate.reported) == (True, 1, [Effect.FAILURE])
    assert stage.names_told() == ["delivery.attempted"]
    stage.clock.advance(wait)
    stage.sender.answers(200)
    assert stage.attempt(message) == Delivered()
    assert [post.headers["X-Webhook-Attempt"] for post in stage.sender.posts] == ["1", "2"]


def test_a_retry_that_is_far_waits_in_the_ledger(stage: Stage) -> None:
    """No message: the sweep publishes it when it comes near."""
    stage.sender.answers(404)
    decision = stage.attempt()
    assert isinstance(decision, RetryAt)
    assert decision.ladder is Ladder.SLOW
    assert timedelta(minutes=15) <= decision.due_at - START < timedelta(minutes=15, seconds=1)
    assert (stage.row.queued, stage.row.spent.slow_spent, stage.publisher.queue) == (False, 1, [])


def test_a_retry_for_which_this_process_has_no_room_waits_in_the_ledger(stage: Stage) -> None:
    """However near it is."""
    stage.sender.answers(503)
    assert isinstance(stage.attempt(may_count_down=lambda _wait: False), RetryAt)
    assert (stage.row.queued, stage.publisher.queue) == (False, [])


def test_a_retry_that_the_broker_does_not_take_waits_in_the_ledger(stage: Stage) -> None:
    """The publisher has told it."""
    stage.sender.answers(503)
    stage.publisher.away = True
    assert isinstance(stage.attempt(), RetryAt)
    assert stage.row.queued is False


def test_what_follows_comes_with_the_attempt(stage: Stage) -> None:
    """Which one it was, what it came to and how long it took: whoever asked for it may tell."""
    stage.sender.answers(503)
    stage.sender.meanwhile = lambda: stage.clock.advance(timedelta(seconds=3))
    made = stage.courier.attempt(stage.message)
    assert isinstance(made, Made)
    assert made.attempt == stage.row.attempts[1]
    assert (made.attempt.number, made.attempt.status, made.attempt.duration) == (1, 503, timedelta(seconds=3))
    assert made.decision == RetryAt(stage.row.due_at, Ladder.FAST)


def test_failed() -> None:
    """A 4xx to what is no money is the end of it."""
    stage = Stage(money=False)
    stage.sender.answers(404)
    assert stage.attempt() == Failed(Reason.REJECTED)
    assert (stage.row.state, stage.row.reason, stage.publisher.queue) == (State.FAILED, Reason.REJECTED, [])
    assert stage.told[1:] == [Finished(*NAMES, State.FAILED, Reason.REJECTED, money=False)]


def test_a_breaker_that_opens_is_told(stage: Stage) -> None:
    """By the attempt that opened it, before the ledger hears of it."""
    for number in range(4):
        admitted = stage.gate.admit("acme", f"other-{number}")
        assert isinstance(admitted, Admitted)
        stage.gate.report("acme", admitted, Effect.FAILURE)
    stage.sender.answers(Silence("timeout: no answer within 10 s"))
    stage.attempt()
    assert stage.names_told() == ["breaker.opened", "delivery.attempted"]
    assert stage.told[0] == BreakerOpened("acme", "acme")


def test_a_probe_that_is_answered_closes_the_breaker_and_lets_the_next_go(stage: Stage) -> None:
    """It passes by its slot, is written down as a probe, and the slot of the next one goes to the release."""
    stage.open_breaker()
    stage.clock.advance(timedelta(minutes=5))
    offer = stage.gate.offer(["acme"])["acme"]
    assert isinstance(offer, MayProbe)
    assert stage.attempt(replace(stage.message, slot=offer.slot)) == Delivered()
    assert (stage.row.attempts[1].probe, stage.told[0]) == (True, BreakerClosed("acme", "acme"))
    ((merchant_id, slots),) = stage.release.released
    assert (merchant_id, len(slots)) == ("acme", 1)


def test_without_the_gate_deliveries_go_on(stage: Stage) -> None:
    """A breaker must not become an outage."""
    stage.gate.away = True
    assert stage.attempt() == Delivered()
    assert stage.row.state is State.DELIVERED


@pytest.mark.parametrize(
    ("result", "outcome", "status", "cause"),
    [
        (Answer(200), Outcome.DELIVERED, 200, None),
        (Answer(302, redirect_host="other.example"), Outcome.MISDIRECTED, 302, "redirects to other.example"),
        (Answer(200, resent=True), Outcome.DELIVERED, 200, SENT_TWICE),
        (Answer(200, resent=True, stale_status=408), Outcome.DELIVERED, 200, SENT_TWICE_ANSWERED.format(status=408)),
        (Silence("dns: no such host"), Outcome.UNAVAILABLE, None, "dns: no such host"),
        (Silence("reset", resent=True), Outcome.UNAVAILABLE, None, f"reset; {SENT_TWICE}"),
        (Silence("ENETDOWN on this machine", ours=True), Outcome.UNKNOWN, None, "ENETDOWN on this machine"),
        (Refusal("not HTTPS"), Outcome.UNSENDABLE, None, "not HTTPS"),
    ],
)
def test_what_came_of_it_is_written_down(
    stage: Stage, result: Answer | Silence | Refusal, outcome: Outcome, status: int | None, cause: str | None
) -> None:
    """The status, and in a few words what it does not say; that the merchant may have seen it twice among them (I4)."""
    stage.sender.answers(result)
    stage.attempt()
    written = stage.row.attempts[1]
    assert (written.number, written.outcome, written.status, written.cause) == (1, outcome, status, cause)
    (attempted,) = (fact for fact in stage.told if isinstance(fact, facts.Attempted))
    assert (attempted.outcome, attempted.status, attempted.cause) == (outcome, status, cause)


def test_what_a_merchant_answered_is_in_the_ledger_alone(stage: Stage) -> None:
    """It may echo the body: no fact has it (I9)."""
    stage.sender.answers(Answer(500, excerpt="card 4242"))
    stage.attempt()
    assert stage.row.attempts[1].excerpt == "card 4242"
    assert "4242" not in repr(stage.told)


def test_a_wrong_wall_clock_is_told_and_signs_nothing(stage: Stage) -> None:
    """Requests carry the ledger's time."""
    stage.clock.wrong_by = timedelta(hours=1)
    assert stage.attempt() == Delivered()
    assert stage.told[0] == ClockWrong(timedelta(hours=1))
    (post,) = stage.sender.posts
    assert post.headers["X-Webhook-Timestamp"] == str(int(START.timestamp()))
