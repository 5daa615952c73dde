"""Messages of deliveries that are not in this ledger are told, and not more often than helps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.courier import attempt
from tests.integration.test_breaker import pause
from tests.system import System
from webhooks import parts
from webhooks.delivery import SetAside
from webhooks.model import Message
from webhooks.observing.facts import Fact
from webhooks.observing.observers import Observers
from webhooks.observing.surroundings import StrangersMet
from webhooks.process.strangers import Strangers


def test_they_are_told_once_a_minute_however_many_come() -> None:
    """The first at once, and from then on one a minute, with how many there were."""
    told: list[Fact] = []
    now_s = 0.0
    strangers = Strangers(Observers([told.append]), timedelta(minutes=1), clock=lambda: now_s)
    for number in range(120):
        now_s = float(number)
        strangers.met(f"evt-{number}")
    assert told == [StrangersMet(1, "evt-0"), StrangersMet(60, "evt-60")]


@pytest.mark.parametrize("breaker", ["working", "paused"])
def test_a_message_of_another_ledger_is_told(system: System, breaker: str, caplog: pytest.LogCaptureFixture) -> None:
    """Whether the gate lets it pass or holds it: nothing is sent, and a warning names its id."""
    merchant = system.merchant("acme")
    if breaker == "paused":
        pause(parts.gate(), "acme")
    foreign = Message("evt-foreign", "acme", "kyc.status_changed", turn=0, queued_at=datetime.now(UTC))
    assert attempt(foreign) == SetAside(None)
    (told,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "evt-foreign" in told.getMessage()
    assert "WEBHOOKS_NAMESPACE" in told.getMessage()
    assert merchant.requests == []
