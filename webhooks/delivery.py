"""THE STORY: one attempt of one delivery, top to bottom.

Admit; load; send; decide; tell the gate; write it down; reschedule. Everything else in this package serves these steps;
what they need of it stands in `ports.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from webhooks.errors import LedgerBusy, LedgerUnavailable, LocalFault
from webhooks.gate.values import Admitted, Busy, Held, Report, Slow
from webhooks.model import Answer, Attempt, Delivery, HeldFor, Message, Reason, Refusal, Silence, Unclaimed, Written
from webhooks.observing import facts
from webhooks.observing.observers import Observers
from webhooks.policy.answers import meaning
from webhooks.policy.breaker import Effect, effect_of
from webhooks.policy.decisions import AFTER_OUR_FAULT, Budgets, Decision, Delivered, Failed, RetryAt, decide
from webhooks.policy.ladders import Ladders
from webhooks.ports import Gate, Ledger, Publisher, Release, Sender, Stopping
from webhooks.process.clocks import Clock, LedgerClock, WallClock
from webhooks.process.strangers import Strangers
from webhooks.wire.request import signed_headers

SENT_TWICE = "sent twice: a kept connection closed without an answer"
SENT_TWICE_ANSWERED = "sent twice: a kept connection answered {status}, which says nothing about this delivery"
_LAST_TRIES = 3  # to write down an answer once the process is told to stop: a failover may just be over
_LONGEST_LEDGER_WAIT = 2.0  # seconds between tries to write down an answer


@dataclass(frozen=True, slots=True)
class Made:
    """The attempt was made, and this follows from it."""

    attempt: Attempt
    decision: Decision


@dataclass(frozen=True, slots=True)
class SetAside:
    """Nothing follows: the delivery is held for something, or (None) the message was stale or the attempt too late.

    `until` is when the breaker's pause ends, where that is what it is held for.
    """

    held_for: HeldFor | None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Moved:
    """It goes on in the queue of the slow endpoints, where it holds up no quick one."""


@dataclass(frozen=True, slots=True)
class Courier:
    """Carries deliveries to their merchants; made once a process and shared by its threads."""

    ledger: Ledger
    gate: Gate
    sender: Sender
    ladders: Ladders
    publisher: Publisher
    release: Release
    may_count_down: Callable[[timedelta], bool]
    slowest_claim: timedelta  # from here on the gate's lease may end before the attempt does
    stopping: Stopping
    wall_clock: WallClock
    strangers: Strangers
    observers: Observers
    time: Clock = time

    def attempt(self, message: Message) -> Made | Failed | SetAside | Moved:
        """Make one attempt of the delivery that `message` names, and return it with what follows.

        Failed where the delivery has ended without one: its endpoint is gone. Raises Unavailable for a fault of ours
        before the POST: nothing is spent, and it is tried again (I10).
        """
        admitted_by = self.time.monotonic() + self.slowest_claim.total_seconds()
        admission = self.gate.admit(message.endpoint_id, message.id, message.slot, message.limits, slow=message.slow)
        if not isinstance(admission, Admitted):
            return self._turned_away(message, admission)
        asked_at = self.time.monotonic()
        delivery = self._load(message, admission)
        if not isinstance(delivery, Delivery):
            return self._left_alone(message, admission, delivery)
        self._in_time(delivery, admission, admitted_by)
        clock = LedgerClock(delivery.started_at, asked_at, self.time)
        self.wall_clock.compare(clock)
        result = self._send(delivery, admission, clock)
        duration, ended_at = clock.since_start(), clock.latest()
        decision, spent = decide(self.ladders, _budgets(delivery), result, ended_at)
        attempt = _attempt(delivery, duration, result, decision, probe=admission.probe)
        retry = self._near(decision, ended_at)
        report = self._tell_gate(delivery, admission, attempt)
        written = self._write_down(delivery, attempt, decision, spent, queued=retry is not None)
        self._tell(message, delivery, attempt, decision, written)
        self.release.next_of(delivery.endpoint_id, report.slots, slow=report.slow)
        if retry and written is Written.IN_TIME:
            self._reschedule(delivery, retry, clock.earliest())
        # Too late, and nothing follows: somebody else has the delivery, or it has ended.
        counts = written is Written.IN_TIME or isinstance(decision, Delivered)
        return Made(attempt, decision) if counts else SetAside(None)

    def _turned_away(self, message: Message, admission: Held | Busy | Slow) -> SetAside | Moved:
        """Hold what the gate holds: a row that nobody touches, and no message; what is slow goes where the slow go."""
        if isinstance(admission, Slow):
            self.publisher.publish(replace(message, slot=admission.slot, slow=True), timedelta())
            return Moved()
        if isinstance(admission, Busy):
            self.ledger.unqueue(message.id, message.turn)  # where a lost report left its lease, the sweep asks again
            return SetAside(None)
        aside = self._hold(message, admission.why, admission.until)
        if aside.held_for is None and not self.ledger.is_recorded(message.id):
            self.strangers.met(message.id)
        return aside

    def _hold(self, message: Message, held_for: HeldFor, until: datetime | None = None) -> SetAside:
        if not self.ledger.hold(message, held_for):
            return SetAside(None)
        self.observers.tell(facts.DeliveryHeld.of(message, held_for))
        return SetAside(held_for, until)

    def _load(self, message: Message, admission: Admitted) -> Delivery | Unclaimed:
        try:
            return self.ledger.claim(message)
        except Exception:  # whatever it is, the lease must not stand for it
            self.gate.report(message.endpoint_id, admission, Effect.NOTHING, message.limits)
            raise

    def _in_time(self, delivery: Delivery, admission: Admitted, admitted_by: float) -> None:
        """Hand back what was claimed so slowly that the gate may admit another probe while this one is out (I5)."""
        if self.time.monotonic() > admitted_by:
            self._hand_back(delivery, admission, timedelta())
            raise LedgerBusy("the ledger is busy: the claim took too long, and was handed back")

    def _hand_back(self, delivery: Delivery, admission: Admitted, wait: timedelta) -> None:
        self.gate.report(delivery.endpoint_id, admission, Effect.NOTHING, delivery.limits)
        self.ledger.hand_back(delivery.id, delivery.turn, wait)

    def _left_alone(self, message: Message, admission: Admitted, why: Unclaimed) -> SetAside | Failed:
        self.gate.report(message.endpoint_id, admission, Effect.NOTHING, message.limits)
        match why:
            case Unclaimed.NO_ADDRESS:
                return self._hold(message, HeldFor.ADDRESS)
            case Unclaimed.PAUSED:
                return self._hold(message, HeldFor.OPERATOR)
            case Unclaimed.REMOVED:
                money = self.ledger.end_removed(message)
                if money is None:
                    return SetAside(None)
                self.observers.tell(facts.Finished.cancelled(message, money=money))
                return Failed(Reason.CANCELLED)
            case Unclaimed.UNKNOWN:
                self.strangers.met(message.id)
                return SetAside(None)
            case Unclaimed.STALE:
                return SetAside(None)

    def _send(self, delivery: Delivery, admission: Admitted, clock: LedgerClock) -> Answer | Silence | Refusal:
        """Sign and POST. A fault of ours that came before the last byte was out is raised, and the claim taken back.

        Of anything else that is raised nobody knows when it came: the lease runs out, and the outcome is unknown (I4).
        """
        try:
            return self.sender.post(delivery.url, signed_headers(delivery, clock.earliest()), delivery.body)
        except LocalFault:
            self._hand_back(delivery, admission, AFTER_OUR_FAULT)
            raise
        except Exception:
            self.gate.report(delivery.endpoint_id, admission, Effect.NOTHING, delivery.limits)
            raise

    def _write_down(
        self, delivery: Delivery, attempt: Attempt, decision: Decision, spent: Budgets, *, queued: bool
    ) -> Written:
        """Record the attempt, however long the ledger is away: what was answered must not be sent again for nothing.

        Raises LedgerUnavailable when the process is told to stop meanwhile, and LedgerFault for what waiting does not
        mend: either way the sweep takes the delivery back, as of an attempt whose outcome nobody knows.
        """
        wait, last_tries = 0.1, _LAST_TRIES
        while True:
            try:
                return self.ledger.finish(delivery, attempt, decision, spent, queued=queued)
            except LedgerUnavailable:
                if not last_tries:
                    raise
                if self.stopping.wait(wait):
                    last_tries -= 1
                    self.time.sleep(wait)
                wait = min(2 * wait, _LONGEST_LEDGER_WAIT)

    def _tell_gate(self, delivery: Delivery, admission: Admitted, attempt: Attempt) -> Report:
        """Move the breaker, while the lease lasts: before the ledger, which may be away for longer.

        Where the endpoint has held deliveries, the report says how many may go next.
        """
        effect = effect_of(attempt.outcome)
        report = self.gate.report(delivery.endpoint_id, admission, effect, delivery.limits, attempt.duration)
        if report.opened:
            self.observers.tell(facts.BreakerOpened(delivery.merchant_id, delivery.endpoint_id))
        if report.closed:
            self.observers.tell(facts.BreakerClosed(delivery.merchant_id, delivery.endpoint_id))
        return report

    def _tell(
        self, message: Message, delivery: Delivery, attempt: Attempt, decision: Decision, written: Written
    ) -> None:
        """Say what an attempt came to; one that was too late finishes nothing, unless its 2xx was the last word."""
        late = written is not Written.IN_TIME
        self.observers.tell(facts.Attempted.of(message, delivery, attempt, decision, late=late))
        if written is not Written.LATE and not isinstance(decision, RetryAt):
            self.observers.tell(facts.Finished.of(delivery, decision))

    def _near(self, decision: Decision, now: datetime) -> RetryAt | None:
        """Return a retry that counts down in the broker; one that is far waits in the ledger, for the sweep."""
        if isinstance(decision, RetryAt) and self.may_count_down(decision.due_at - now):
            return decision
        return None

    def _reschedule(self, delivery: Delivery, retry: RetryAt, now: datetime) -> None:
        message = Message(
            delivery.id,
            delivery.merchant_id,
            delivery.type,
            delivery.turn,
            queued_at=now,
            limits=delivery.limits,
            may_wait=True,
            retries=delivery.number,
        )
        self.publisher.publish(message, max(retry.due_at - now, timedelta()))


def _budgets(delivery: Delivery) -> Budgets:
    return Budgets(
        money=delivery.money,
        expires_at=delivery.expires_at,
        fast_spent=delivery.fast_spent,
        slow_spent=delivery.slow_spent,
        slow_since=delivery.slow_since,
    )


def _attempt(
    delivery: Delivery, duration: timedelta, result: Answer | Silence | Refusal, decision: Decision, *, probe: bool
) -> Attempt:
    return Attempt(
        number=delivery.number,
        started_at=delivery.started_at,
        duration=duration,
        outcome=meaning(result),
        status=result.status if isinstance(result, Answer) else None,
        cause=_cause(result),
        excerpt=result.excerpt if isinstance(result, Answer) else None,
        ladder=None if isinstance(decision, Delivered) else decision.ladder,
        probe=probe,
    )


def _cause(result: Answer | Silence | Refusal) -> str | None:
    """Say in a few words what the status does not; that the merchant may have seen it twice among them (I4)."""
    match result:
        case Answer(redirect_host=str(host)):
            cause = f"redirects to {host}"
        case Answer():
            cause = ""
        case Silence(cause=cause) | Refusal(cause=cause):
            pass
    if isinstance(result, Refusal) or not result.resent:
        return cause or None
    twice = SENT_TWICE_ANSWERED.format(status=result.stale_status) if result.stale_status else SENT_TWICE
    return f"{cause}; {twice}" if cause else twice
