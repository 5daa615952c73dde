"""The life of a delivery in the ledger: record, claim, hold, finish, hand back. One clock counts: the database's."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

from cryptography.fernet import InvalidToken, MultiFernet
from sqlalchemy import Row

from webhooks.errors import AnswerLost, LocalFault
from webhooks.ledger import statements
from webhooks.ledger.database import Database
from webhooks.ledger.decryption import Decryption
from webhooks.ledger.many import CLAIM_MANY, FINISH_MANY
from webhooks.ledger.recording import Recording
from webhooks.ledger.together import Together
from webhooks.ledger.transitions import after
from webhooks.model import Attempt, Delivery, HeldFor, Limits, Message, Outcome, Unclaimed, Written, event_of
from webhooks.policy.decisions import Budgets, Decision


class Ledger(Recording):
    """The deliveries in PostgreSQL, as the workers and producers use them.

    `max_age` is the absolute limit of a delivery's age, `lease` how long an attempt may hold its delivery, and
    `recover_after` how long past its due time a delivery without a sign of life is left to its message. `patience` is
    how long a producer waits for an event to be accepted.
    """

    def __init__(
        self,
        database: Database,
        cipher: MultiFernet,
        *,
        max_age: timedelta,
        lease: timedelta,
        recover_after: timedelta,
        patience: timedelta = timedelta(seconds=5),
    ) -> None:
        super().__init__(database, max_age=max_age, recover_after=recover_after, patience=patience)
        self._decryption = Decryption(cipher)
        self._lease = lease
        self._claims = Together(database, statements.CLAIM, CLAIM_MANY)
        self._finishes = Together(database, statements.FINISH, FINISH_MANY, repeatable=True)

    def unqueue(self, delivery_id: str, turn: int) -> None:
        """Note that a message could not be published after all: the sweep publishes it as soon as it is due."""
        with self.database.within(self._patience):
            self.database.rows(statements.UNQUEUE, {"the_id": delivery_id, "the_turn": turn}, repeatable=True)

    def unqueue_all(self, messages: Sequence[Message]) -> None:
        """Note it of several messages at once."""
        with self.database.within(self._patience):
            self.database.rows(statements.UNQUEUE_ALL, statements.turns_of(messages), repeatable=True)

    def is_of(self, event_id: str, merchant_id: str, event_type: str) -> bool:
        """Whether an event of this id was ever accepted, of this merchant and type."""
        values = {"the_id": event_id, "the_merchant_id": merchant_id, "the_type": event_type}
        return bool(self.database.rows(statements.IS_OF, values, repeatable=True))

    def is_recorded(self, delivery_id: str) -> bool:
        """Whether the event of this delivery was ever accepted."""
        return bool(self.database.rows(statements.IS_KNOWN, {"the_event_id": event_of(delivery_id)}, repeatable=True))

    def claim(self, message: Message) -> Delivery | Unclaimed:
        """Take a delivery for one attempt, or say why there is none.

        The turn moves on, so that every other message of this delivery is stale from here (I3).
        """
        claimed = self._claimed({**_turn_of(message), "the_lease": self._lease, "the_claim": uuid4()})
        return self._opened(claimed[0]) if claimed else self._why_not(message)

    def _claimed(self, values: dict[str, Any]) -> Sequence[Row[Any]]:
        """Claim once; where the answer was lost, the claim knows itself by its name.

        The lost statement may be under way yet: then the second claim waits for it, finds nothing, and it is done.
        """
        try:
            return self._claims.rows(values)
        except AnswerLost:
            return (
                self._claimed_before(values)
                or self.database.rows(statements.CLAIM, values)
                or self._claimed_before(values)
            )

    def _claimed_before(self, values: dict[str, Any]) -> Sequence[Row[Any]]:
        named = {name: values[name] for name in ("the_id", "the_claim")}
        return self.database.rows(statements.CLAIMED, named, repeatable=True)

    def _opened(self, row: Row[Any]) -> Delivery:
        values = row._asdict()
        try:
            values["secret"] = self._decryption.decrypted(bytes(row.secret))
            if row.previous_secret is not None:
                values["previous_secret"] = self._decryption.decrypted(bytes(row.previous_secret))
            values["headers"] = {
                name: self._decryption.decrypted(value.encode()) for name, value in row.headers.items()
            }
        except InvalidToken:
            self.hand_back(row.id, row.turn, timedelta(minutes=1))
            raise LocalFault(
                f"a secret of endpoint {row.endpoint_id} cannot be decrypted: WEBHOOKS_SECRETS_KEY lacks its key"
            ) from None
        values["body"] = bytes(row.body)
        values["limits"] = Limits(values.pop("lane"), values.pop("rate"))
        return Delivery(**values)

    def _why_not(self, message: Message) -> Unclaimed:
        """Tell apart, off the common path, why a claim found nothing."""
        found = self.database.rows(statements.UNCLAIMED, _turn_of(message), repeatable=True)
        if not found:
            return Unclaimed.STALE if self.is_recorded(message.id) else Unclaimed.UNKNOWN
        if found[0].too_early:
            self.unqueue(message.id, message.turn)  # the sweep publishes it in time
            return Unclaimed.STALE
        if found[0].removed:
            return Unclaimed.REMOVED
        if found[0].paused_at:
            return Unclaimed.PAUSED
        return Unclaimed.NO_ADDRESS if found[0].url is None else Unclaimed.STALE

    def end_removed(self, message: Message) -> bool | None:
        """End a delivery whose endpoint was removed. Returns whether it is money; None: not this turn's to end."""
        rows = self.database.rows(statements.END_REMOVED, _turn_of(message))
        return bool(rows[0].money) if rows else None

    def hold(self, message: Message, held_for: HeldFor) -> bool:
        """Put a delivery aside without an attempt and without a message. Returns whether it was this turn's to hold."""
        values = {**_turn_of(message), "the_held_for": held_for}
        return bool(self.database.rows(statements.HOLD, values, repeatable=True))

    def finish(
        self, delivery: Delivery, attempt: Attempt, decision: Decision, spent: Budgets, *, queued: bool
    ) -> Written:
        """Write down an attempt and what follows from it, in one statement; with others that come at once.

        `queued` says that the caller publishes the message of a retry right away. It is late when the lease had run out
        and somebody else took over: then only what is still unknown of this attempt is filled in, and what is final
        stays (I8); but a 2xx ends what still waits.
        """
        values = {
            "the_id": delivery.id,
            "the_turn": delivery.turn,
            "the_queued": queued,
            "the_fast_spent": spent.fast_spent,
            "the_slow_spent": spent.slow_spent,
            "the_slow_since": spent.slow_since,
            **after(decision, recover_after=self._recover_after if queued else timedelta()),
            **_values_of(attempt),
        }
        if self._finishes.rows(values):
            return Written.IN_TIME
        written = {name: values[name] for name in ("the_id", "the_turn", "the_number", "the_started_at")}
        if self.database.rows(statements.WRITTEN, written, repeatable=True):
            return Written.IN_TIME  # by this statement, when its answer was lost
        return self._finish_late(delivery, attempt)

    def _finish_late(self, delivery: Delivery, attempt: Attempt) -> Written:
        late = {
            **_values_of(attempt),
            "the_id": delivery.id,
            "the_endpoint_id": delivery.endpoint_id,
            "the_ladder": None,
        }  # it came too late to be charged
        with self.database.transaction() as both:
            both.rows(statements.FINISH_LATE, late)
            if attempt.outcome is not Outcome.DELIVERED:
                return Written.LATE
            ended = both.rows(statements.DELIVER_LATE, {"the_id": delivery.id, "the_expires_at": delivery.expires_at})
        return Written.LAST if ended else Written.LATE

    def hand_back(self, delivery_id: str, turn: int, wait: timedelta) -> None:
        """Undo a claim that led to no POST: a fault of ours spends nothing (I10). It is tried again after `wait`."""
        values = {"the_id": delivery_id, "the_turn": turn, "the_wait": wait}
        self.database.rows(statements.HAND_BACK, values, repeatable=True)


def _turn_of(message: Message) -> dict[str, Any]:
    return {"the_id": message.id, "the_turn": message.turn}


def _values_of(attempt: Attempt) -> dict[str, Any]:
    duration = None if attempt.duration is None else round(attempt.duration / timedelta(milliseconds=1))
    return {
        "the_number": attempt.number,
        "the_started_at": attempt.started_at,
        "the_duration_ms": duration,
        "the_outcome": attempt.outcome,
        "the_status": attempt.status,
        "the_cause": attempt.cause,
        "the_excerpt": attempt.excerpt,
        "the_ladder": attempt.ladder,
        "the_probe": attempt.probe,
    }
