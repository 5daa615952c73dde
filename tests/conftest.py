"""Real parts for every test: a Redis and a PostgreSQL for each pytest process, an empty database for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from redis import Redis

from tests.databases import Databases
from tests.merchant import TestCA
from tests.system import System, settings_of
from webhooks import parts
from webhooks.demo.embedded import Servers
from webhooks.process.once import once

# No test is timed by accident: how long an example takes is the machine's affair.
settings.register_profile(
    "untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """A Redis and a PostgreSQL that no other pytest process uses."""
    with Servers() as running:
        yield running


@pytest.fixture(scope="session")
def databases(servers: Servers) -> Databases:
    """The databases of this process's PostgreSQL."""
    return Databases(servers.postgres)


@pytest.fixture
def redis_url(servers: Servers) -> str:
    """An empty Redis database."""
    with Redis.from_url(servers.redis.url) as client:
        client.flushall()
    return servers.redis.url


@pytest.fixture
def database_url(databases: Databases) -> Iterator[str]:
    """A migrated, empty PostgreSQL database."""
    with databases.one() as url:
        yield url


@pytest.fixture(scope="session")
def ca(tmp_path_factory: pytest.TempPathFactory) -> TestCA:
    """The authority that certifies the test merchants."""
    return TestCA(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def system(
    servers: Servers, redis_url: str, database_url: str, ca: TestCA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[System]:
    """The whole system on empty servers; nothing runs until the test starts it."""
    settings = settings_of(database_url, redis_url, ca)
    with System(servers, ca, tmp_path, settings, monkeypatch) as running:
        yield running
    _forget()


def _forget() -> None:
    """Leave this process without parts, so that the next test makes its own."""
    if parts.database.made:
        parts.database.made.dispose()
    once.forget_all()


@pytest.fixture(autouse=True)
def _no_settings_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run every test without settings of the person who runs it."""
    for name in [name for name in os.environ if name.startswith("WEBHOOKS_")]:
        monkeypatch.delenv(name)
    once.forget_all()
    yield
    once.forget_all()
