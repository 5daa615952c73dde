"""Facts as Prometheus metrics: a sink. Labels are words of the model and of the facts, never an id (I9)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any

from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.registry import CollectorRegistry

from webhooks.model import HeldFor, Ladder, Outcome, Reason, State
from webhooks.observing import facts, many, surroundings
from webhooks.observing.facts import Fact

_ANSWER_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)  # up to the deadline
_LAG_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600)
_TICK_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)

_EITHER = (True, False)
_STEPS = ("expired", "buried", "published", "probes", "released", "ended")  # in the words of Swept

_Key = tuple[object, ...]


class Counters:
    """Counts what happens in this process; `hear` is the sink.

    What the labels can say is there from the beginning, at 0: a counter that appears with its first count shows no
    increase. It also spares looking a label up for each fact.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # one more series for each, that nobody asks for

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, namespace="webhooks", registry=registry)

        def histogram(name: str, text: str, buckets: Iterable[float], *labels: str) -> Histogram:
            return Histogram(name, text, labels, namespace="webhooks", registry=registry, buckets=tuple(buckets))

        ladders = (*Ladder, None)
        self._attempts = _children(
            counter("attempts", "Attempts that are over.", "outcome", "ladder", "probe"), Outcome, ladders, _EITHER
        )
        self._late = counter("attempts_late", "Attempts that were over after somebody else had their delivery.")
        self._answers = _children(histogram("attempt_seconds", "How long a POST took.", _ANSWER_S, "outcome"), Outcome)
        self._lags = _children(
            histogram("lag_seconds", "From the due time of an attempt to its beginning.", _LAG_S, "of"),
            ("first", "retry", "released"),
        )
        finished = counter("deliveries_finished", "Deliveries that have ended.", "state", "reason", "money")
        self._finished = {
            (state, reason, money): finished.labels(*map(_word, (state, reason, money)))
            for state, reasons in ((State.DELIVERED, [None]), (State.FAILED, Reason))
            for reason, money in product(reasons, _EITHER)
        }
        self._held = _children(counter("deliveries_held", "Deliveries that were put aside.", "held_for"), HeldFor)
        self._released = _children(
            counter("deliveries_released", "Held deliveries that got a message.", "probe"), _EITHER
        )
        self._breakers = _children(
            counter("breaker_moves", "Breakers that opened, closed or were reset.", "to"),
            ("paused", "working", "reset"),
        )
        self._bypassed = counter("gate_bypassed", "Calls to the gate that went without an answer.")
        self._outages = _children(counter("outages", "Outages that were noticed here.", "part"), _PARTS)
        away = Gauge(
            "away", "1: away, when this process last needed it.", ["part"], namespace="webhooks", registry=registry
        )
        self._away = _children(away, _PARTS)
        self._refused = counter("events_refused", "Events and messages by task name that were refused.")
        self._interrupted = _children(counter("interrupted", "Attempts that a fault of ours ended.", "cause"), _CAUSES)
        self._stopped = _children(counter("sweep_stopped", "Ticks not done to their end.", "cause"), _CAUSES)
        self._ticks = histogram("sweep_tick_seconds", "How long a tick of the sweep took.", _TICK_S)
        self._swept = _children(counter("swept", "Deliveries that the sweep saw to.", "what"), _STEPS)
        self._facts = counter("facts", "Facts by their names.", "fact")
        self._told = {kind.name: self._facts.labels(kind.name) for kind in Fact.__subclasses__()}
        self._counts = self._by_kind()

    def hear(self, fact: Fact) -> None:
        """Count a fact."""
        told = self._told.get(fact.name) or self._facts.labels(fact.name)  # of a module that was loaded later
        told.inc()
        count = self._counts.get(type(fact))
        if count:
            count(fact)

    def _by_kind(self) -> Mapping[type[Fact], Callable[[Any], None]]:
        return {
            facts.Attempted: self._attempted,
            facts.Finished: lambda fact: self._finished[fact.state, fact.reason, fact.money].inc(),
            many.EndedApart: self._ended_apart,
            facts.DeliveryHeld: lambda fact: self._held[fact.held_for,].inc(),
            facts.Released: lambda fact: self._released[fact.probe,].inc(),
            facts.BreakerOpened: lambda _: self._breakers["paused",].inc(),
            facts.BreakerClosed: lambda _: self._breakers["working",].inc(),
            facts.BreakerReset: lambda _: self._breakers["reset",].inc(),
            facts.GateBypassed: lambda _: self._bypassed.inc(),
            facts.GateAway: lambda _: self._goes("gate"),
            facts.GateBack: lambda _: self._away["gate",].set(0),
            facts.LedgerAway: lambda _: self._goes("ledger"),
            facts.LedgerBack: lambda _: self._away["ledger",].set(0),
            facts.BrokerAway: lambda _: self._goes("broker"),
            facts.BrokerBack: lambda _: self._away["broker",].set(0),
            facts.Interrupted: lambda fact: self._interrupted[_cause(fact),].inc(),
            facts.SweepStopped: lambda fact: self._stopped[_cause(fact),].inc(),
            facts.Swept: self._tick,
            surroundings.EventRefused: lambda _: self._refused.inc(),
        }

    def _attempted(self, fact: facts.Attempted) -> None:
        self._attempts[fact.outcome, fact.ladder, fact.probe].inc()
        if fact.late:
            self._late.inc()
        if fact.duration is not None:
            self._answers[fact.outcome,].observe(fact.duration.total_seconds())
        of = "released" if fact.released else "first" if fact.attempt == 1 else "retry"
        self._lags[of,].observe(fact.lag.total_seconds())

    def _tick(self, fact: facts.Swept) -> None:
        self._ticks.observe(fact.took.total_seconds())
        for step in _STEPS:
            self._swept[step,].inc(getattr(fact, step))

    def _ended_apart(self, fact: many.EndedApart) -> None:
        if fact.money is not None:  # what an operator ends is told elsewhere
            self._finished[State.FAILED, fact.reason, True].inc(fact.money)
            self._finished[State.FAILED, fact.reason, False].inc(len(fact.delivery_ids) - fact.money)

    def _goes(self, part: str) -> None:
        self._outages[part,].inc()
        self._away[part,].set(1)


_PARTS = ("ledger", "gate", "broker")
_CAUSES = ("outage", "for_good", "other")


def _cause(fact: facts.Interrupted | facts.SweepStopped) -> str:
    return "for_good" if fact.for_good else "outage" if fact.of_outage else "other"


def _children(metric: Any, *choices: Iterable[object]) -> dict[_Key, Any]:
    """Return a metric's children by all that its labels can say."""
    return {key: metric.labels(*map(_word, key)) for key in product(*choices)}


def _word(value: object) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case _:
            return str(value)
