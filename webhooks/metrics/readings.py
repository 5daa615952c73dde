"""What is read of each part, as Prometheus metrics; `webhooks.metrics.metering` says when."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from webhooks import parts
from webhooks.celery.app import DELIVERIES, SLOW, SWEEP
from webhooks.ledger.counting import Stock
from webhooks.ledger.holding import Heap, Pile
from webhooks.model import HeldFor
from webhooks.settings import get_settings

_SHORT = timedelta(seconds=3)  # for what costs next to nothing
_LONG = timedelta(seconds=5)


def of_ledger() -> Sequence[Metric]:
    """Write a row, and read when a sweep was last done: by the ledger's clock, whichever process did it."""
    parts.pulse().check_write(within=_SHORT)
    with parts.database().within(_SHORT):
        ago = parts.pulse().last_done().ago
    age_s = math.inf if ago is None else abs(ago.total_seconds())  # ahead: written before the clock was set back
    return [_gauge("sweep_age_seconds", "Since a sweep was last done to the end; +Inf: never.", age_s)]


def of_backlog() -> Sequence[Metric]:
    """Count what waits and what needs a person."""
    views, most = parts.views(), get_settings().metrics_top
    with parts.database().within(_LONG):
        return list(_stock(views.stock(), views.holding_most(most) if most else ()))


def of_gate() -> Sequence[Metric]:
    """Ask the gate's Redis to write something."""
    parts.gate().check_write()
    return []


def of_broker() -> Sequence[Metric]:
    """Look at the queues."""
    depths = {queue: parts.lookout().look(queue).depth for queue in (DELIVERIES, SLOW, SWEEP)}
    return [_gauges("queue_depth", "Messages that wait in a queue.", "queue", depths)]


def _stock(stock: Stock, most_held: Sequence[Heap]) -> Iterable[Metric]:
    piles = {str(cause): stock.held.get(cause, Pile(0, 0)) for cause in HeldFor}
    held = {cause: pile.number for cause, pile in piles.items()}
    endpoints = {cause: pile.endpoints for cause, pile in piles.items()}
    yield _gauges("held_deliveries", "Deliveries that are held.", "held_for", held)
    yield _gauges("holding_endpoints", "Endpoints that have held deliveries.", "held_for", endpoints)
    if most_held:
        most = "Held deliveries of the endpoints that have most (WEBHOOKS_METRICS_TOP)."
        heaps = {heap.endpoint_id: heap.number for heap in most_held}
        yield _gauges("held_deliveries_of_endpoint", most, "endpoint", heaps)
    yield _gauge("overdue_deliveries", "Deliveries that nobody has sent a minute after their due time.", stock.overdue)
    oldest_s = stock.oldest.total_seconds()
    yield _gauge("overdue_oldest_seconds", "How long the oldest unsent delivery is past its due time.", oldest_s)
    failed = "Money deliveries that failed and nobody has dealt with: neither replayed, nor dismissed, nor cancelled."
    yield _gauge("failed_money_deliveries", failed, stock.money_failed)
    accepted = "Events accepted, as PostgreSQL counts inserted rows; those of rolled back transactions too."
    yield CounterMetricFamily("webhooks_events_accepted", accepted, stock.accepted)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"webhooks_{name}", text, value)


def _gauges(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(f"webhooks_{name}", text, labels=[label])
    for word, value in values.items():
        family.add_metric([word], value)
    return family
