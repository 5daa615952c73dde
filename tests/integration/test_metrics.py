"""Each worker process tells Prometheus what it does, and the one that sweeps how things stand."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Sequence

import pytest
from prometheus_client.registry import CollectorRegistry

from tests import courier, prometheus
from tests.scraping import Samples, free_ports, labels_of, names_in, scraped, summed, text_of
from tests.system import System
from webhooks import deliver, parts
from webhooks.celery.app import DELIVERIES, SWEEP
from webhooks.metrics import readings
from webhooks.metrics.counting import Counters
from webhooks.model import Message, State
from webhooks.settings import get_settings

PAID = {"type": "payment.status_changed", "status": "paid", "card": "CANARY"}
MANY = 60


def start(system: System, ports: Sequence[int]) -> None:
    """Start two workers for deliveries, one that sweeps, and beat."""
    system.set(metrics_port=f"{ports[0]}-{ports[-1]}", metrics_interval=0.2, metrics_top=1)
    for name, queue in (("first", DELIVERIES), ("second", DELIVERIES), ("sweep", SWEEP)):
        system.stage.worker(name, "--queues", queue)
    system.stage.beat()


def test_no_count_of_several_processes_is_lost_or_doubled(system: System) -> None:
    """Each serves its own on a port of its own: who asks all of them has all that the ledger has, once."""
    ports = free_ports(4)
    system.merchant("acme")
    system.merchant("strict").answers(404)
    start(system, ports)
    ids = [deliver.delay({**PAID, "id": f"evt-{number}", "merchant_id": "acme"}).id for number in range(MANY)]
    deliver.delay({"id": "refused", "type": "kyc.status_changed", "merchant_id": "strict"})
    deliver.delay({"id": "held", "type": "kyc.status_changed", "merchant_id": "nobody"})
    system.wait_for_state(State.DELIVERED, *ids)
    system.wait_for_state(State.FAILED, "refused")
    system.wait_for_state(State.HELD, "held")
    system.wait_until(lambda: _finished(scraped(*ports)) == MANY + 1, "all that has ended is counted, and no more")
    system.wait_until(
        lambda: labels_of(scraped(*ports), "webhooks_held_deliveries_of_endpoint"), "what is held is read"
    )
    found = scraped(*ports)
    workers = {name.partition("@")[0] for name in labels_of(found, "webhooks_build_info", "worker")}
    assert workers == {"first", "second", "sweep"}
    assert summed(found, "webhooks_attempts_total", outcome="delivered", ladder="none", probe="no") == MANY
    assert summed(found, "webhooks_attempts_total") == MANY + 1 == summed(found, "webhooks_attempt_seconds_count")
    assert summed(found, "webhooks_lag_seconds_count") == MANY + 1
    assert summed(found, "webhooks_lag_seconds_sum", of="first") > 0
    assert summed(found, "webhooks_deliveries_finished_total", state="delivered", money="yes") == MANY
    assert summed(found, "webhooks_deliveries_finished_total", reason="rejected", money="no") == 1
    assert summed(found, "webhooks_deliveries_held_total", held_for="address") == 1
    # These only the worker that sweeps can tell.
    assert summed(found, "webhooks_held_deliveries", held_for="address") == 1
    assert summed(found, "webhooks_reachable") == 3
    assert labels_of(found, "webhooks_queue_depth", "queue") == {"deliveries", "slow", "sweep"}
    _dashboard_and_rules_know_the_names(found)
    _nobody_is_named(ports)
    _what_cannot_be_read_is_gone(system, ports)


def _finished(found: Sequence[Samples]) -> float:
    return summed(found, "webhooks_deliveries_finished_total")


def _dashboard_and_rules_know_the_names(found: Sequence[Samples]) -> None:
    """Every metric that they name is there in a system that runs."""
    asked = [rule["expr"] for rule in prometheus.rules()]
    asked += [target["expr"] for panel in prometheus.dashboard()["panels"] for target in panel["targets"]]
    named = {name for each in asked for name in re.findall(r"\b(?:webhooks|process)_\w+", each)}
    assert len(named) > 20
    assert named - {name for of in found for name in names_in(of)} == set()


def _nobody_is_named(ports: Sequence[int]) -> None:
    """But for the endpoints that have most held, which somebody has asked for."""
    texts = [text_of(port) for port in ports if scraped(port)]
    told = "\n".join(line for text in texts for line in text.splitlines() if "of_endpoint" not in line)
    assert not re.search('"(acme|strict|nobody|refused|held|evt-[0-9]+)"|CANARY|kyc', told)


def _what_cannot_be_read_is_gone(system: System, ports: Sequence[int]) -> None:
    """And not as it was: no number of before says that all is well."""
    read = {"webhooks_held_deliveries", "webhooks_overdue_oldest_seconds", "webhooks_sweep_age_seconds"}

    def known() -> set[str]:
        return {name for of in scraped(*ports) for name in names_in(of)} & read

    with system.ledger_away():
        system.wait_until(lambda: not known(), "nothing is known of what is in the ledger")
        found = scraped(*ports)
        assert summed(found, "webhooks_reachable", part="ledger") == 0
        assert summed(found, "webhooks_reachable", part="broker") == 1
        assert summed(found, "webhooks_outages_total", part="ledger") >= 1
    system.wait_until(lambda: known() == read, "it is known again")


def test_what_the_sweep_and_a_worker_end_is_counted_as_the_ledger_has_it(system: System) -> None:
    """Past its age, held for an endpoint that was removed, and on its way there: each by whether it is money."""
    system.merchant("acme")
    for number, more in enumerate((PAID, PAID, {"type": "kyc.status_changed"})):
        for name in ("old", "held", "under-way"):
            courier.accept({**more, "id": f"{name}-{number}", "merchant_id": "acme"})
    system.sql("UPDATE deliveries SET expires_at = now() WHERE id LIKE 'old-%'")
    system.sql("UPDATE deliveries SET state = 'held', held_for = 'lane', sweep_at = NULL WHERE id LIKE 'held-%'")
    counters = Counters(registry := CollectorRegistry())
    parts.observers().join(counters.hear)
    parts.endpoints().remove("acme")
    parts.sweeper().tick()
    for row in system.sql("SELECT id, merchant_id, type, turn, queued_at FROM deliveries WHERE state = 'pending'"):
        courier.attempt(Message(row.id, row.merchant_id, row.type, row.turn, row.queued_at))
    ended = system.sql("SELECT reason, money, count(*) AS number FROM deliveries GROUP BY reason, money")
    assert {(row.reason, row.money, row.number) for row in ended} == {
        *(("expired", True, 2), ("expired", False, 1)),
        *(("cancelled", True, 4), ("cancelled", False, 2)),
    }
    for row in ended:
        labels = {"state": "failed", "reason": row.reason, "money": "yes" if row.money else "no"}
        assert registry.get_sample_value("webhooks_deliveries_finished_total", labels) == row.number


def test_a_taken_port_is_one_line_and_keeps_no_worker(system: System) -> None:
    """It says which, and what to do; the worker delivers without."""
    system.merchant("acme")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        system.set(metrics_port=port)
        worker = system.start()
        deliver.delay({**PAID, "id": "evt-1", "merchant_id": "acme"})
        system.wait_for_state(State.DELIVERED, "evt-1")
    (line,) = (line for line in worker.log.read_text().splitlines() if "metrics.unserved" in line)
    assert "WARNING" in line
    assert f"metrics.unserved: this process goes on without a port for its metrics: port {port} is taken" in line
    assert "WEBHOOKS_METRICS_PORT" in line


WORKER = """
import sys
from importlib import import_module
from types import SimpleNamespace
for name in {modules!r}:
    import_module(name)
from webhooks import parts
from webhooks.celery import starting
from webhooks.celery.app import app
sinks = list(parts.observers()._sinks)
starting._count_for_metrics(SimpleNamespace(app=app, hostname="worker@host"))
starting._serve_metrics(SimpleNamespace(app=app))
assert parts.observers()._sinks == sinks
assert app.amqp.queues.consume_from
print(*(name for name in sys.modules if name.startswith(("prometheus_client", "webhooks.metrics"))))
"""


@pytest.mark.parametrize("port", ["", "tcp://10.0.0.1:80"])
def test_without_a_port_nothing_is_loaded_and_nothing_listens(system: System, port: str) -> None:
    """A worker that nobody measures is as it was; a Service of Kubernetes' by this name is nobody who measures."""
    system.set(metrics_port=port)
    modules = ["webhooks.celery.attempting", "webhooks.celery.chores", "webhooks.celery.consuming"]
    done = subprocess.run(
        [sys.executable, "-c", WORKER.format(modules=modules)],
        env=system.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


def test_endpoints_are_named_only_where_somebody_asks(system: System) -> None:
    """Those with the most held, and only so many."""
    for merchant_id, number in (("few", 1), ("most", 3), ("more", 2)):
        for at in range(number):
            event = {"id": f"{merchant_id}-{at}", "type": "kyc.status_changed", "merchant_id": merchant_id}
            courier.send(event)
    assert _named() == {}
    system.set(metrics_top=2)
    get_settings.forget()
    assert _named() == {"most": 3, "more": 2}


def _named() -> dict[str, float]:
    return {
        sample.labels["endpoint"]: sample.value
        for metric in readings.of_backlog()
        for sample in metric.samples
        if "endpoint" in sample.labels
    }
