"""Planted faults: each breaks one promise of the product from outside, so that the drill can be seen to fail.

The drill starts its processes through this module: `python -m tests.faults.sabotage NAME worker …` breaks the promise
in that process and then runs Celery.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

from celery.bin.celery import main
from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert

from tests.faults import sabotage_of_endpoints
from webhooks import app
from webhooks.celery import channel
from webhooks.delivery import Courier
from webhooks.errors import LedgerUnavailable
from webhooks.ledger import database, driver, faults, transitions
from webhooks.ledger.backlog import Backlog, Due
from webhooks.ledger.ledger import Ledger
from webhooks.ledger.recording import Recording
from webhooks.ledger.tables import claims, deliveries
from webhooks.model import Message, Outcome, State, Written
from webhooks.policy.answers import meaning
from webhooks.sweep import Sweep
from webhooks.wire.sender import Sender


def the_lost_are_ignored() -> None:
    """The sweep never publishes what has no message."""
    Sweep._publish_due = lambda _self, _term, _span: 0  # type: ignore[method-assign, assignment]


def turns_are_not_compared() -> None:
    """A stale or doubled message counts as much as a live one."""
    claim = Ledger.claim

    def claim_at_any_turn(self: Ledger, message: Message) -> Any:
        found = self.database.rows(select(deliveries.c.turn).where(deliveries.c.id == message.id))
        return claim(self, replace(message, turn=found[0].turn) if found else message)

    Ledger.claim = claim_at_any_turn  # type: ignore[method-assign]


def acks_early() -> None:
    """A message is gone from the broker as soon as a worker has it."""
    app.conf.task_acks_late = False
    app.conf.task_reject_on_worker_lost = False
    app.tasks["webhooks.deliver"].acks_late = False
    app.tasks["webhooks.deliver"].reject_on_worker_lost = False


def answers_are_forgotten() -> None:
    """An answer that cannot be written down at once is not written down at all."""

    def give_up(self: Courier, delivery: Any, attempt: Any, decision: Any, spent: Any, *, queued: bool) -> Written:
        try:
            return self.ledger.finish(delivery, attempt, decision, spent, queued=queued)
        except LedgerUnavailable:
            return Written.LATE

    Courier._write_down = give_up  # type: ignore[method-assign]


def late_results_win() -> None:
    """A worker whose lease has run out overwrites what was decided meanwhile."""
    finish = Ledger.finish

    def overwrite(self: Ledger, delivery: Any, attempt: Any, decision: Any, spent: Any, *, queued: bool) -> Written:
        ours = finish(self, delivery, attempt, decision, spent, queued=queued)
        if ours is not Written.IN_TIME:
            after = transitions.after(decision, recover_after=self._recover_after if queued else timedelta())
            changes = {"state": after["the_state"], "reason": after["the_reason"], "sweep_at": after["the_sweep_at"]}
            changes["finished_at"] = func.now() if after["the_final"] else None
            self.database.rows(update(deliveries).where(deliveries.c.id == delivery.id).values(**changes))
        return ours

    Ledger.finish = overwrite  # type: ignore[method-assign]


def the_queued_are_republished() -> None:
    """The sweep publishes again whatever is past its due time, although its message still waits in the queue."""
    due = Backlog.due

    def all_due(self: Backlog, most: int, *, ahead: Any, still_queued_from: Any) -> Sequence[Due]:
        return due(self, most, ahead=ahead, still_queued_from=None)

    Backlog.due = all_due  # type: ignore[method-assign]
    Sweep.max_queued = property(lambda _self: 1_000_000, lambda _self, _value: None)  # type: ignore[assignment, misc]


def the_dead_are_believed() -> None:
    """A delivery whose worker died stays with it."""
    Backlog.bury = lambda _self: []  # type: ignore[method-assign, assignment]


def refusals_are_swallowed() -> None:
    """A producer hears that its event was accepted although the ledger was away."""
    record = Recording.record_many

    def swallow(self: Recording, events: Sequence[Any], **options: Any) -> Sequence[Message]:
        try:
            return record(self, events, **options)
        except LedgerUnavailable:
            return ()

    Recording.record_many = swallow  # type: ignore[method-assign]


def success_is_assumed() -> None:
    """Whatever the ledger has when a message comes is finished without a POST, now and then."""
    claim = Ledger.claim

    def assume(self: Ledger, message: Message) -> Any:
        if hash(message.id) % 50 == 0:
            self.database.rows(
                update(deliveries)
                .where(deliveries.c.id == message.id, deliveries.c.state == State.PENDING)
                .values(state=State.DELIVERED, finished_at=func.now(), sweep_at=None, queued_at=None)
            )
        return claim(self, message)

    Ledger.claim = assume  # type: ignore[method-assign]


def others_wait_behind() -> None:
    """Whoever sends waits a while, as long as any endpoint is down."""
    post, pause = Sender.post, threading.Event()
    failures: Counter[str] = Counter()

    def post_slowly(self: Sender, url: str, headers: Any, body: bytes) -> Any:
        if any(count > 3 for count in failures.values()):
            pause.wait(0.3)
        result = post(self, url, headers, body)
        failures[url] = failures[url] + 1 if meaning(result) is Outcome.UNAVAILABLE else 0
        return result

    Sender.post = post_slowly  # type: ignore[method-assign]


def places_are_kept() -> None:
    """A message that the broker can't be told about stays in its worker's window."""
    channel.use = lambda: None


def sessions_are_kept() -> None:
    """A session that refuses writes stays in the pool."""
    driver.condemns = faults.condemns = lambda code: code is None  # type: ignore[attr-defined]
    database.was_refused = lambda error: error is None  # type: ignore[attr-defined]


def faults_are_waited_out() -> None:
    """What the ledger refuses for good is tried again for ever, as if it were away."""
    named = faults.named

    def named_as_outage(error: Any) -> LedgerUnavailable:
        fault = named(error)
        return fault if isinstance(fault, LedgerUnavailable) else LedgerUnavailable(str(fault))

    database.named = named_as_outage  # type: ignore[attr-defined]


def claims_are_kept() -> None:
    """An attempt that was written down stays claimed."""
    finish = Ledger.finish

    def finish_and_claim(self: Ledger, delivery: Any, *args: Any, **options: Any) -> Written:
        ours = finish(self, delivery, *args, **options)
        kept = insert(claims).values(delivery_id=delivery.id, name=uuid4(), ends_at=func.now() + timedelta(hours=1))
        self.database.rows(kept.on_conflict_do_nothing().returning(claims.c.name))
        return ours

    Ledger.finish = finish_and_claim  # type: ignore[method-assign]


SABOTAGES: dict[str, Callable[[], None]] = {
    act.__name__.replace("_", "-"): act
    for act in (
        the_lost_are_ignored,
        turns_are_not_compared,
        acks_early,
        answers_are_forgotten,
        late_results_win,
        the_queued_are_republished,
        the_dead_are_believed,
        refusals_are_swallowed,
        success_is_assumed,
        others_wait_behind,
        places_are_kept,
        sessions_are_kept,
        faults_are_waited_out,
        claims_are_kept,
        *sabotage_of_endpoints.ACTS,
    )
}


def run() -> None:
    """Break what the first argument names, then be the `celery` command."""
    SABOTAGES[sys.argv.pop(1)]()
    sys.argv[1:1] = ["-A", "webhooks"]
    main()


if __name__ == "__main__":
    run()
