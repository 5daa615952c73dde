"""One merchant's dead endpoint, with a real worker: it costs nobody anything, and operators see and end it."""

from __future__ import annotations

from tests.command import done
from tests.integration.test_breaker import hold_rows, pause
from tests.merchant import Reply
from tests.system import System
from tests.worker.conftest import BUSY, open_breaker
from webhooks import deliver, parts
from webhooks.model import HeldFor, State
from webhooks.policy.breaker import BreakerState

PAID = {"type": "payment.status_changed", "status": "paid"}


def accept(count: int, merchant_id: str, prefix: str) -> list[str]:
    """Accept so many money events for a merchant; returns their ids."""
    return [
        deliver.delay({**PAID, "id": f"{merchant_id}-{prefix}-{number}", "merchant_id": merchant_id}).id
        for number in range(count)
    ]


def test_other_merchants_notice_nothing(system: System, acme: str) -> None:
    """While 10,000 deliveries of one merchant are held, and while they are released, another one's arrive at once."""
    dead_id, healthy_id = f"{acme}-dead", f"{acme}-healthy"
    dead, healthy = system.merchant(dead_id), system.merchant(healthy_id)
    dead.answers(BUSY)
    open_breaker(system, dead_id)
    hold_rows(system, dead_id, 10_000)
    accept(10, healthy_id, "first")
    healthy.wait_for(10, timeout=10)
    assert parts.views().count_held(dead_id)[HeldFor.BREAKER] >= 9_990
    dead.answers(200)
    parts.gate().reset(dead_id)
    dead.wait_until(lambda requests: len(requests) > 50, timeout=30, what="the release is under way")
    before = len(healthy.requests)
    ids = accept(20, healthy_id, "meanwhile")
    healthy.wait_for(before + 20, timeout=10)
    assert sum(parts.views().count_held(dead_id).values()) > 0, "the release should still be under way"
    system.wait_for_state(State.DELIVERED, *ids)


def test_operators_look_and_reset(system: System, acme: str) -> None:
    """`inspect breaker` and `breaker show` tell how it stands; a reset, by either command, releases at once."""
    merchant = system.merchant(acme)
    merchant.answers(Reply(503, headers=[("Retry-After", "60")]))
    openers = open_breaker(system, acme)
    held = accept(3, acme, "held")
    system.wait_for_state(State.HELD, *held)
    told = system.run("celery", "-A", "webhooks", "inspect", "breaker", acme, "--json").stdout
    assert '"state": "paused"' in told
    assert '"held": 3' in told
    assert f'"failures": {len(openers)}' in told
    assert "paused" in system.run("webhooks", "breaker", "list").stdout
    merchant.answers(200)
    assert system.run("celery", "-A", "webhooks", "control", "reset_breaker", acme).returncode == 0
    assert parts.audit().latest(1).items[0].what == f"breaker reset of {acme}"
    system.wait_for_state(State.DELIVERED, *held)
    pause(parts.gate(), acme)
    more = accept(3, acme, "more")
    system.wait_for_state(State.HELD, *more)
    assert "3 held deliveries are being released" in system.run("webhooks", "breaker", "reset", acme).stdout
    system.wait_for_state(State.DELIVERED, *more)


def test_a_new_address_starts_afresh(system: System, acme: str) -> None:
    """Setting a new address closes the breaker, and what was held goes to the new one."""
    system.merchant(acme).answers(BUSY)
    open_breaker(system, acme)
    held = accept(3, acme, "held")
    system.wait_for_state(State.HELD, *held)
    moved = system.merchant(acme, registered=False)
    done("merchant", "set", acme, "--url", moved.url())
    system.wait_for_state(State.DELIVERED, *held)
    assert {request.webhook_id for request in moved.requests} >= set(held)
    assert parts.gate().show(acme).state is BreakerState.WORKING
