"""One worker and one beat for all tests in here, as threads of the pytest process; each test has merchants of its own.

The worker is pytest-celery's, on our own application and the real Redis. It lives as long as the tests of this folder
run, and no longer: others start workers of their own on the same broker.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from celery import Celery, _state, signals
from celery.app import trace
from celery.beat import EmbeddedService
from celery.contrib.testing.worker import TestWorkController, start_worker
from celery.worker import state as worker_state
from redis import Redis

from tests.databases import Databases
from tests.merchant import Reply, TestCA
from tests.system import System, settings_of
from webhooks import deliver, parts
from webhooks.celery.app import app, celery_settings
from webhooks.demo.embedded import Servers
from webhooks.demo.stage import wait_until
from webhooks.ledger.side_tables import every_table as metadata
from webhooks.policy.breaker import BreakerState
from webhooks.process.once import once
from webhooks.settings import get_settings

BUSY = Reply(503, headers=[("Retry-After", "3")])
"""Unavailable, and the retry waits long enough to be looked at."""

SETTINGS: dict[str, Any] = {
    # Ladders as short as a test can tell their steps apart; half of the slow steps lie beyond the horizon.
    "fast_waits": "0.1,0.2,0.3,0.4,0.1,0.2,0.3,0.4,0.5",
    "slow_waits": "0.2,0.4,1.5,0.3,0.6",
    "horizon": 0.35,
    "deadline": 2,
    "sweep_interval": 0.5,
    # One delivery may walk the whole fast ladder; eleven failures open the breaker, which stays open.
    "breaker_min_attempts": 11,
}

_NOTHING_IS_LEFT_TO_DO = """
UPDATE deliveries SET state = 'failed', reason = 'cancelled', finished_at = now(), sweep_at = NULL, held_for = NULL
WHERE state IN ('pending', 'held')
"""

_names = itertools.count()


@pytest.fixture(autouse=True)
def _no_settings_of_the_machine() -> None:
    """Leave the settings alone, which all tests in here share."""


@pytest.fixture(scope="package")
def everybody(
    servers: Servers, databases: Databases, ca: TestCA, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[System]:
    """The system that all tests in here share."""
    with (
        pytest.MonkeyPatch.context() as monkeypatch,
        Redis.from_url(servers.redis.url) as redis,
        databases.one() as database_url,
    ):
        redis.flushall()
        once.forget_all()
        settings = settings_of(database_url, servers.redis.url, ca)
        with System(servers, ca, tmp_path_factory.mktemp("worker"), settings, monkeypatch) as running:
            running.set(**SETTINGS)
            # Celery has read its configuration from the settings of whichever test came first.
            monkeypatch.setitem(app.conf, "beat_schedule", celery_settings(get_settings())["beat_schedule"])
            yield running
        once.forget_all()


@pytest.fixture(scope="session")
def celery_session_app() -> Celery:
    """Our own application in place of pytest-celery's."""
    return app


@pytest.fixture(scope="session")
def celery_worker_pool() -> str:
    """The pool that the product recommends."""
    return "webhooks.celery.pool:Pool"


@pytest.fixture(scope="session")
def celery_worker_parameters() -> Mapping[str, Any]:
    """What a worker is started with."""
    return {"concurrency": 40, "perform_ping_check": False, "hostname": "worker@tests", "WorkController": _Worker}


class _Worker(TestWorkController):  # type: ignore[misc]
    """pytest-celery's worker; where it does not start the tests fail, and do not wait for ever."""

    def ensure_started(self) -> None:
        """Wait until it consumes."""
        assert self._on_started.wait(30), "the worker did not start"


@pytest.fixture(scope="package")
def celery_session_worker(
    everybody: System,
    celery_session_app: Celery,
    celery_worker_pool: str,
    celery_worker_parameters: Mapping[str, Any],
) -> Iterator[object]:
    """pytest-celery's worker, for as long as the tests of this folder run; it leaves nothing of itself behind."""
    before = _state.default_app, _state._tls.current_app
    signals.setup_logging.connect(_leave_logging_alone)
    try:
        with start_worker(celery_session_app, pool=celery_worker_pool, **celery_worker_parameters) as worker:
            beat = EmbeddedService(app, thread=True)
            beat.start()
            yield worker
            beat.stop()
    finally:
        signals.setup_logging.disconnect(_leave_logging_alone)
        worker_state.reset_state()
        trace.reset_worker_optimizations(app)
        _state.set_default_app(before[0])
        _state._tls.current_app = before[1]


def _leave_logging_alone(**_: object) -> None:
    """Be there: where somebody sets up logging, Celery does not."""


@pytest.fixture
def system(everybody: System, celery_session_worker: object, caplog: pytest.LogCaptureFixture) -> Iterator[System]:
    """The shared system, empty; worker and beat run."""
    caplog.set_level(logging.INFO)
    yield everybody
    everybody.sql(_NOTHING_IS_LEFT_TO_DO)
    everybody.close()
    wait_until(lambda: not worker_state.active_requests, "the worker has nothing at hand")
    everybody.sql(f"TRUNCATE {', '.join(table.name for table in metadata.sorted_tables)} RESTART IDENTITY")


@pytest.fixture
def database_url(everybody: System) -> str:
    """The shared system's ledger."""
    return everybody.environment["WEBHOOKS_DATABASE_URL"]


@pytest.fixture
def acme() -> str:
    """The id of a merchant that no other test knows."""
    return f"acme-{next(_names)}"


@pytest.fixture
def event(acme: str) -> dict[str, str]:
    """A money event for `acme`."""
    return {"id": f"{acme}-1", "type": "payment.status_changed", "status": "paid", "merchant_id": acme}


def open_breaker(system: System, merchant_id: str) -> list[str]:
    """Have as many deliveries fail as open the breaker, and wait until it has opened; returns their ids."""
    event = {"type": "refund.completed", "merchant_id": merchant_id}
    ids = [
        deliver.delay({**event, "id": f"{merchant_id}-opener-{number}"}).id
        for number in range(SETTINGS["breaker_min_attempts"])
    ]
    system.wait_until(lambda: parts.gate().show(merchant_id).state is BreakerState.PAUSED, "the breaker opens")
    return ids
