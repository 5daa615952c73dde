"""The sweep: once a second, what is far, lost, expired or held gets what it waits for.

It asks for pages of endpoints and takes bounded batches, so that an idle tick costs the same with a million deliveries
held, and none takes longer than the time between two: what is left, the next one goes on with (I7). Several sweeps at
once do no harm: one works, the others leave.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from math import ceil
from typing import TypeVar

from webhooks.errors import LedgerFault
from webhooks.gate.resilient import ResilientGate
from webhooks.ledger.backlog import Backlog, Due, HeldEndpoints
from webhooks.ledger.leases import Lease, Term
from webhooks.model import Message, Reason
from webhooks.observing.facts import Swept
from webhooks.observing.many import EndedApart, WaitingAgain
from webhooks.observing.observers import Observers
from webhooks.publishing import Publisher
from webhooks.release import Release

_T = TypeVar("_T")

_PAGE = 1000  # deliveries that are due
_SHARE = 0.8  # of the time between two ticks in which another page is begun
_TOGETHER = timedelta(seconds=0.1)  # what is due within it of each other is published at once

_NOBODY = HeldEndpoints({}, ())


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

    def beside(self, other: Sighting) -> Sighting:
        """Return how this queue stands where a message that has left it may wait in another."""
        moments = [each for each in (self.waits_from, other.waits_from) if each]
        return replace(self, waits_from=min(moments, default=None))


class _Span:
    """The time of one tick: each step has a first page whatever the time, and others while there is time for them."""

    def __init__(self, clock: Callable[[], float], interval: timedelta) -> None:
        self._clock = clock
        self._began_s = clock()
        self._ends_s = self._began_s + _SHARE * interval.total_seconds()

    @property
    def passed(self) -> timedelta:
        return timedelta(seconds=self._clock() - self._began_s)

    def pages(self) -> Iterator[None]:
        """Count a step's pages, as long as there is time for one more that takes as long as the longest so far."""
        longest_s = 0.0
        began_s = self._clock()
        while began_s + longest_s < self._ends_s or not longest_s:
            yield
            now_s = self._clock()
            longest_s = max(longest_s, now_s - began_s, 1e-6)
            began_s = now_s


@dataclass(frozen=True, slots=True)
class Sweep:
    """One tick's work. `look_at_queue` raises BrokerUnavailable; `lease` asks whether somebody is silent.

    `interval` is the time between two ticks.
    """

    lease: Lease
    backlog: Backlog
    gate: ResilientGate
    publisher: Publisher
    release: Release
    look_at_queue: Callable[[], Sighting]
    max_queued: int
    interval: timedelta
    ahead: timedelta
    observers: Observers
    clock: Callable[[], float] = time.monotonic

    def tick(self, *, rest: timedelta = timedelta()) -> Swept:
        """Do what is due now, unless another tick is at it or was done within `rest`.

        Raises Unavailable when the ledger or the broker is away, and LedgerFault when a step was refused for good,
        after the others; the next tick tries again.
        """
        span = _Span(self.clock, self.interval)
        with self.lease.alone(rest) as term:
            if not term:
                return Swept()
            swept = self._work(term, span)
        swept = replace(swept, took=span.passed)
        self.observers.tell(swept)
        return swept

    def _work(self, term: Term, span: _Span) -> Swept:
        """Take every step, also past one that the ledger refuses for good: that one stands still, and no other."""
        refused: list[LedgerFault] = []

        def step(work: Callable[[], _T], otherwise: _T) -> _T:
            try:
                return work()
            except LedgerFault as fault:
                refused.append(fault)
                return otherwise

        expired = step(self._expire, 0)
        buried = step(self._bury, 0) if term.asked else 0
        published = step(lambda: self._publish_due(term, span), 0)
        ended = probes = released = 0
        for page in self._pages(span, step):
            ended += step(partial(self._end_removed, page.removed), 0) if page.removed else 0
            let_go = step(partial(self._ask_for, page, term), (0, 0))
            probes, released = probes + let_go[0], released + let_go[1]
        for fault in refused:
            raise fault  # so that this tick does not count as done
        return Swept(expired, buried, published, probes, released, ended)

    def _expire(self) -> int:
        return self._tell_ended(self.backlog.expire(), Reason.EXPIRED)

    def _end_removed(self, endpoint_ids: Sequence[str]) -> int:
        return self._tell_ended(self.backlog.end_removed(endpoint_ids), Reason.CANCELLED)

    def _tell_ended(self, ended: Mapping[str, bool], reason: Reason) -> int:
        if ended:
            self.observers.tell(EndedApart(tuple(ended), reason, money=sum(ended.values())))
        return len(ended)

    def _bury(self) -> int:
        self.backlog.suspect()
        buried = self.backlog.bury()
        if buried:
            why = "its worker died: nobody knows the outcome, and it is tried again"
            self.observers.tell(WaitingAgain(tuple(buried), why))
        return len(buried)

    def _publish_due(self, term: Term, span: _Span) -> int:
        """Publish what is due and has no live message, no more than the queue has room for."""
        queue = self.look_at_queue()
        room, published = self.max_queued - queue.depth, 0
        for _ in span.pages():
            most = min(room - published, _PAGE)
            if most <= 0:
                break
            due = self.backlog.due(most, ahead=self.ahead, still_queued_from=queue.waits_from)
            sent = self._publish(due)
            published += sent
            term.renew()
            if sent < most:
                break
        return published

    def _publish(self, due: Iterable[Due]) -> int:
        """Publish what waits equally long together; returns how many the broker has."""
        together = _by_wait(due)
        published = 0
        for wait in sorted(together):
            messages = together.pop(wait)
            sent = self.publisher.publish_all(messages, wait)
            published += sent
            if sent < len(messages):
                self.backlog.leave([message for later in together.values() for message in later])
                break
        return published

    def _pages(self, span: _Span, step: Callable[..., HeldEndpoints]) -> Iterator[HeldEndpoints]:
        """Give the endpoints with held deliveries, and go on at the next tick where the time of this one has ended."""
        began = after = None
        for _ in span.pages():
            page = step(partial(self.backlog.held_endpoints, after), _NOBODY)
            began = page.after if began is None else began
            yield page
            after = page.last
            if after is None:
                break
        if (after or "") != began:
            self.backlog.keep_place(after or "")

    def _ask_for(self, page: HeldEndpoints, term: Term) -> tuple[int, int]:
        """Ask the gate once for a page of endpoints, and let go what it offers. Returns how many probes and others."""
        let_go = self.release.all_of(self.gate.offer(page.limits, page.limits))
        term.renew()
        return let_go


def _by_wait(due: Iterable[Due]) -> dict[timedelta, list[Message]]:
    """Gather messages by how long they have yet to wait, none of them shorter."""
    together: dict[timedelta, list[Message]] = defaultdict(list)
    for each in due:
        together[ceil(each.wait / _TOGETHER) * _TOGETHER].append(each.message)
    return together
