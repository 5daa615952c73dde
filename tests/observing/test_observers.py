"""Every sink hears every fact, and none of them can harm a delivery."""

from __future__ import annotations

from typing import NoReturn

import pytest

from tests import courier
from tests.system import System
from webhooks import parts
from webhooks.model import HeldFor, State
from webhooks.observing import facts
from webhooks.observing.facts import Fact, LedgerBack
from webhooks.observing.observers import Observers
from webhooks.observing.surroundings import SinkFailed
from webhooks.policy.decisions import Delivered


def deaf(fact: Fact) -> NoReturn:
    """A sink that always raises."""
    raise RuntimeError(fact.name)


def test_a_sink_that_raises_is_told_of_once() -> None:
    """Those that come before and behind it hear everything, and which one failed, and why."""
    before: list[Fact] = []
    behind: list[Fact] = []
    observers = Observers([before.append, deaf, behind.append])
    for _ in range(3):
        observers.tell(LedgerBack())
    failed = SinkFailed("deaf", "RuntimeError: ledger.back")
    assert sorted(before, key=str) == sorted(behind, key=str) == [LedgerBack()] * 3 + [failed]


def test_a_sink_that_worked_meanwhile_is_told_of_again() -> None:
    """As any outage is."""
    told: list[Fact] = []
    moods = iter([False, True, False])

    def moody(_fact: Fact) -> None:
        assert next(moods)

    observers = Observers([moody, told.append])
    for _ in range(3):
        observers.tell(LedgerBack())
    assert [type(fact) for fact in told] == [SinkFailed, LedgerBack, LedgerBack, SinkFailed, LedgerBack]


def test_a_sink_that_joins_hears_what_happens_from_then_on() -> None:
    """What a worker adds to what every process has."""
    before: list[Fact] = []
    joined: list[Fact] = []
    observers = Observers([before.append])
    observers.tell(facts.LedgerAway("no route"))
    observers.join(joined.append)
    observers.tell(LedgerBack())
    assert (len(before), joined) == (2, [LedgerBack()])


def test_two_sinks_that_raise_end_nothing() -> None:
    """Each fails at hearing of the other, too."""
    told: list[Fact] = []
    Observers([deaf, deaf, told.append]).tell(LedgerBack())
    Observers([deaf]).tell(LedgerBack())
    assert told.count(LedgerBack()) == 1
    assert [type(fact) for fact in told].count(SinkFailed) == 2


def test_a_delivery_is_made_whatever_listens(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its attempt is told, and that it was the last one; the sink that raises changes nothing."""
    told: list[Fact] = []
    monkeypatch.setattr(parts, "observers", lambda: Observers([deaf, told.append]))
    system.merchant("acme").answers(200)
    assert courier.send({"id": "evt-1", "type": "kyc.status_changed", "merchant_id": "acme"}) == Delivered()
    assert system.delivery("evt-1")["state"] == State.DELIVERED
    attempted, finished = (fact for fact in told if fact.name.startswith("delivery."))
    assert isinstance(attempted, facts.Attempted)
    assert (attempted.status, attempted.decision, attempted.late) == (200, Delivered(), False)
    assert finished == facts.Finished("evt-1", "acme", "acme", "kyc.status_changed", State.DELIVERED, None, money=False)


def test_a_tick_of_the_sweep_is_told(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it did and how long it took, and each delivery that it lets go; a tick that found another at work is not."""
    told: list[Fact] = []
    monkeypatch.setattr(parts, "observers", lambda: Observers([told.append]))
    message = courier.accept({"id": "evt-1", "type": "kyc.status_changed", "merchant_id": "acme"})
    courier.attempt(message)
    system.merchant("acme")
    swept = parts.sweeper().tick()
    assert swept.took.total_seconds() > 0
    assert parts.sweeper().tick(rest=swept.took * 1000) == facts.Swept()
    names = "evt-1", "acme", "acme", "kyc.status_changed"
    assert told == [facts.DeliveryHeld(*names, HeldFor.ADDRESS), facts.Released(*names, probe=False), swept]
