"""What a merchant sees of us when its endpoint is slow, redirects, moves or goes away (G2, G4, G5)."""

from __future__ import annotations

from tests.command import done, run
from tests.merchant import Close, Merchant, Reply, Request, Reset
from tests.system import System
from webhooks import deliver, parts
from webhooks.delivery import SENT_TWICE, SENT_TWICE_ANSWERED
from webhooks.model import HeldFor, Outcome, State
from webhooks.policy.breaker import BreakerState

PAID = {"type": "payment.status_changed", "status": "paid"}
DEADLINE = 3.0
SENT_AND_GONE = Reply.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", Reset())


def accept(count: int, merchant_id: str) -> list[str]:
    """Accept so many events for a merchant."""
    return [deliver.delay({**PAID, "merchant_id": merchant_id}).id for _ in range(count)]


def journey(system: System, delivery_id: str) -> list[tuple[str, str | None]]:
    """Return a delivery's attempts as outcome and cause."""
    return [(step["outcome"], step["cause"]) for step in system.delivery(delivery_id)["journey"]]


def test_a_200_near_the_deadline(system: System) -> None:
    """In time, even if reset after that: delivered with one POST. Too late: sent again, and it is told why (G2)."""
    system.set(deadline=DEADLINE, fast_waits="0.1,0.1,0.1", breaker_min_attempts=1000)
    early, late, reset = (system.merchant(name) for name in ("early", "late", "reset"))
    early.answers(Reply(after=DEADLINE - 1))
    seen: set[str | None] = set()

    def late_the_first_time(request: Request) -> Reply:
        known = request.webhook_id in seen
        seen.add(request.webhook_id)
        return Reply() if known else Reply(after=DEADLINE + 0.3)

    late.answer_with(late_the_first_time)
    reset.answers(SENT_AND_GONE)
    system.start("--concurrency", "60")
    in_time, too_late, cut_off = (accept(15, name) for name in ("early", "late", "reset"))
    system.wait_for_state(State.DELIVERED, *in_time, *too_late, *cut_off)
    for delivery_id in (*in_time, *cut_off):
        assert journey(system, delivery_id) == [(Outcome.DELIVERED, None)]
    for delivery_id in too_late:
        (first, cause), second = journey(system, delivery_id)
        assert (first, second) == (Outcome.UNAVAILABLE, (Outcome.DELIVERED, None))
        assert (cause or "").startswith("timeout")
    assert [len(merchant.requests) for merchant in (early, late, reset)] == [15, 30, 15]


def test_a_redirect_is_explained_and_not_followed(system: System) -> None:
    """`delivery show` names the host that the endpoint points to, to be registered; nothing is sent there (G4)."""
    system.set(fast_waits="0.1", slow_waits="0.1")
    endpoint, elsewhere = system.merchant("acme"), system.merchant("elsewhere", registered=False)
    endpoint.answers(Reply(307, headers=[("Location", elsewhere.url("/new?token=CANARY", host="127.0.0.1"))]))
    system.start()
    money = deliver.delay({**PAID, "merchant_id": "acme"}).id
    other = deliver.delay({"type": "kyc.status_changed", "status": "approved", "merchant_id": "acme"}).id
    system.wait_for_state(State.FAILED, money, other)
    for delivery_id in (money, other):
        assert set(journey(system, delivery_id)) == {(Outcome.MISDIRECTED, "redirects to 127.0.0.1")}
        shown = run("delivery", "show", delivery_id).output
        assert "redirects to 127.0.0.1" in shown
        assert "CANARY" not in shown
    assert elsewhere.connections == 0


def sent_to(merchant: Merchant) -> set[str | None]:
    """Return the ids of the deliveries that a merchant's server has seen."""
    return {request.webhook_id for request in merchant.requests}


def test_a_new_address_counts_for_what_waits_and_what_is_held(system: System) -> None:
    """Ten retries waiting and ten deliveries held go to the new address, and none to the old one any more (G5)."""
    system.set(fast_waits="3,3,3", breaker_min_attempts=10, breaker_failure_percent=80, breaker_pause=60)
    system.set(breaker_max_pause=60)
    old, new = system.merchant("acme"), system.merchant("acme", registered=False)
    old.answers(503)
    system.start()
    waiting = accept(10, "acme")
    system.wait_until(lambda: parts.gate().show("acme").state is BreakerState.PAUSED, "the breaker opens")
    held = accept(10, "acme")
    system.wait_for_state(State.HELD, *held)
    assert system.delivery(held[0])["held_for"] == HeldFor.BREAKER
    done("merchant", "set", "acme", "--url", new.url())
    system.wait_for_state(State.DELIVERED, *waiting, *held)
    assert len(old.requests) == 10
    assert sent_to(new) == {*waiting, *held}
    assert len(new.requests) == 20


def test_nothing_goes_out_once_a_pause_or_a_removal_is_confirmed(system: System) -> None:
    """Retries that come due and what was held stay held, as written, and go out when the merchant is back (G5)."""
    system.set(fast_waits="3,3,3", breaker_min_attempts=1000)
    paused, removed = system.merchant("paused"), system.merchant("removed")
    for merchant in (paused, removed):
        merchant.answers(503)
    system.start()
    waiting = {name: accept(5, name) for name in ("paused", "removed")}
    paused.wait_for(5, timeout=30)
    removed.wait_for(5, timeout=30)
    done("merchant", "pause", "paused")
    done("merchant", "set", "removed", "--no-url")
    fresh = {name: accept(5, name) for name in ("paused", "removed")}
    for merchant in (paused, removed):
        merchant.answers(200)
        merchant.forget()
    everything = [*waiting["paused"], *fresh["paused"], *waiting["removed"], *fresh["removed"]]
    system.wait_for_state(State.HELD, *everything)
    assert paused.requests == removed.requests == []
    assert done("merchant", "show", "paused")["held"] == {"operator": 10}
    assert done("merchant", "show", "removed")["held"] == {"address": 10}
    done("merchant", "resume", "paused")
    done("merchant", "set", "removed", "--url", removed.url())
    system.wait_for_state(State.DELIVERED, *everything)
    assert [len(merchant.requests) for merchant in (paused, removed)] == [10, 10]


def test_a_request_that_went_out_twice_is_told_as_such(system: System) -> None:
    """A kept connection closes without a byte, or with a 408: the merchant may have seen the POST; we say so (I4)."""
    merchant = system.merchant("acme")
    merchant.answers(200, Reply.raw(Close()), 200, Reply(408, close=True), 200)
    worker = system.start("-c", "1")
    for number in range(3):
        deliver.delay({"id": f"evt-{number}", "type": "kyc.status_changed", "merchant_id": "acme"})
        system.wait_for_state(State.DELIVERED, f"evt-{number}")
    answered = SENT_TWICE_ANSWERED.format(status=408)
    for number, cause in ((1, SENT_TWICE), (2, answered)):
        (step,) = system.delivery(f"evt-{number}")["journey"]
        assert (step["status"], step["cause"]) == (200, cause)
        assert cause in worker.log.read_text()
    assert [request.webhook_id for request in merchant.requests] == ["evt-0", "evt-1", "evt-1", "evt-2", "evt-2"]
