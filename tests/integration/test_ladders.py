"""A real worker walks the whole ladders, shortened by settings, and the merchant sees exactly their waits."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from tests import courier
from tests.merchant import Merchant, Request
from tests.system import System
from webhooks import deliver
from webhooks.app import DELIVERIES
from webhooks.ledger.ledger import Ledger
from webhooks.model import Delivery, Ladder, Message, Outcome, Reason, State, Unclaimed
from webhooks.policy.decisions import RetryAt

PAID = {"type": "payment.status_changed", "status": "paid", "merchant_id": "acme"}
TOLERANCE = 1.5  # seconds that a wait may be longer than the ladder's, on a busy machine


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


def test_money_walks_the_whole_slow_ladder(system: System) -> None:
    """A money event answered 404 takes five steps with the ladder's waits, then FAILED: slow_exhausted."""
    ladder = (0.2, 0.4, 1.5, 0.3, 0.6)
    # Half of the steps lie beyond the horizon: they wait in the ledger and the sweep publishes them.
    system.set(slow_waits=",".join(map(str, ladder)), horizon=0.35)
    merchant = system.merchant("acme")
    merchant.answers(404)
    system.start()
    delivery_id = deliver.delay(PAID).id
    system.wait_for_state(State.FAILED, delivery_id)
    delivery = system.delivery(delivery_id)
    assert delivery["reason"] == Reason.SLOW_EXHAUSTED
    assert (delivery["fast_spent"], delivery["slow_spent"], delivery["attempts"]) == (0, 6, 6)
    assert {step["outcome"] for step in delivery["journey"]} == {Outcome.REJECTED}
    assert {step["ladder"] for step in delivery["journey"]} == {Ladder.SLOW}
    assert_waits(merchant.requests_of(delivery_id), ladder)
    assert_attempts_agree(system, merchant, delivery_id)


def test_a_delivery_walks_the_whole_fast_ladder(system: System) -> None:
    """Ten attempts with the fast ladder's waits, then FAILED: fast_exhausted."""
    ladder = (0.1, 0.2, 0.3, 0.4, 0.1, 0.2, 0.3, 0.4, 0.5)
    # The breaker is not the matter here: it opens only at a hundred attempts.
    system.set(fast_waits=",".join(map(str, ladder)), breaker_min_attempts=100)
    merchant = system.merchant("acme")
    merchant.answers(500, 503, 502)
    system.start()
    delivery_id = deliver.delay(PAID).id
    system.wait_for_state(State.FAILED, delivery_id)
    delivery = system.delivery(delivery_id)
    assert delivery["reason"] == Reason.FAST_EXHAUSTED
    assert (delivery["fast_spent"], delivery["slow_spent"], delivery["attempts"]) == (10, 0, 10)
    assert_waits(merchant.requests_of(delivery_id), ladder)
    assert_attempts_agree(system, merchant, delivery_id)


def test_budgets_stay_apart_on_the_way(system: System) -> None:
    """500, 404, 500, 404, 200: the ledger charges each ladder for its own."""
    system.set(fast_waits="0.1,0.2,0.3", slow_waits="0.1,0.2,0.3")
    merchant = system.merchant("acme")
    merchant.answers(500, 404, 500, 404, 200)
    system.start()
    delivery_id = deliver.delay(PAID).id
    system.wait_for_state(State.DELIVERED, delivery_id)
    delivery = system.delivery(delivery_id)
    assert (delivery["fast_spent"], delivery["slow_spent"], delivery["attempts"]) == (2, 2, 5)
    assert [step["ladder"] for step in delivery["journey"]] == ["fast", "slow", "fast", "slow", None]
    assert_waits(merchant.requests_of(delivery_id), (0.1, 0.1, 0.2, 0.2))


def test_not_money_fails_at_its_first_refusal(system: System) -> None:
    """A 404 to a KYC notice is FAILED at once: rejected."""
    merchant = system.merchant("acme")
    merchant.answers(404)
    system.start()
    delivery_id = deliver.delay({"type": "kyc.status_changed", "status": "approved", "merchant_id": "acme"}).id
    system.wait_for_state(State.FAILED, delivery_id)
    assert system.delivery(delivery_id)["reason"] == Reason.REJECTED
    assert len(merchant.requests) == 1


@pytest.mark.parametrize("slow", ["way there", "way back"])
def test_a_slow_ledger_brings_no_retry_early(system: System, monkeypatch: pytest.MonkeyPatch, slow: str) -> None:
    """A wait is counted from the merchant's answer, however long the claim or its answer was on its way."""
    system.set(fast_waits="5")
    merchant = system.merchant("acme")
    merchant.answers(503)
    claim = Ledger.claim

    def claim_slowly(ledger: Ledger, message: Message) -> Delivery | Unclaimed:
        if slow == "way there":
            threading.Event().wait(0.3)
        claimed = claim(ledger, message)
        if slow == "way back":
            threading.Event().wait(0.3)
        return claimed

    monkeypatch.setattr(Ledger, "claim", claim_slowly)
    decision = courier.send(PAID)
    assert isinstance(decision, RetryAt)
    assert decision.due_at - merchant.requests[0].at >= timedelta(seconds=5)
    (message,) = system.redis().lrange(DELIVERIES, 0, -1)
    assert datetime.fromisoformat(json.loads(message)["headers"]["eta"]) >= decision.due_at


def test_retry_after_is_kept(system: System) -> None:
    """A 429 that asks for 2 s is tried again once, about 2 s later, with one attempt spent."""
    from tests.merchant import Reply  # noqa: PLC0415

    system.set(fast_waits="0.1,0.1")
    merchant = system.merchant("acme")
    merchant.answers(Reply(429, headers=[("Retry-After", "2")]), 200)
    system.start()
    delivery_id = deliver.delay(PAID).id
    system.wait_for_state(State.DELIVERED, delivery_id)
    assert_waits(merchant.requests_of(delivery_id), (2,))
    assert system.delivery(delivery_id)["fast_spent"] == 1
