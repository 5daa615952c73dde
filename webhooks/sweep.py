"""The sweep: once a second, what is far, lost, expired or held gets what it waits for.

It asks per endpoint and takes bounded batches, so that an idle tick costs the same with a million deliveries held (I7).
Several sweeps at once do no harm: one works, the others leave.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

from webhooks.errors import LedgerFault
from webhooks.gate.resilient import ResilientGate
from webhooks.gate.values import LimitsOf, MayProbe, MayRelease, Wait
from webhooks.ledger.backlog import Backlog, HeldEndpoints
from webhooks.ledger.leases import Lease, Term
from webhooks.observing.facts import Swept
from webhooks.observing.observers import Observers
from webhooks.publishing import Publisher
from webhooks.release import Release

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Sighting:
    """How a queue of the broker's stands: how many messages wait there, since when, and which comes next.

    Nothing that was published before `waits_from` waits any more; None: nothing of ours waits. `oldest` is since when
    the oldest does, None where that can't be told. Both are moments of the ledger's clock. `next` changes when a
    message is taken; None where there is none, or nobody can tell.
    """

    depth: int
    waits_from: datetime | None
    oldest: datetime | None = None
    next: int | None = None


@dataclass(frozen=True, slots=True)
class Sweep:
    """One tick's work. `look_at_queue` raises BrokerUnavailable; `lease` asks whether somebody is silent."""

    lease: Lease
    backlog: Backlog
    gate: ResilientGate
    publisher: Publisher
    release: Release
    look_at_queue: Callable[[], Sighting]
    max_queued: int
    ahead: timedelta
    observers: Observers

    def tick(self, *, rest: timedelta = timedelta()) -> Swept:
        """Do what is due now, unless another tick is at it or was done within `rest`.

        Raises Unavailable when the ledger or the broker is away, and LedgerFault when a step was refused for good,
        after the others; the next tick tries again.
        """
        began_s = time.monotonic()
        with self.lease.alone(rest) as term:
            if not term:
                return Swept()
            swept = self._work(term)
        swept = replace(swept, took=timedelta(seconds=time.monotonic() - began_s))
        self.observers.tell(swept)
        return swept

    def _work(self, term: Term) -> Swept:
        """Take every step, also past one that the ledger refuses for good: that one stands still, and no other."""
        refused: list[LedgerFault] = []

        def step(work: Callable[[], _T], otherwise: _T) -> _T:
            try:
                return work()
            except LedgerFault as fault:
                refused.append(fault)
                return otherwise

        expired = step(self.backlog.expire, 0)
        buried = step(self._bury, 0) if term.asked else 0
        published = step(lambda: self._publish_due(term), 0)
        held = step(self.backlog.held_endpoints, HeldEndpoints({}, ()))
        ended = step(lambda: self.backlog.end_removed(held.removed), 0) if held.removed else 0
        probes, released = step(lambda: self._ask_for_the_held(term, held.limits), (0, 0))
        for fault in refused:
            raise fault  # so that this tick does not count as done
        return Swept(expired, buried, published, probes, released, ended)

    def _bury(self) -> int:
        self.backlog.suspect()
        return self.backlog.bury()

    def _publish_due(self, term: Term) -> int:
        """Publish what is due and has no live message, no more than the queue has room for."""
        queue = self.look_at_queue()
        room = self.max_queued - queue.depth
        if room <= 0:
            return 0
        due = self.backlog.due(room, ahead=self.ahead, still_queued_from=queue.waits_from)
        for published, item in enumerate(due):
            if not self.publisher.publish(item.message, item.wait):
                self.backlog.leave([later.message for later in due[published + 1 :]])
                return published
            term.renew()
        return len(due)

    def _ask_for_the_held(self, term: Term, limits: LimitsOf) -> tuple[int, int]:
        """Ask the gate once for all endpoints with held deliveries: offer a probe, release some, or leave them."""
        probes = released = 0
        for endpoint_id, offer in self.gate.offer(limits, limits).items():
            match offer:
                case MayProbe(slot=slot):
                    probes += self.release.probe_of(endpoint_id, slot)
                case MayRelease(slots=slots):
                    released += self.release.next_of(endpoint_id, slots)
                case Wait():
                    pass
            term.renew()
        return probes, released
