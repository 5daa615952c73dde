"""A worker's metrics, put together from its settings: what it counts, how things stand, and the port."""

from __future__ import annotations

from importlib.metadata import version

from prometheus_client import Gauge, ProcessCollector
from prometheus_client.registry import CollectorRegistry

from webhooks import parts
from webhooks.metrics import readings, serving
from webhooks.metrics.counting import Counters
from webhooks.metrics.metering import Meter, Meters
from webhooks.observing.surroundings import MetricsUnserved
from webhooks.process.once import once
from webhooks.settings import get_settings


@once
def registry() -> CollectorRegistry:
    """Return what this process measures."""
    return CollectorRegistry()


def count(worker: str) -> None:
    """Count what happens from now on."""
    measured = registry()
    ProcessCollector(registry=measured)
    about = Gauge("webhooks_build_info", "Which worker this is.", ["version", "worker"], registry=measured)
    about.labels(version("webhook-delivery-worker"), worker).set(1)
    parts.observers().join(Counters(measured).hear)


def serve(*, sweeps: bool) -> None:
    """Serve what is measured; a worker without a free port goes on without.

    One process is enough to read how things stand: the one that `sweeps`.
    """
    settings = get_settings()
    try:
        serving.serve(registry(), settings.metrics_address, settings.metrics_port)
    except OSError as error:
        parts.observers().tell(MetricsUnserved(str(error)))
        return
    if sweeps:
        meters = _meters()
        registry().register(meters)
        meters.begin(parts.stopping())


def _meters() -> Meters:
    every, observers = get_settings().metrics_interval, parts.observers()
    return Meters(
        [
            Meter("ledger", readings.of_ledger, every, observers),
            Meter("backlog", readings.of_backlog, every, observers, vital=False),
            Meter("gate", readings.of_gate, every, observers),
            Meter("broker", readings.of_broker, every, observers),
        ]
    )
