"""Facts become counts, under names and labels that dashboards and alerts are written by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import cast

import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import CollectorRegistry

from tests.observing.test_log import LINES, attempted
from tests.scraping import Samples, labels_of, samples_in
from webhooks.metrics.counting import Counters
from webhooks.model import HeldFor, Ladder, Reason, State
from webhooks.observing import facts, many, surroundings
from webhooks.observing.facts import Fact
from webhooks.policy.decisions import Delivered, RetryAt

NAMES = "evt-1", "acme", "ep_books", "refund.completed"
DUE = datetime(2026, 1, 31, 12, tzinfo=UTC)
BEAT = facts.BrokerUser.BEAT


def counted(*told: Fact) -> Samples:
    """Return what a process serves that has heard these facts."""
    registry = CollectorRegistry()
    counters = Counters(registry)
    for fact in told:
        counters.hear(fact)
    return samples_in(generate_latest(registry).decode())


def moved(*told: Fact) -> dict[str, float]:
    """Return what is not 0 then, as Prometheus writes it; without buckets, and without the count of all facts."""
    return {
        name + _in_braces(labels): number
        for (name, labels), number in counted(*told).items()
        if number and not name.endswith("_bucket") and name != "webhooks_facts_total"
    }


def _in_braces(labels: Iterable[tuple[str, str]]) -> str:
    written = ",".join(f'{key}="{word}"' for key, word in sorted(labels))
    return f"{{{written}}}" if written else ""


ATTEMPT = attempted(Delivered(), 200)
CASES: list[tuple[list[Fact], dict[str, float]]] = [
    (
        [ATTEMPT],
        {
            'webhooks_attempts_total{ladder="none",outcome="delivered",probe="no"}': 1,
            'webhooks_attempt_seconds_count{outcome="delivered"}': 1,
            'webhooks_attempt_seconds_sum{outcome="delivered"}': 1.0004,
            'webhooks_lag_seconds_count{of="retry"}': 1,
            'webhooks_lag_seconds_sum{of="retry"}': 0.25,
        },
    ),
    (
        [attempted(RetryAt(DUE, Ladder.FAST), 503, probe=True, late=True)],
        {
            'webhooks_attempts_total{ladder="fast",outcome="delivered",probe="yes"}': 1,
            "webhooks_attempts_late_total": 1,
            'webhooks_attempt_seconds_count{outcome="delivered"}': 1,
            'webhooks_attempt_seconds_sum{outcome="delivered"}': 1.0004,
            'webhooks_lag_seconds_count{of="released"}': 1,
            'webhooks_lag_seconds_sum{of="released"}': 0.25,
        },
    ),
    (
        [facts.Finished(*NAMES, State.DELIVERED, None, money=True)],
        {'webhooks_deliveries_finished_total{money="yes",reason="none",state="delivered"}': 1},
    ),
    (
        [facts.Finished(*NAMES, State.FAILED, Reason.REJECTED, money=False)] * 2,
        {'webhooks_deliveries_finished_total{money="no",reason="rejected",state="failed"}': 2},
    ),
    (
        [facts.Finished(*NAMES, State.FAILED, Reason.CANCELLED, money=True)],
        {'webhooks_deliveries_finished_total{money="yes",reason="cancelled",state="failed"}': 1},
    ),
    ([facts.DeliveryHeld(*NAMES, HeldFor.RATE)], {'webhooks_deliveries_held_total{held_for="rate"}': 1}),
    ([facts.Released(*NAMES, probe=True)], {'webhooks_deliveries_released_total{probe="yes"}': 1}),
    ([facts.BreakerOpened("acme", "acme")], {'webhooks_breaker_moves_total{to="paused"}': 1}),
    ([facts.BreakerClosed("acme", "acme")], {'webhooks_breaker_moves_total{to="working"}': 1}),
    ([facts.BreakerReset("acme")], {'webhooks_breaker_moves_total{to="reset"}': 1}),
    ([facts.GateBypassed(7), facts.GateBypassed(8)], {"webhooks_gate_bypassed_total": 2}),
    (
        [facts.GateAway("no route")],
        {'webhooks_outages_total{part="gate"}': 1, 'webhooks_away{part="gate"}': 1},
    ),
    ([facts.GateAway("no route"), facts.GateBack(3)], {'webhooks_outages_total{part="gate"}': 1}),
    (
        [facts.LedgerAway("no"), facts.LedgerBack(), facts.LedgerAway("no")],
        {'webhooks_outages_total{part="ledger"}': 2, 'webhooks_away{part="ledger"}': 1},
    ),
    (
        [facts.BrokerAway(BEAT, "no"), facts.BrokerBack(BEAT)],
        {'webhooks_outages_total{part="broker"}': 1},
    ),
    ([facts.Interrupted("evt-1", "no", of_outage=True)], {'webhooks_interrupted_total{cause="outage"}': 1}),
    ([facts.Interrupted("evt-1", "no", for_good=True)], {'webhooks_interrupted_total{cause="for_good"}': 1}),
    ([facts.Interrupted("evt-1", "no")], {'webhooks_interrupted_total{cause="other"}': 1}),
    ([facts.SweepStopped("no", for_good=True)], {'webhooks_sweep_stopped_total{cause="for_good"}': 1}),
    (
        [facts.Swept(1, 2, 3, 4, 5, 6, took=timedelta(seconds=0.5))],
        {
            "webhooks_sweep_tick_seconds_count": 1,
            "webhooks_sweep_tick_seconds_sum": 0.5,
            'webhooks_swept_total{what="expired"}': 1,
            'webhooks_swept_total{what="buried"}': 2,
            'webhooks_swept_total{what="published"}': 3,
            'webhooks_swept_total{what="probes"}': 4,
            'webhooks_swept_total{what="released"}': 5,
            'webhooks_swept_total{what="ended"}': 6,
        },
    ),
    (
        [many.EndedApart(("evt-1", "evt-2", "evt-3"), Reason.EXPIRED, money=2)],
        {
            'webhooks_deliveries_finished_total{money="yes",reason="expired",state="failed"}': 2,
            'webhooks_deliveries_finished_total{money="no",reason="expired",state="failed"}': 1,
        },
    ),
    ([many.EndedApart(("evt-1",), Reason.CANCELLED)], {}),
    ([surroundings.EventRefused(None, "acme", "x", "t", "no")], {"webhooks_events_refused_total": 1}),
]


@pytest.mark.parametrize(("told", "expected"), CASES, ids=[told[0].name for told, _ in CASES])
def test_what_is_told_is_counted_once(told: list[Fact], expected: dict[str, float]) -> None:
    """Under the names of metrics, with words of the model in the labels."""
    assert moved(*told) == pytest.approx(expected)


def test_every_fact_is_counted_by_its_name() -> None:
    """Also those that have no metric of their own; none that there is fails the sink."""
    told = [fact for fact, *_ in LINES]
    found = counted(*told)
    assert sum(number for (name, _), number in found.items() if name == "webhooks_facts_total") == len(told)
    assert labels_of([found], "webhooks_facts_total", "fact") >= {fact.name for fact in told}


def test_a_fact_that_nobody_knew_of_is_counted_too() -> None:
    """Its module may be loaded when it first happens."""
    counters = Counters(registry := CollectorRegistry())
    counters.hear(cast("Fact", SimpleNamespace(name="unheard.of")))
    assert registry.get_sample_value("webhooks_facts_total", {"fact": "unheard.of"}) == 1


def test_what_can_be_counted_is_there_from_the_beginning() -> None:
    """A counter that appears with its first count shows no increase; and no fact adds a series, whatever is in it."""
    assert counted().keys() == counted(*(fact for fact, *_ in LINES)).keys()


def test_a_first_attempt_a_retry_and_a_released_one_are_told_apart() -> None:
    """What was held has waited for its endpoint, and says nothing of how busy the workers are."""
    first = attempted(Delivered(), 200)
    assert isinstance(first, facts.Attempted)
    for changed, of in (({"attempt": 1}, "first"), ({}, "retry"), ({"attempt": 1, "released": True}, "released")):
        assert moved(replace(first, **changed))[f'webhooks_lag_seconds_count{{of="{of}"}}'] == 1  # type: ignore[arg-type]
