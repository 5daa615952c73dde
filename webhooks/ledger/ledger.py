"""The life of a delivery, as single statements: record, claim, hold, finish, hand back.

Every statement compares the turn, so that a stale message or a late worker changes nothing (I3, I8). One clock counts:
the database's.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from cryptography.fernet import InvalidToken, MultiFernet
from sqlalchemy import Row, Select, Update, func, literal, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.sql.dml import ReturningInsert

from webhooks.errors import EventConflict, LedgerUnavailable
from webhooks.intake import Event
from webhooks.ledger.database import Database
from webhooks.ledger.tables import attempts, deliveries, merchants
from webhooks.model import Attempt, Delivery, HeldFor, Message, Outcome, State, Unclaimed
from webhooks.policy.decisions import Budgets, Decision, Delivered, Failed, RetryAt

_NOW = func.now()

_CLAIMED = deliveries.c[
    "id", "merchant_id", "type", "turn", "money", "expires_at", "fast_spent", "slow_spent", "slow_since"
]


class Ledger:
    """The deliveries in PostgreSQL, as the workers and producers use them.

    `max_age` is the absolute limit of a delivery's age, `lease` how long an attempt may hold its delivery, and
    `recover_after` how long past its due time a delivery without a sign of life is left to its message.
    """

    def __init__(
        self, database: Database, cipher: MultiFernet, *, max_age: timedelta, lease: timedelta, recover_after: timedelta
    ) -> None:
        self.database = database
        self._cipher = cipher
        self.max_age = max_age
        self._lease = lease
        self._recover_after = recover_after

    def record(self, event: Event, *, wait: timedelta = timedelta(), queued: bool = True) -> Message | None:
        """Accept an event; its first attempt is due after `wait`.

        `queued` says that the caller publishes a message right away. Returns that message, or None when the event was
        accepted before. Raises EventConflict when its id stands for another body, and LedgerUnavailable.
        """
        statement = recording(event, self.max_age, wait=wait, recover_after=self._recover_after if queued else None)
        new = self.database.rows(statement)
        if new:
            return Message(event.id, event.merchant_id, event.type, turn=0, queued_at=new[0].accepted_at)
        known = self.database.rows(digest_of(event.id))
        if known and bytes(known[0].body_sha256) != event.body_sha256:
            raise EventConflict.of(event.id)
        return None

    def unqueue(self, delivery_id: str, turn: int) -> None:
        """Note that a message could not be published after all: the sweep publishes it as soon as it is due."""
        self.database.rows(_turn_of(delivery_id, turn).values(sweep_at=deliveries.c.due_at, queued_at=None))

    def is_recorded(self, delivery_id: str) -> bool:
        """Whether a delivery of this id was ever accepted."""
        return bool(self.database.rows(select(deliveries.c.id).where(deliveries.c.id == delivery_id)))

    def claim(self, message: Message) -> Delivery | Unclaimed:
        """Take a delivery for one attempt, or say why there is none.

        The turn moves on, so that every other message of this delivery is stale from here (I3).
        """
        claimed = self.database.rows(
            _turn_of(message.id, message.turn)
            .where(
                deliveries.c.expires_at > _NOW,
                merchants.c.id == deliveries.c.merchant_id,
                merchants.c.url.is_not(None),
                merchants.c.paused_at.is_(None),
            )
            .values(
                turn=deliveries.c.turn + 1,
                attempts=deliveries.c.attempts + 1,
                sending_since=_NOW,
                sweep_at=_NOW + self._lease,
            )
            .returning(
                *_CLAIMED,
                deliveries.c.attempts.label("number"),
                deliveries.c.sending_since.label("started_at"),
                deliveries.c.body,
                merchants.c.url,
                merchants.c.secret,
            )
        )
        return self._opened(claimed[0]) if claimed else self._why_not(message)

    def _opened(self, row: Row[Any]) -> Delivery:
        values = row._asdict()
        try:
            values["secret"] = self._cipher.decrypt(bytes(row.secret)).decode()
        except InvalidToken:
            self.hand_back(row.id, row.turn, timedelta(minutes=1))
            raise LedgerUnavailable(
                f"the secret of merchant {row.merchant_id} cannot be decrypted: WEBHOOKS_SECRETS_KEY lacks its key"
            ) from None
        values["body"] = bytes(row.body)
        return Delivery(**values)

    def _why_not(self, message: Message) -> Unclaimed:
        """Tell apart, off the common path, why a claim found nothing."""
        found = self.database.rows(
            select(merchants.c.url, merchants.c.paused_at)
            .select_from(deliveries.outerjoin(merchants, merchants.c.id == deliveries.c.merchant_id))
            .where(
                deliveries.c.id == message.id,
                deliveries.c.turn == message.turn,
                deliveries.c.state == State.PENDING,
                deliveries.c.sending_since.is_(None),
                deliveries.c.expires_at > _NOW,  # what is past its age is the sweep's to fail
            )
        )
        if not found:
            return Unclaimed.STALE
        if found[0].paused_at:
            return Unclaimed.PAUSED
        return Unclaimed.NO_ADDRESS if found[0].url is None else Unclaimed.STALE

    def hold(self, message: Message, held_for: HeldFor) -> bool:
        """Put a delivery aside without an attempt and without a message. Returns whether it was this turn's to hold."""
        held = self.database.rows(
            _turn_of(message.id, message.turn)
            .values(state=State.HELD, held_for=held_for, turn=deliveries.c.turn + 1, sweep_at=None, queued_at=None)
            .returning(deliveries.c.id)
        )
        return bool(held)

    def finish(self, delivery: Delivery, attempt: Attempt, decision: Decision, spent: Budgets, *, queued: bool) -> bool:
        """Write down an attempt and what follows from it, in one statement.

        `queued` says that the caller publishes the message of a retry right away. Returns False when the lease had run
        out and somebody else took over: then only what is still unknown of this attempt is filled in, and what is final
        stays (I8).
        """
        changed = (
            update(deliveries)
            .where(
                deliveries.c.id == delivery.id,
                deliveries.c.turn == delivery.turn,
                deliveries.c.sending_since.is_not(None),
            )
            .values(
                **self._after(decision, queued=queued),
                sending_since=None,
                silent_since=None,
                fast_spent=spent.fast_spent,
                slow_spent=spent.slow_spent,
                slow_since=spent.slow_since,
            )
            .returning(deliveries.c.id)
            .cte("changed")
        )
        values = _attempt_values(delivery.id, attempt)
        columns = [attempts.c[name] for name in values]
        row = select(*(literal(value, attempts.c[name].type) for name, value in values.items())).select_from(changed)
        written = self.database.rows(
            insert(attempts).from_select(columns, row).on_conflict_do_nothing().returning(attempts.c.number)
        )
        return bool(written) or self._finish_late(delivery, attempt)

    def _after(self, decision: Decision, *, queued: bool) -> dict[str, Any]:
        match decision:
            case Delivered():
                return {"state": State.DELIVERED, "finished_at": _NOW, "sweep_at": None, "queued_at": None}
            case Failed(reason=reason):
                return {
                    "state": State.FAILED,
                    "reason": reason,
                    "finished_at": _NOW,
                    "sweep_at": None,
                    "queued_at": None,
                }
            case RetryAt(due_at=due_at):
                sweep_at = due_at + self._recover_after if queued else due_at
                return {"due_at": due_at, "sweep_at": sweep_at, "queued_at": _NOW if queued else None}

    def _finish_late(self, delivery: Delivery, attempt: Attempt) -> bool:
        values = _attempt_values(delivery.id, attempt)
        self.database.rows(
            insert(attempts)
            .values(values)
            .on_conflict_do_update(
                index_elements=["delivery_id", "number"], set_=values, where=attempts.c.outcome == Outcome.UNKNOWN
            )
        )
        if attempt.outcome is Outcome.DELIVERED:
            # The merchant has it: another attempt would be a second copy for nothing.
            self.database.rows(
                update(deliveries)
                .where(deliveries.c.id == delivery.id, deliveries.c.state.in_([State.PENDING, State.HELD]))
                .values(
                    **self._after(Delivered(), queued=False),
                    held_for=None,
                    sending_since=None,
                    silent_since=None,
                    turn=deliveries.c.turn + 1,
                )
            )
        return False

    def hand_back(self, delivery_id: str, turn: int, wait: timedelta) -> None:
        """Undo a claim that led to no POST: a fault of ours spends nothing (I10). It is tried again after `wait`."""
        self.database.rows(
            update(deliveries)
            .where(deliveries.c.id == delivery_id, deliveries.c.turn == turn, deliveries.c.sending_since.is_not(None))
            .values(
                attempts=deliveries.c.attempts - 1,
                turn=deliveries.c.turn + 1,
                sending_since=None,
                silent_since=None,
                due_at=_NOW + wait,
                sweep_at=_NOW + wait,
                queued_at=None,
            )
        )


def recording(
    event: Event, max_age: timedelta, *, wait: timedelta = timedelta(), recover_after: timedelta | None = None
) -> ReturningInsert[Any]:
    """Return the statement that accepts an event; it returns a row when the event is new.

    Without `recover_after` no message is on its way, and the sweep publishes as soon as the delivery is due.
    """
    now = func.statement_timestamp()  # a caller's transaction may have begun long ago
    return (
        insert(deliveries)
        .values(
            id=event.id,
            merchant_id=event.merchant_id,
            type=event.type,
            money=event.money,
            body=event.body,
            body_sha256=event.body_sha256,
            due_at=now + wait,
            sweep_at=now + wait + (recover_after or timedelta()),
            queued_at=None if recover_after is None else now,
            accepted_at=now,
            expires_at=now + max_age,
        )
        .on_conflict_do_nothing(index_elements=["id"])
        .returning(deliveries.c.accepted_at)
    )


def digest_of(delivery_id: str) -> Select[tuple[bytes]]:
    """Return the statement that asks for the digest of an accepted body."""
    return select(deliveries.c.body_sha256).where(deliveries.c.id == delivery_id)


def _turn_of(delivery_id: str, turn: int) -> Update:
    """Start an update of a pending delivery that nobody is sending, if it is still this turn's."""
    return update(deliveries).where(
        deliveries.c.id == delivery_id,
        deliveries.c.turn == turn,
        deliveries.c.state == State.PENDING,
        deliveries.c.sending_since.is_(None),
    )


def _attempt_values(delivery_id: str, attempt: Attempt) -> dict[str, Any]:
    return {
        "delivery_id": delivery_id,
        "number": attempt.number,
        "started_at": attempt.started_at,
        "duration_ms": None if attempt.duration is None else round(attempt.duration / timedelta(milliseconds=1)),
        "outcome": attempt.outcome,
        "status": attempt.status,
        "cause": attempt.cause,
        "excerpt": attempt.excerpt,
        "ladder": attempt.ladder,
        "probe": attempt.probe,
    }
