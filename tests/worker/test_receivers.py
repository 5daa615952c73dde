"""What a merchant sees of us when its endpoint is slow, redirects, moves or goes away (G2, G4, G5)."""

from __future__ import annotations

import pytest

from tests.command import done, run
from tests.gate.script import widen_only
from tests.merchant import Close, Merchant, Reply, Request, Reset
from tests.system import System
from tests.worker.conftest import BUSY, open_breaker
from webhooks import deliver, parts
from webhooks.delivery import SENT_TWICE, SENT_TWICE_ANSWERED
from webhooks.model import HeldFor, Outcome, State
from webhooks.settings import get_settings

PAID = {"type": "payment.status_changed", "status": "paid"}
SENT_AND_GONE = Reply.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", Reset())


def accept(count: int, merchant_id: str) -> list[str]:
    """Accept so many events for a merchant."""
    return [deliver.delay({**PAID, "merchant_id": merchant_id}).id for _ in range(count)]


def journey(system: System, delivery_id: str) -> list[tuple[str, str | None]]:
    """Return a delivery's attempts as outcome and cause."""
    return [(step["outcome"], step["cause"]) for step in system.delivery(delivery_id)["journey"]]


def test_a_200_near_the_deadline(system: System, acme: str) -> None:
    """In time, even if reset after that: delivered with one POST. Too late: sent again, and it is told why (G2)."""
    deadline = get_settings().deadline.total_seconds()
    names = [f"{acme}-{name}" for name in ("early", "late", "reset")]
    early, late, reset = map(system.merchant, names)
    early.answers(Reply(after=deadline / 2))
    seen: set[str | None] = set()

    def late_the_first_time(request: Request) -> Reply:
        known = request.webhook_id in seen
        seen.add(request.webhook_id)
        return Reply() if known else Reply(after=deadline + 0.3)

    late.answer_with(late_the_first_time)
    reset.answers(SENT_AND_GONE)
    in_time, too_late, cut_off = (accept(8, name) for name in names)
    system.wait_for_state(State.DELIVERED, *in_time, *too_late, *cut_off)
    for delivery_id in (*in_time, *cut_off):
        assert journey(system, delivery_id) == [(Outcome.DELIVERED, None)]
    for delivery_id in too_late:
        (first, cause), second = journey(system, delivery_id)
        assert (first, second) == (Outcome.UNAVAILABLE, (Outcome.DELIVERED, None))
        assert (cause or "").startswith("timeout")
    assert [len(merchant.requests) for merchant in (early, late, reset)] == [8, 16, 8]


def test_a_redirect_is_explained_and_not_followed(system: System, acme: str) -> None:
    """`delivery show` names the host that the endpoint points to, to be registered; nothing is sent there (G4)."""
    endpoint, elsewhere = system.merchant(acme), system.merchant(f"{acme}-elsewhere", registered=False)
    endpoint.answers(Reply(307, headers=[("Location", elsewhere.url("/new?token=CANARY", host="127.0.0.1"))]))
    money = deliver.delay({**PAID, "merchant_id": acme}).id
    other = deliver.delay({"type": "kyc.status_changed", "status": "approved", "merchant_id": acme}).id
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


def test_a_new_address_counts_for_what_waits_and_what_is_held(system: System, acme: str) -> None:
    """Retries waiting and deliveries held go to the new address, and none to the old one any more (G5)."""
    old, new = system.merchant(acme), system.merchant(acme, registered=False)
    old.answers(BUSY)
    waiting = open_breaker(system, acme)
    held = accept(10, acme)
    system.wait_for_state(State.HELD, *held)
    assert system.delivery(held[0])["held_for"] == HeldFor.BREAKER
    done("merchant", "set", acme, "--url", new.url())
    system.wait_for_state(State.DELIVERED, *waiting, *held)
    assert len(old.requests) == len(waiting)
    assert sent_to(new) == {*waiting, *held}
    assert len(new.requests) == len(waiting) + 10


def test_nothing_goes_out_once_a_pause_or_a_removal_is_confirmed(system: System, acme: str) -> None:
    """Retries that come due and what was held stay held, as written, and go out when the merchant is back (G5)."""
    names = paused_id, removed_id = f"{acme}-paused", f"{acme}-removed"
    paused, removed = map(system.merchant, names)
    for merchant in (paused, removed):
        merchant.answers(BUSY)
    for name in names:
        widen_only(parts.gate(), merchant=name)
    waiting = {name: accept(5, name) for name in names}
    paused.wait_for(5, timeout=30)
    removed.wait_for(5, timeout=30)
    done("merchant", "pause", paused_id)
    done("merchant", "set", removed_id, "--no-url")
    fresh = {name: accept(5, name) for name in names}
    for merchant in (paused, removed):
        merchant.answers(200)
        merchant.forget()
    everything = [each for name in names for each in (*waiting[name], *fresh[name])]
    system.wait_for_state(State.HELD, *everything)
    assert paused.requests == removed.requests == []
    assert done("merchant", "show", paused_id)["held"] == {"operator": 10}
    assert done("merchant", "show", removed_id)["held"] == {"address": 10}
    done("merchant", "resume", paused_id)
    done("merchant", "set", removed_id, "--url", removed.url())
    system.wait_for_state(State.DELIVERED, *everything)
    assert [len(merchant.requests) for merchant in (paused, removed)] == [10, 10]


def test_a_request_that_went_out_twice_is_told_as_such(
    system: System, acme: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A kept connection closes without a byte, or with a 408: the merchant may have seen the POST; we say so (I4)."""
    merchant = system.merchant(acme)
    merchant.answers(200, Reply.raw(Close()), 200, Reply(408, close=True), 200)
    ids = [f"{acme}-{number}" for number in range(3)]
    for delivery_id in ids:
        deliver.delay({"id": delivery_id, "type": "kyc.status_changed", "merchant_id": acme})
        system.wait_for_state(State.DELIVERED, delivery_id)
    answered = SENT_TWICE_ANSWERED.format(status=408)
    for delivery_id, cause in ((ids[1], SENT_TWICE), (ids[2], answered)):
        (step,) = system.delivery(delivery_id)["journey"]
        assert (step["status"], step["cause"]) == (200, cause)
    system.wait_until(lambda: answered in caplog.text and SENT_TWICE in caplog.text, "it stands in the log as well")
    assert [request.webhook_id for request in merchant.requests] == [ids[0], ids[1], ids[1], ids[2], ids[2]]
