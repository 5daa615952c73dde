"""Each alert of the deployment fires in a real Prometheus when its fault is there, and not before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import prometheus
from tests.prometheus import Prometheus
from tests.scraping import free_ports
from tests.system import System
from webhooks import deliver, parts
from webhooks.celery.app import DELIVER, DELIVERIES, SWEEP, app
from webhooks.demo.embedded import RedisServer, free_port
from webhooks.demo.stage import Program
from webhooks.model import Changes

pytestmark = pytest.mark.skipif(not prometheus.is_installed(), reason=prometheus.MISSING)

PAID = {"type": "payment.status_changed", "status": "paid"}


@dataclass
class Scene:
    """A system whose workers a Prometheus asks; broker and gate are two servers."""

    system: System
    prometheus: Prometheus
    gate: RedisServer
    worker: Program
    sweep: Program
    beat: Program

    def wait_until_firing(self, name: str) -> None:
        """Wait until an alert fires."""
        self.system.wait_until(lambda: name in self.prometheus.firing(), f"{name} fires")

    def wait_until_nothing_fires(self) -> None:
        """Wait until each rule has been judged, and none holds."""
        self.system.wait_until(
            lambda: self.prometheus.has_judged() and not self.prometheus.firing(), "nothing fires where all is well"
        )


@pytest.fixture
def scene(system: System, tmp_path: Path) -> Iterator[Scene]:
    """One worker for deliveries, one that sweeps, beat; the breakers open at once, and a 404 is tried twice."""
    ports = free_ports(2)
    gate = RedisServer(tmp_path / "gate").start()
    system.set(
        redis_url=gate.url,
        breaker_min_attempts=1,
        fast_waits="0.1",
        slow_waits="0.1",
        metrics_port=f"{ports[0]}-{ports[-1]}",
        metrics_interval=0.2,
        metrics_top=3,
    )
    try:
        worker = system.stage.worker("worker", "--queues", DELIVERIES)
        sweep = system.stage.worker("sweep", "--queues", SWEEP)
        with Prometheus(ports) as running:
            made = Scene(system, running, gate, worker, sweep, system.stage.beat())
            system.wait_until(
                lambda: (
                    len(running.ask("webhooks_build_info")) == 2
                    and running.ask("webhooks_sweep_age_seconds < 30")
                    and running.ask("webhooks_queue_depth")
                ),
                "Prometheus has seen both workers",
            )
            yield made
    finally:
        gate.stop()


# Each fault is one that nothing but its alert stands for; they come one after the other, and stay.


def refuse_an_event(scene: Scene) -> None:
    """By task name comes what is no event."""
    app.send_task(DELIVER, args=[{"type": ""}])


def fail_money(scene: Scene) -> None:
    """A merchant answers 404 to a payment, to the end of the ladder."""
    scene.system.merchant("strict").answers(404)
    deliver.delay({**PAID, "id": "lost", "merchant_id": "strict"})


def pause_many_endpoints(scene: Scene) -> None:
    """Nobody listens at the addresses of eleven merchants."""
    address = f"https://localhost:{free_port()}/"
    for number in range(11):
        parts.endpoints().set(f"dead-{number}", Changes(url=address, secret="a secret"))
        deliver.delay({**PAID, "merchant_id": f"dead-{number}"})


def leave_a_delivery_behind(scene: Scene) -> None:
    """No worker takes deliveries, one of which was due two minutes ago."""
    scene.worker.stop()
    deliver.delay({**PAID, "id": "late", "merchant_id": "acme"})
    scene.system.sql("UPDATE deliveries SET due_at = now() - interval '2 minutes' WHERE id = 'late'")


def hand_over_more_than_is_sent(scene: Scene) -> None:
    """Nor does anybody take what comes in."""
    deliver.many([{**PAID, "merchant_id": f"m-{number % 250}"} for number in range(2100)])


def end_beat(scene: Scene) -> None:
    """Nobody sends sweeps any more, and the last one is a minute old."""
    scene.beat.stop()
    scene.system.sql("UPDATE leases SET finished_at = now() - interval '1 minute' WHERE name = 'sweep'")


def lose_the_gate(scene: Scene) -> None:
    """Its Redis is gone."""
    scene.gate.stop()


@contextmanager
def broker_away(scene: Scene) -> Iterator[None]:
    """Its Redis is gone."""
    scene.system.servers.redis.stop()
    try:
        yield
    finally:
        scene.system.servers.redis.start()


@contextmanager
def sweeps_worker_away(scene: Scene) -> Iterator[None]:
    """Another worker is there, but nobody who could say how things stand."""
    scene.sweep.stop()
    assert scene.prometheus.ask("webhooks_build_info")
    yield
    scene.sweep.start(ready=" ready.")


STAYING: Mapping[str, Callable[[Scene], None]] = {
    "WebhooksEventsRefused": refuse_an_event,
    "WebhooksMoneyFailed": fail_money,
    "WebhooksManyEndpointsPaused": pause_many_endpoints,
    "WebhooksOverdue": leave_a_delivery_behind,
    "WebhooksQueueDeep": hand_over_more_than_is_sent,
    "WebhooksSweepSilent": end_beat,
    "WebhooksGateAway": lose_the_gate,
}
PASSING_FIRST: Mapping[str, Callable[[Scene], AbstractContextManager[None]]] = {
    "WebhooksMetricsAbsent": sweeps_worker_away,
}
PASSING: Mapping[str, Callable[[Scene], AbstractContextManager[None]]] = {
    "WebhooksLedgerAway": lambda scene: scene.system.ledger_away(),
    "WebhooksBrokerAway": broker_away,
}


def test_each_alert_fires_when_its_fault_is_there_and_not_before(scene: Scene) -> None:
    """Nor when the fault is over; and the dashboard has shown something in each of its lines."""
    assert {rule["alert"] for rule in prometheus.rules()} == {*PASSING_FIRST, *STAYING, *PASSING}
    scene.wait_until_nothing_fires()
    it_comes_and_goes(scene, PASSING_FIRST)
    for name, cause in STAYING.items():
        assert name not in scene.prometheus.firing()
        cause(scene)
        scene.wait_until_firing(name)
        if cause is pause_many_endpoints:
            the_dashboard_shows_something(scene)
    it_comes_and_goes(scene, PASSING)


def it_comes_and_goes(scene: Scene, faults: Mapping[str, Callable[[Scene], AbstractContextManager[None]]]) -> None:
    """Each alert fires while its fault is there."""
    for name, fault in faults.items():
        assert name not in scene.prometheus.firing()
        with fault(scene):
            scene.wait_until_firing(name)
        scene.system.wait_until(lambda gone=name: gone not in scene.prometheus.firing(), f"{name} is over")  # type: ignore[misc]


def the_dashboard_shows_something(scene: Scene) -> None:
    """Each expression is one to Prometheus, and comes to something in a system that works."""
    for panel in prometheus.dashboard()["panels"]:
        for target in panel["targets"]:
            expression = target["expr"].replace("$__rate_interval", "1m")
            scene.system.wait_until(
                lambda asked=expression: scene.prometheus.ask(asked),  # type: ignore[misc]
                f"{panel['title']} shows {expression}",
                timeout=10,
            )
