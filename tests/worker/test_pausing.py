"""An operator pauses a merchant: nothing more is sent to it until it is resumed."""

from __future__ import annotations

from tests.command import done
from tests.gate.script import widen_only
from tests.merchant import Reply
from tests.system import System
from webhooks import deliver, parts
from webhooks.model import HeldFor, State


def test_paused_merchant_is_held_and_resumed_merchant_is_released(system: System, acme: str) -> None:
    """Retries and fresh events of a paused merchant are held at sending time; resumed, the sweep lets them go."""
    paid = {"type": "payment.status_changed", "status": "paid", "merchant_id": acme}
    merchant = system.merchant(acme)
    merchant.answers(Reply(503, headers=[("Retry-After", "2")]), 200)
    retried = deliver.delay(paid).id
    merchant.wait_for(1, timeout=30)
    widen_only(parts.gate(), merchant=acme)
    paused = done("merchant", "pause", acme, "--why", "their migration")
    assert paused["paused_at"] is not None
    fresh = [deliver.delay(paid).id for _ in range(5)]
    system.wait_for_state(State.HELD, retried, *fresh)
    for delivery_id in (retried, *fresh):
        assert system.delivery(delivery_id)["held_for"] == HeldFor.OPERATOR
    assert len(merchant.requests) == 1
    assert done("merchant", "show", acme)["held"] == {"operator": 6}
    assert done("merchant", "pause", acme)["paused_at"] == paused["paused_at"]
    assert done("merchant", "resume", acme)["paused_at"] is None
    system.wait_for_state(State.DELIVERED, retried, *fresh)
    assert system.delivery(retried)["fast_spent"] == 1
    assert len(merchant.requests) == 7
    noted = [(line["what"], line["why"]) for line in done("audit")]
    assert (f"paused {acme}", "their migration") in noted
    assert (f"resumed {acme}", None) in noted
