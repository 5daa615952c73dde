"""A real worker walks the whole ladders, shortened by settings, and the merchant sees exactly their waits."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tests.merchant import Merchant, Reply, Request
from tests.system import System
from webhooks import deliver
from webhooks.model import Ladder, Outcome, Reason, State
from webhooks.settings import get_settings

Event = dict[str, str]

TOLERANCE = 1.5  # seconds that a wait may be longer than the ladder's, on a busy machine


def ladder(which: Ladder) -> list[float]:
    """Return a ladder's waits, in seconds."""
    ladders = get_settings().ladders
    waits = ladders.fast_waits if which is Ladder.FAST else ladders.slow_waits
    return [wait.total_seconds() for wait in waits]


def assert_waits(requests: Sequence[Request], ladder: Sequence[float]) -> None:
    """Compare what the merchant saw with a ladder: never earlier, and hardly later."""
    waits = [(later.at - earlier.at).total_seconds() for earlier, later in pairwise(requests)]
    assert len(waits) == len(ladder)
    for seen, wanted in zip(waits, ladder, strict=True):
        assert wanted - 0.01 <= seen <= wanted + TOLERANCE, waits


def assert_attempts_agree(system: System, merchant: Merchant, delivery_id: str) -> None:
    """Compare the ledger's attempts with the POSTs that the merchant saw (I4)."""
    requests = merchant.requests_of(delivery_id)
    journey = system.delivery(delivery_id)["journey"]
    assert [step["number"] for step in journey] == list(range(1, len(requests) + 1))
    assert [request.header("X-Webhook-Attempt") for request in requests] == [str(step["number"]) for step in journey]
    assert len({request.body for request in requests}) == 1


def test_money_walks_the_whole_slow_ladder(system: System, acme: str, event: Event) -> None:
    """A money event answered 404 takes five steps with the ladder's waits, then FAILED: slow_exhausted.

    Half of the steps lie beyond the horizon: they wait in the ledger, and the sweep publishes them.
    """
    merchant = system.merchant(acme)
    merchant.answers(404)
    delivery_id = deliver.delay(event).id
    system.wait_for_state(State.FAILED, delivery_id)
    delivery = system.delivery(delivery_id)
    assert delivery["reason"] == Reason.SLOW_EXHAUSTED
    assert (delivery["fast_spent"], delivery["slow_spent"], delivery["attempts"]) == (0, 6, 6)
    assert {step["outcome"] for step in delivery["journey"]} == {Outcome.REJECTED}
    assert {step["ladder"] for step in delivery["journey"]} == {Ladder.SLOW}
    assert_waits(merchant.requests_of(delivery_id), ladder(Ladder.SLOW))
    assert_attempts_agree(system, merchant, delivery_id)


def test_a_delivery_walks_the_whole_fast_ladder(system: System, acme: str, event: Event) -> None:
    """Ten attempts with the fast ladder's waits, then FAILED: fast_exhausted."""
    merchant = system.merchant(acme)
    merchant.answers(500, 503, 502)
    delivery_id = deliver.delay(event).id
    system.wait_for_state(State.FAILED, delivery_id)
    delivery = system.delivery(delivery_id)
    assert delivery["reason"] == Reason.FAST_EXHAUSTED
    assert (delivery["fast_spent"], delivery["slow_spent"], delivery["attempts"]) == (10, 0, 10)
    assert_waits(merchant.requests_of(delivery_id), ladder(Ladder.FAST))
    assert_attempts_agree(system, merchant, delivery_id)


def test_budgets_stay_apart_on_the_way(system: System, acme: str, event: Event) -> None:
    """500, 404, 500, 404, 200: the ledger charges each ladder for its own."""
    merchant = system.merchant(acme)
    merchant.answers(500, 404, 500, 404, 200)
    delivery_id = deliver.delay(event).id
    system.wait_for_state(State.DELIVERED, delivery_id)
    delivery = system.delivery(delivery_id)
    assert (delivery["fast_spent"], delivery["slow_spent"], delivery["attempts"]) == (2, 2, 5)
    assert [step["ladder"] for step in delivery["journey"]] == ["fast", "slow", "fast", "slow", None]
    fast, slow = ladder(Ladder.FAST), ladder(Ladder.SLOW)
    assert_waits(merchant.requests_of(delivery_id), (fast[0], slow[0], fast[1], slow[1]))


def test_not_money_fails_at_its_first_refusal(system: System, acme: str, event: Event) -> None:
    """A 404 to a KYC notice is FAILED at once: rejected."""
    merchant = system.merchant(acme)
    merchant.answers(404)
    delivery_id = deliver.delay({**event, "type": "kyc.status_changed", "status": "approved"}).id
    system.wait_for_state(State.FAILED, delivery_id)
    assert system.delivery(delivery_id)["reason"] == Reason.REJECTED
    assert len(merchant.requests) == 1


def test_retry_after_is_kept(system: System, acme: str, event: Event) -> None:
    """A 429 that asks for 1 s is tried again once, about 1 s later, with one attempt spent."""
    merchant = system.merchant(acme)
    merchant.answers(Reply(429, headers=[("Retry-After", "1")]), 200)
    delivery_id = deliver.delay(event).id
    system.wait_for_state(State.DELIVERED, delivery_id)
    assert_waits(merchant.requests_of(delivery_id), (1,))
    assert system.delivery(delivery_id)["fast_spent"] == 1
