"""The rules on retries, as tables: ladders, budgets, ceilings."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhooks.model import Answer, Ladder, Reason, Refusal, Silence
from webhooks.policy.decisions import AFTER_OUR_FAULT, Budgets, Decision, Delivered, Failed, RetryAt, decide
from webhooks.policy.ladders import FAST_WAITS, SLOW_WAITS, Ladders

START = datetime(2026, 3, 28, 12, tzinfo=UTC)
RULES = Ladders()
MONEY = Budgets(money=True, expires_at=START + timedelta(days=30))
PLAIN = replace(MONEY, money=False)

Result = Answer | Silence | Refusal


def walk(budgets: Budgets, results: Iterable[Result], start: datetime = START) -> list[Decision]:
    """Attempt at each due time, with these results, until the delivery ends; return every decision."""
    now, decisions = start, list[Decision]()
    for result in results:
        decision, budgets = decide(RULES, budgets, result, now)
        decisions.append(decision)
        if not isinstance(decision, RetryAt):
            break
        now = decision.due_at
    return decisions


def waits(decisions: Sequence[Decision], start: datetime = START) -> list[timedelta]:
    """Return how long each retry waits after the attempt before."""
    due = [start, *(decision.due_at for decision in decisions if isinstance(decision, RetryAt))]
    return [later - earlier for earlier, later in pairwise(due)]


def test_fast_ladder() -> None:
    """Ten attempts: 1, 2, 4 … 256 s between them, 511 s in all, then FAILED."""
    decisions = walk(PLAIN, [Answer(500)] * 20)
    assert waits(decisions) == [timedelta(seconds=seconds) for seconds in (1, 2, 4, 8, 16, 32, 64, 128, 256)]
    assert sum(waits(decisions), timedelta()) == timedelta(seconds=511)
    assert len(decisions) == 10
    assert decisions[-1] == Failed(Reason.FAST_EXHAUSTED, Ladder.FAST)


def test_slow_ladder() -> None:
    """Five steps: 15 min, 1, 4, 12, 24 h, about 41 hours in all, then FAILED."""
    decisions = walk(MONEY, [Answer(404)] * 20)
    hours = (0.25, 1, 4, 12, 24)
    assert waits(decisions) == [timedelta(hours=hour) for hour in hours]
    assert sum(waits(decisions), timedelta()) == timedelta(hours=41, minutes=15)
    assert len(decisions) == 6
    assert decisions[-1] == Failed(Reason.SLOW_EXHAUSTED, Ladder.SLOW)


@pytest.mark.parametrize(
    "result",
    [Answer(500), Answer(503), Answer(599), Answer(429), Silence("refused"), Silence("timeout: headers")],
    ids=str,
)
@pytest.mark.parametrize("before", [MONEY, PLAIN], ids=["money", "not money"])
def test_delivery_failures_climb_the_fast_ladder(before: Budgets, result: Result) -> None:
    """5xx, 429 and silence take a step of the fast ladder, for money and anything else."""
    decision, after = decide(RULES, before, result, START)
    assert decision == RetryAt(START + FAST_WAITS[0], Ladder.FAST)
    assert after == replace(before, fast_spent=1)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 422, 451, 499])
def test_refused_money_climbs_the_slow_ladder(status: int) -> None:
    """A 4xx to a money event starts the slow ladder, and its clock."""
    decision, after = decide(RULES, MONEY, Answer(status), START)
    assert decision == RetryAt(START + SLOW_WAITS[0], Ladder.SLOW)
    assert after == replace(MONEY, slow_spent=1, slow_since=START)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 422, 451, 499])
def test_refused_anything_else_fails_at_once(status: int) -> None:
    """A 4xx to what is not money is FAILED, and spends nothing."""
    assert decide(RULES, PLAIN, Answer(status), START) == (Failed(Reason.REJECTED), PLAIN)


@pytest.mark.parametrize("result", [Answer(301), Answer(307), Answer(600), Refusal("private network")], ids=str)
def test_misdirected_and_unsendable(result: Result) -> None:
    """3xx and refused addresses: money climbs the slow ladder, anything else the fast one."""
    slow, _ = decide(RULES, MONEY, result, START)
    fast, _ = decide(RULES, PLAIN, result, START)
    assert slow == RetryAt(START + SLOW_WAITS[0], Ladder.SLOW)
    assert fast == RetryAt(START + FAST_WAITS[0], Ladder.FAST)


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_delivered_ends_it(status: int) -> None:
    """A 2xx ends the delivery and spends nothing."""
    assert decide(RULES, MONEY, Answer(status), START) == (Delivered(), MONEY)


@pytest.mark.parametrize("before", [MONEY, replace(PLAIN, fast_spent=9, slow_spent=5)])
def test_a_fault_of_ours_after_the_request_spends_nothing(before: Budgets) -> None:
    """The outcome is unknown: tried again soon, on no ladder, with what is left of both budgets."""
    decision, after = decide(RULES, before, Silence("network: down", ours=True), START)
    assert decision == RetryAt(START + AFTER_OUR_FAULT, None)
    assert after == before


def test_a_fault_of_ours_outlasts_no_age() -> None:
    """At 30 days it ends like anything else."""
    before = replace(PLAIN, expires_at=START + AFTER_OUR_FAULT)
    assert decide(RULES, before, Silence("network: down", ours=True), START)[0] == Failed(Reason.EXPIRED)


def test_budgets_are_kept_apart() -> None:
    """500, 404, 500, 404 …: each ladder takes its own steps in its own order, none spends the other's."""
    decisions = walk(MONEY, [Answer(500), Answer(404)] * 20)
    expected = [wait for pair in zip(FAST_WAITS[:5], SLOW_WAITS, strict=True) for wait in pair] + [FAST_WAITS[5]]
    assert waits(decisions) == expected
    assert decisions[-1] == Failed(Reason.SLOW_EXHAUSTED, Ladder.SLOW)


def test_a_long_fast_ladder_leaves_the_slow_one_whole() -> None:
    """Nine delivery failures before the first 4xx: the slow ladder is still complete."""
    decisions = walk(MONEY, [Answer(500)] * 9 + [Answer(404)] * 10)
    assert waits(decisions) == [*FAST_WAITS, *SLOW_WAITS]
    assert decisions[-1] == Failed(Reason.SLOW_EXHAUSTED, Ladder.SLOW)


def test_the_tenth_fast_failure_ends_it_amid_slow_steps() -> None:
    """The tenth charged failure is the last, however many slow steps stand between."""
    decisions = walk(MONEY, [Answer(404), Answer(404), *[Answer(500)] * 20])
    assert decisions[-1] == Failed(Reason.FAST_EXHAUSTED, Ladder.FAST)
    assert len(decisions) == 12


def test_ceiling_runs_from_the_first_refusal_and_not_from_acceptance() -> None:
    """A notice that lay undelivered for days still gets the whole slow ladder at its first 4xx."""
    late = START + timedelta(days=20)
    assert waits(walk(MONEY, [Answer(404)] * 10, late), late) == list(SLOW_WAITS)


@pytest.mark.parametrize(
    ("spent_on_the_way", "taken"),
    [(timedelta(hours=6, minutes=45), True), (timedelta(hours=6, minutes=45, microseconds=1), False)],
)
def test_a_step_that_would_end_past_48_hours_is_not_taken(spent_on_the_way: timedelta, taken: bool) -> None:
    """The fifth step may end at 48 h sharp, and not a microsecond later."""
    fifth = START + timedelta(hours=17, minutes=15) + spent_on_the_way
    before = replace(MONEY, slow_spent=4, slow_since=START)
    decision, _ = decide(RULES, before, Answer(404), fifth)
    assert isinstance(decision, RetryAt) is taken
    if not taken:
        assert decision == Failed(Reason.SLOW_EXHAUSTED, Ladder.SLOW)


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        (timedelta(seconds=1, microseconds=1), RetryAt(START + timedelta(seconds=1), Ladder.FAST)),
        (timedelta(seconds=1), Failed(Reason.EXPIRED, Ladder.FAST)),  # at 30 days sharp nothing is sent
        (timedelta(seconds=0), Failed(Reason.EXPIRED, Ladder.FAST)),
    ],
)
def test_a_wait_that_ends_at_or_past_30_days_is_not_taken(left: timedelta, expected: Decision) -> None:
    """At or past 30 days from acceptance nothing is sent, so the delivery expires."""
    decision, _ = decide(RULES, replace(PLAIN, expires_at=START + left), Answer(500), START)
    assert decision == expected


def test_an_answer_after_30_days_still_counts() -> None:
    """What was sent in time and answered 2xx is delivered."""
    decision, _ = decide(RULES, replace(PLAIN, expires_at=START), Answer(200), START + timedelta(seconds=5))
    assert decision == Delivered()


@pytest.mark.parametrize(
    ("spent", "header", "seconds"),
    [
        (0, "60", 60),  # longer than the ladder's 1 s
        (8, "60", 256),  # shorter than the ladder's 256 s: the ladder counts
        (0, "86400", 3600),  # capped at an hour
        (0, "nonsense", 1),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_lengthens_and_never_shortens(status: int, spent: int, header: str, seconds: int) -> None:
    """`Retry-After` can lengthen a wait of the fast ladder, never shorten it."""
    decision, _ = decide(RULES, replace(PLAIN, fast_spent=spent), Answer(status, retry_after=header), START)
    assert decision == RetryAt(START + timedelta(seconds=seconds), Ladder.FAST)


def test_retry_after_is_not_for_the_slow_ladder() -> None:
    """A 404 with `Retry-After` waits what the slow ladder says."""
    decision, _ = decide(RULES, MONEY, Answer(404, retry_after="1"), START)
    assert decision == RetryAt(START + SLOW_WAITS[0], Ladder.SLOW)


_ANY_RESULT = st.one_of(
    st.integers(100, 999).map(Answer),
    st.just(Silence("refused")),
    st.just(Refusal("private network")),
    st.just(Silence("network: down", ours=True)),
)


@given(results=st.lists(_ANY_RESULT, max_size=40), money=st.booleans())
def test_every_walk_ends_within_its_budgets(results: list[Result], money: bool) -> None:
    """Whatever the answers: at most 10 fast and 6 slow charges, and every end has a reason."""
    decisions = walk(replace(MONEY, money=money), results)
    charged = [decision.ladder for decision in decisions if not isinstance(decision, Delivered)]
    assert charged.count(Ladder.FAST) <= 10
    assert charged.count(Ladder.SLOW) <= 6
    assert len(decisions) == len(results) or not isinstance(decisions[-1], RetryAt)
