"""One attempt and what went out of it: the ledger's attempts are the POSTs that the merchant saw (I4)."""

from __future__ import annotations

import errno
from typing import Any, NoReturn

import pytest

from tests import courier
from tests.merchant import Close, Reply
from tests.system import System
from webhooks import parts
from webhooks.delivery import SENT_TWICE, SENT_TWICE_ANSWERED
from webhooks.model import State
from webhooks.policy.decisions import AFTER_OUR_FAULT, Delivered, RetryAt
from webhooks.wire.answer import StrictResponse
from webhooks.wire.sender import Sender

EVENT = {"id": "evt-1", "type": "kyc.status_changed", "merchant_id": "acme"}  # no money: a 4xx would end it


def test_a_network_that_fails_once_the_request_is_out(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attempt is written down as unknown, nobody is charged for it (I10), and the next one is the second."""
    merchant = system.merchant("acme")

    def down(_self: StrictResponse) -> NoReturn:
        raise OSError(errno.ENETDOWN, "Network is down")

    message = courier.accept(EVENT)
    with monkeypatch.context() as patch:
        patch.setattr(StrictResponse, "begin", down)
        decision = courier.attempt(message)
    assert isinstance(decision, RetryAt)
    assert decision.ladder is None
    shown = system.delivery("evt-1")
    assert (shown["attempts"], shown["fast_spent"], shown["slow_spent"]) == (1, 0, 0)
    (step,) = shown["journey"]
    assert (step["outcome"], step["ladder"]) == ("unknown", None)
    assert step["cause"] == "network: ENETDOWN on this machine, after the request was sent"
    (row,) = system.sql("SELECT due_at - (attempts.started_at + duration_ms * interval '1 ms') AS wait FROM deliveries "
                        "JOIN attempts ON delivery_id = id")  # fmt: skip
    assert row.wait >= AFTER_OUR_FAULT * 0.99
    assert parts.gate().show("acme").failures == 0
    assert courier.attempt_again(message) == Delivered()
    assert [request.header("X-Webhook-Attempt") for request in merchant.requests] == ["1", "2"]


def test_a_bug_that_comes_with_the_request_out_takes_nothing_back(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows what the merchant saw: the claim stays until its lease runs out, and is then `unknown`."""
    merchant = system.merchant("acme")
    post = Sender.post

    def stumble(self: Sender, *request: Any) -> NoReturn:
        post(self, *request)
        raise RuntimeError("a bug")

    monkeypatch.setattr(Sender, "post", stumble)
    with pytest.raises(RuntimeError):
        courier.send(EVENT)
    (row,) = system.sql("SELECT state, attempts, sending_since FROM deliveries")
    assert (row.state, row.attempts, len(merchant.requests)) == (State.PENDING, 1, 1)
    assert row.sending_since
    assert parts.gate().show("acme").in_flight == 0


def test_a_request_that_went_out_twice_says_so_and_why(system: System) -> None:
    """A kept connection that closes and one that says goodbye are told apart; the fresh one's answer counts."""
    merchant = system.merchant("acme")
    merchant.answers(200, Reply.raw(Close()), 200, Reply(408, close=True), 200, 421, 404)
    for number in range(4):
        courier.send({**EVENT, "id": f"evt-{number}"})
    journeys = [system.delivery(f"evt-{number}")["journey"] for number in range(4)]
    assert [[(step["status"], step["cause"]) for step in journey] for journey in journeys] == [
        [(200, None)],
        [(200, SENT_TWICE)],
        [(200, SENT_TWICE_ANSWERED.format(status=408))],
        [(404, SENT_TWICE_ANSWERED.format(status=421))],
    ]
    assert [request.webhook_id for request in merchant.requests] == [
        f"evt-{number}" for number in (0, 1, 1, 2, 2, 3, 3)
    ]
