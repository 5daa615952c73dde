"""Once a minute: what has become a notice is noted, and sent to those whom operators chose, in the way of nobody.

The sweep's worker does it, in a thread of its own, and one process at a time by a lease in the ledger. It switches
nothing off: a breaker goes on probing, and a delivery is sent as it would be.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from webhooks.errors import GateUnavailable, LedgerUnavailable
from webhooks.gate.values import Breaker
from webhooks.ledger.leases import Lease, Term
from webhooks.ledger.notices import NoticeRow
from webhooks.ledger.noticing import Noticing
from webhooks.observing.observers import Observers
from webhooks.observing.operators import NoticeSent, NoticesStopped, RecipientAway, RecipientBack, RecipientName
from webhooks.observing.outage import Outage
from webhooks.policy.breaker import BreakerState
from webhooks.telling.recipients import Recipient
from webhooks.telling.sharing import lacking, share
from webhooks.telling.wording import compose

TELLING = "notices"  # the lease
_EVERY = timedelta(minutes=1)
_SPAN_S = 45.0  # of a round, in which another message is begun


@dataclass(frozen=True, slots=True)
class TellingRules:
    """When a breaker that stays open is a notice, how many messages an hour may have, how long notices are kept."""

    after: timedelta
    per_hour: int
    keep: timedelta


class Teller:
    """Made once a process. `look` returns the breakers that have something to say, and raises GateUnavailable."""

    def __init__(
        self,
        lease: Lease,
        noticing: Noticing,
        look: Callable[[], Sequence[Breaker]],
        recipients: Sequence[Recipient],
        rules: TellingRules,
        observers: Observers,
    ) -> None:
        self._lease = lease
        self._noticing = noticing
        self._look = look
        self._recipients = recipients
        self._rules = rules
        self._observers = observers
        self._next_s = 0.0
        self._working = threading.Lock()
        self._trouble = Outage()
        self._away = {recipient.name: Outage() for recipient in recipients}

    def nudge(self) -> None:
        """Have a thread begin with a round, unless the last one began less than a minute ago or is still at it."""
        now_s = time.monotonic()
        if now_s < self._next_s or not self._working.acquire(blocking=False):
            return
        self._next_s = now_s + _EVERY.total_seconds()
        try:
            threading.Thread(target=self._round_and_free, name="notices", daemon=True).start()
        except RuntimeError:  # no thread can be started now
            self._working.release()

    def _round_and_free(self) -> None:
        try:
            self.round(rest=_EVERY / 2)
        except LedgerUnavailable as error:  # which is told by itself, once
            if not error.told_once:
                self._stopped(error)
        except Exception as error:  # whatever it is, the sweep goes on
            self._stopped(error)
        else:
            self._trouble.worked()
        finally:
            self._working.release()

    def _stopped(self, error: Exception) -> None:
        if self._trouble.failed():
            self._observers.tell(NoticesStopped(str(error)))

    def round(self, *, rest: timedelta = timedelta()) -> None:
        """Note and send what there is, unless another process is at it or was within `rest`.

        Raises LedgerUnavailable and LedgerFault; the next round goes on from there.
        """
        with self._lease.alone(rest) as term:
            if term:
                try:
                    self._note()
                finally:  # what has been noted is no worse for what could not be
                    self._send(term)

    def _note(self) -> None:
        self._noticing.tidy(self._rules.keep)
        self._noticing.failed()
        try:
            breakers = self._look()
        except GateUnavailable:
            return  # nobody knows whether they are still open; the ledger knows since when
        since = {each.endpoint_id: each.since for each in breakers if each.state is not BreakerState.WORKING}
        self._noticing.opened(since)
        self._noticing.only_open(list(since))
        self._noticing.ripen(self._rules.after)

    def _send(self, term: Term) -> None:
        if not self._recipients:
            return
        waiting, lately = self._noticing.waiting()
        ends_s = time.monotonic() + _SPAN_S
        broken: set[RecipientName] = set()
        for notices in share(waiting, per_hour=self._rules.per_hour, lately=lately):
            if time.monotonic() > ends_s:
                return
            self._tell(notices, broken)
            term.renew()

    def _tell(self, notices: Sequence[NoticeRow], broken: set[RecipientName]) -> None:
        """Send each recipient what has not reached it, in one message; one that failed in this round is left alone."""
        wanting = [each for each in self._recipients if lacking(each.name, notices)]
        asked = [each for each in wanting if each.name not in broken]
        if wanting and not asked:
            return
        claimed = self._noticing.claim([notice.id for notice in notices])
        if claimed is None:
            return  # somebody else has them
        notices = [notice for notice in notices if notice.id in claimed.ids]
        messages = {each: theirs for each in asked if (theirs := lacking(each.name, notices))}
        said = {each.name: each.tell(compose(theirs, claimed.now)) for each, theirs in messages.items()}
        reached = [name for name, each in said.items() if each.taken]
        broken |= said.keys() - set(reached)
        left = {each.name: "it was not tried again so soon" for each in wanting if each not in asked}
        trouble = left | {name: f"{each.words} {each.more}".strip() for name, each in said.items() if not each.taken}
        self._noticing.reached(
            [notice.id for notice in notices],
            reached,
            trouble="; ".join(f"{name}: {words}" for name, words in trouble.items()) or None,
        )
        for name, each in said.items():
            self._hear(name, None if each.taken else each.words)
        for recipient, (first, *others) in messages.items():
            if recipient.name in reached:
                whose = first.merchant_id, first.endpoint_id
                self._observers.tell(NoticeSent(first.id, first.kind, *whose, recipient.name, summed_up=len(others)))

    def _hear(self, name: RecipientName, why: str | None) -> None:
        """Say once that a recipient is away, and once that it is back."""
        if why is None:
            if self._away[name].worked():
                self._observers.tell(RecipientBack(name))
        elif self._away[name].failed():
            self._observers.tell(RecipientAway(name, why))
