"""The story with every part of it in memory."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from tests.fakes.clock import FakeClock, FakeStopping
from tests.fakes.gate import FakeGate
from tests.fakes.ledger import FakeLedger, Row
from tests.fakes.publisher import FakePublisher, FakeRelease
from tests.fakes.sender import FakeSender
from webhooks.delivery import Courier, Made, Moved, SetAside
from webhooks.gate.values import Admitted
from webhooks.model import Message
from webhooks.observing.facts import Fact
from webhooks.observing.observers import Observers
from webhooks.policy.breaker import BreakerRules, Effect
from webhooks.policy.decisions import Decision
from webhooks.policy.ladders import Ladders
from webhooks.process.clocks import WallClock
from webhooks.process.strangers import Strangers

HORIZON = timedelta(minutes=10)
SLOWEST_CLAIM = timedelta(seconds=5)


class Stage:
    """One worker, one merchant `acme` with an address, and one delivery `evt-1` whose message is at hand."""

    def __init__(self, *, money: bool = True) -> None:
        self.clock = FakeClock()
        self.stopping = FakeStopping(self.clock)
        self.ledger = FakeLedger(self.clock)
        self.gate = FakeGate(self.clock, BreakerRules())
        self.sender = FakeSender()
        self.publisher = FakePublisher(self.ledger)
        self.release = FakeRelease()
        self.told: list[Fact] = []
        observers = Observers([self.told.append])
        self.courier = Courier(
            ledger=self.ledger,
            gate=self.gate,
            sender=self.sender,
            ladders=Ladders(),
            publisher=self.publisher,
            release=self.release,
            may_count_down=lambda wait: wait <= HORIZON,
            slowest_claim=SLOWEST_CLAIM,
            stopping=self.stopping,
            wall_clock=WallClock(observers, self.clock),
            strangers=Strangers(observers, clock=self.clock.monotonic),
            observers=observers,
            time=self.clock,
        )
        self.ledger.addresses["acme"] = "https://acme.example/hook"
        self.message = self.ledger.accept("evt-1", "acme", "refund.completed", money=money)

    @property
    def row(self) -> Row:
        """The delivery as the ledger has it."""
        return self.ledger.rows["evt-1"]

    @property
    def in_flight(self) -> int:
        """How many leases the gate has given."""
        return self.gate.show("acme").in_flight

    def names_told(self) -> list[str]:
        """The names of what was told, in order."""
        return [fact.name for fact in self.told]

    def attempt(self, message: Message | None = None, **changed: object) -> Decision | SetAside | Moved:
        """Make the attempt that a message asks for, the one at hand unless it is another; return what follows."""
        result = replace(self.courier, **changed).attempt(message or self.message)  # type: ignore[arg-type]
        return result.decision if isinstance(result, Made) else result

    def open_breaker(self) -> None:
        """Let five other attempts fail."""
        for number in range(5):
            admitted = self.gate.admit("acme", f"other-{number}")
            assert isinstance(admitted, Admitted)
            self.gate.report("acme", admitted, Effect.FAILURE)
