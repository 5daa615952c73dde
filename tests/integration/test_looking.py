"""What comes next for a delivery, and why, from ledger and gate together; an endpoint with all that is known."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.courier import accept
from tests.system import System
from webhooks import parts
from webhooks.errors import NotPossible
from webhooks.gate.values import Admitted
from webhooks.model import Changes, Delivery, HeldFor, Operator
from webhooks.operating import deliveries, endpoints, looking
from webhooks.operating.looking import Comes
from webhooks.policy.breaker import BreakerState, Effect
from webhooks.settings import get_settings

EVENT = {"id": "evt-1", "type": "refund.completed", "merchant_id": "acme"}
BY = Operator("ada", "a test")


@pytest.fixture
def acme(system: System) -> System:
    """A system that knows a merchant, whose breaker one failure opens."""
    system.set(breaker_min_attempts=1)
    parts.endpoints().set("acme", Changes(url="https://acme.example/", secret="s"))
    return system


def open_breaker() -> None:
    """Have an attempt fail."""
    admitted = parts.gate().admit("acme", "another")
    assert isinstance(admitted, Admitted)
    parts.gate().report("acme", admitted, Effect.FAILURE)


def comes() -> looking.Next:
    """Return what comes next for the delivery."""
    return looking.delivery("evt-1").next


def hold(held_for: HeldFor) -> None:
    """Have the delivery be held."""
    parts.ledger().hold(accept(EVENT), held_for)


def test_what_is_due_waits_for_a_worker_and_what_is_not_for_its_time(acme: System) -> None:
    """The second says when that is."""
    accept(EVENT)
    assert comes() == looking.Next(Comes.ATTEMPT, None, "attempt 1 is due, and waits for a worker")
    acme.sql("UPDATE deliveries SET due_at = now() + interval '1 hour', attempts = 3")
    told = comes()
    assert (told.what, told.why) == (Comes.ATTEMPT, "attempt 4 waits for its time")
    assert told.at == acme.delivery("evt-1")["due_at"]


def test_what_is_being_sent_waits_for_its_answer(acme: System) -> None:
    """An attempt that was claimed is under way."""
    assert isinstance(parts.ledger().claim(accept(EVENT)), Delivery)
    assert comes() == looking.Next(Comes.ANSWER, None, "attempt 1 is under way")


def test_after_an_end_nothing_comes(acme: System) -> None:
    """It says how it ended."""
    accept(EVENT)
    deliveries.cancel(BY, ["evt-1"])
    assert comes() == looking.Next(Comes.NOTHING, None, "it failed: cancelled; a replay would send it again")


def test_a_delivery_that_a_breaker_holds_waits_for_the_end_of_its_pause(acme: System) -> None:
    """The gate says until when that is; once the breaker works again, it goes in its turn."""
    open_breaker()
    hold(HeldFor.BREAKER)
    told = comes()
    assert (told.what, told.why) == (Comes.RELEASE, "its endpoint's breaker is open until then; then one may try")
    assert told.at is not None
    assert timedelta() < told.at - datetime.now(UTC) <= get_settings().breaker_pause
    parts.gate().reset("acme")
    assert comes().why == "what it was held for is over; it goes in its turn"


@pytest.mark.parametrize(
    ("held_for", "why"),
    [
        (HeldFor.LANE, "as many of its endpoint's deliveries as fit are on their way; it goes in its turn"),
        (HeldFor.RATE, "its endpoint gets no more attempts a second; it goes in its turn"),
        (HeldFor.REPLAY, "it is to be sent again, in its turn"),
    ],
)
def test_what_is_held_for_its_turn_says_so(acme: System, held_for: HeldFor, why: str) -> None:
    """There is no moment to name."""
    hold(held_for)
    assert comes() == looking.Next(Comes.RELEASE, None, why)


def test_what_keeps_all_of_an_endpoints_deliveries_comes_first(acme: System) -> None:
    """A pause by hand, or no address, whatever the delivery was held for at first."""
    hold(HeldFor.BREAKER)
    endpoints.pause(BY, "acme", paused=True)
    assert comes().why == "an operator has paused its endpoint"
    parts.endpoints().set("acme", Changes(url=None))
    assert comes().why == "its merchant has no address"


def test_with_the_gate_away_it_says_what_the_ledger_knows(system: System) -> None:
    """And why there is no more."""
    system.set(redis_url="redis://localhost:1/0")
    parts.endpoints().set("acme", Changes(url="https://acme.example/", secret="s"))
    hold(HeldFor.BREAKER)
    told = comes()
    assert (told.what, told.at) == (Comes.RELEASE, None)
    assert told.why.startswith("held for breaker; the gate's Redis cannot be used: ")
    look = looking.endpoint("acme")
    assert (look.breaker, look.performance.held) == (None, {HeldFor.BREAKER: 1})
    assert look.gate is not None


def test_an_endpoint_is_seen_with_its_breaker_and_answers(acme: System) -> None:
    """Of a merchant, each of its endpoints, and all of them together."""
    parts.endpoints().add("acme", "ep_other", Changes(url="https://other.example/", secret="s"))
    open_breaker()
    look = looking.endpoint("acme")
    assert look.breaker is not None
    assert (look.endpoint.id, look.breaker.state, look.gate) == ("acme", BreakerState.PAUSED, None)
    together, each = looking.merchant("acme")
    assert [one.endpoint.id for one in each] == ["acme", "ep_other"]
    assert together.day.attempts == 0
    with pytest.raises(NotPossible):
        looking.endpoint("nobody")
