"""The ledger in memory: one worker's view of the rules that `webhooks.ports.Ledger` states."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from tests.fakes.clock import FakeClock
from tests.fakes.trouble import Trouble
from webhooks.model import Attempt, Delivery, HeldFor, Message, Outcome, Reason, State, Unclaimed, Written, event_of
from webhooks.policy.decisions import Budgets, Decision, Delivered, Failed, RetryAt

EARLY = timedelta(seconds=0.2)  # so much too early is in time: clocks differ
SECRET = "a secret of the fakes"


@dataclass
class Row:
    """One delivery."""

    message: Message
    money: bool
    body: bytes
    due_at: datetime
    expires_at: datetime
    queued: bool = True
    state: State = State.PENDING
    reason: Reason | None = None
    held_for: HeldFor | None = None
    sending_since: datetime | None = None
    spent: Budgets = field(init=False)
    number: int = 0
    attempts: dict[int, Attempt] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.spent = Budgets(self.money, self.expires_at)

    @property
    def turn(self) -> int:
        """The turn that a live message carries."""
        return self.message.turn

    def move_on(self) -> None:
        """Make every message stale."""
        self.message = replace(self.message, turn=self.turn + 1)


class FakeLedger:
    """Deliveries, and the addresses of endpoints, by their ids; what is `removed` is so for all that was accepted."""

    def __init__(self, clock: FakeClock) -> None:
        self.rows: dict[str, Row] = {}
        self.addresses: dict[str, str] = {}
        self.paused: set[str] = set()
        self.removed: set[str] = set()
        self.trouble = Trouble()
        self._clock = clock

    def accept(self, delivery_id: str, merchant_id: str, event_type: str, *, money: bool = True) -> Message:
        """Record an event whose message is on its way."""
        now = self._clock.now
        message = Message(delivery_id, merchant_id, event_type, turn=0, queued_at=now)
        self.rows[delivery_id] = Row(
            message, money, b'{"id":"%s"}' % delivery_id.encode(), now, now + timedelta(days=30)
        )
        return message

    def claim(self, message: Message) -> Delivery | Unclaimed:
        """As Ledger.claim."""
        self.trouble.meet("claim")
        row = self._of_this_turn(message.id, message.turn)
        if row is None or row.expires_at <= self._clock.now:
            return Unclaimed.STALE if message.id in self.rows else Unclaimed.UNKNOWN
        if row.due_at > self._clock.now + EARLY:
            row.queued = False
            return Unclaimed.STALE
        if message.endpoint_id in self.removed:
            return Unclaimed.REMOVED
        if message.endpoint_id in self.paused:
            return Unclaimed.PAUSED
        if message.endpoint_id not in self.addresses:
            return Unclaimed.NO_ADDRESS
        row.move_on()
        row.number, row.sending_since = row.number + 1, self._clock.now
        return self._delivery(row, row.sending_since)

    def hold(self, message: Message, held_for: HeldFor) -> bool:
        """As Ledger.hold."""
        self.trouble.meet("hold")
        row = self._of_this_turn(message.id, message.turn)
        if row is None:
            return False
        row.move_on()
        row.state, row.held_for, row.queued = State.HELD, held_for, False
        return True

    def end_removed(self, message: Message) -> bool | None:
        """As Ledger.end_removed."""
        self.trouble.meet("end_removed")
        row = self._of_this_turn(message.id, message.turn)
        if row is None or message.endpoint_id not in self.removed:
            return None
        row.move_on()
        row.state, row.reason, row.queued = State.FAILED, Reason.CANCELLED, False
        return row.money

    def finish(
        self, delivery: Delivery, attempt: Attempt, decision: Decision, spent: Budgets, *, queued: bool
    ) -> Written:
        """As Ledger.finish."""
        self.trouble.meet("finish")
        row = self._of_this_attempt(delivery.id, delivery.turn)
        if row is None:
            return Written.IN_TIME if self._is_written(delivery, attempt) else self._finish_late(delivery, attempt)
        row.attempts[attempt.number] = attempt
        row.sending_since, row.spent = None, spent
        match decision:
            case Delivered():
                row.state = State.DELIVERED
            case Failed(reason=reason):
                row.state, row.reason = State.FAILED, reason
            case RetryAt(due_at=due_at):
                row.due_at = due_at
        row.queued = queued
        return Written.IN_TIME

    def hand_back(self, delivery_id: str, turn: int, wait: timedelta) -> None:
        """As Ledger.hand_back."""
        self.trouble.meet("hand_back")
        row = self._of_this_attempt(delivery_id, turn)
        if row is not None:
            row.move_on()
            row.number, row.sending_since = row.number - 1, None
            row.due_at, row.queued = self._clock.now + wait, False

    def unqueue(self, delivery_id: str, turn: int) -> None:
        """As Ledger.unqueue."""
        self.trouble.meet("unqueue")
        row = self._of_this_turn(delivery_id, turn)
        if row is not None:
            row.queued = False

    def is_recorded(self, delivery_id: str) -> bool:
        """As Ledger.is_recorded."""
        return delivery_id in self.rows

    def take_back(self, delivery_id: str) -> None:
        """Take a delivery from a worker that is silent: an attempt of unknown outcome, due again at once."""
        row = self.rows[delivery_id]
        assert row.sending_since
        row.attempts[row.number] = Attempt(row.number, row.sending_since, None, Outcome.UNKNOWN)
        row.move_on()
        row.sending_since, row.due_at, row.queued = None, self._clock.now, False

    def replay(self, delivery_id: str) -> None:
        """Send a finished delivery again: fresh budgets and a fresh age."""
        row = self.rows[delivery_id]
        row.move_on()
        row.state, row.reason, row.held_for = State.HELD, None, HeldFor.REPLAY
        row.expires_at = self._clock.now + timedelta(days=30, seconds=1)
        row.spent = Budgets(row.money, row.expires_at)

    def _of_this_turn(self, delivery_id: str, turn: int) -> Row | None:
        row = self.rows.get(delivery_id)
        fits = row and row.turn == turn and row.state is State.PENDING and row.sending_since is None
        return row if fits else None

    def _of_this_attempt(self, delivery_id: str, turn: int) -> Row | None:
        row = self.rows.get(delivery_id)
        return row if row and row.turn == turn and row.sending_since is not None else None

    def _is_written(self, delivery: Delivery, attempt: Attempt) -> bool:
        row = self.rows[delivery.id]
        written = row.attempts.get(attempt.number)
        return row.turn == delivery.turn and written is not None and written.outcome is not Outcome.UNKNOWN

    def _finish_late(self, delivery: Delivery, attempt: Attempt) -> Written:
        row = self.rows[delivery.id]
        written = row.attempts.get(attempt.number)
        if written is None or written.outcome is Outcome.UNKNOWN:
            row.attempts[attempt.number] = replace(attempt, ladder=None)
        waits = row.state in {State.PENDING, State.HELD} and row.expires_at == delivery.expires_at
        if attempt.outcome is Outcome.DELIVERED and waits:
            row.move_on()
            row.state, row.held_for, row.sending_since, row.queued = State.DELIVERED, None, None, False
            return Written.LAST
        return Written.LATE

    def _delivery(self, row: Row, started_at: datetime) -> Delivery:
        return Delivery(
            id=row.message.id,
            event_id=event_of(row.message.id),
            endpoint_id=row.message.endpoint_id,
            merchant_id=row.message.merchant_id,
            type=row.message.type,
            turn=row.turn,
            number=row.number,
            started_at=started_at,
            due_at=row.due_at,
            money=row.money,
            expires_at=row.expires_at,
            fast_spent=row.spent.fast_spent,
            slow_spent=row.spent.slow_spent,
            slow_since=row.spent.slow_since,
            url=self.addresses[row.message.endpoint_id],
            secret=SECRET,
            body=row.body,
        )
