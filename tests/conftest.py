"""Real parts for every test: a Redis and a PostgreSQL for each pytest process, an empty database for each test."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import psycopg2
import pytest
from cryptography.fernet import Fernet
from redis import Redis

from tests.merchant import TestCA
from tests.system import System
from webhooks import parts
from webhooks.embedded import Servers
from webhooks.ledger import schema
from webhooks.ledger.database import Database
from webhooks.once import once

_TEMPLATE = "webhooks_template"
_numbers = itertools.count()


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """A Redis and a PostgreSQL that no other pytest process uses; PostgreSQL has a migrated template."""
    with Servers() as running:
        _administer(running, "ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()", f"CREATE DATABASE {_TEMPLATE}")
        database = Database(running.postgres.url(_TEMPLATE))
        schema.upgrade(database)
        database.dispose()
        yield running


def _administer(servers: Servers, *statements: str) -> None:
    connection = psycopg2.connect(servers.postgres.url())
    connection.autocommit = True
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
    connection.close()


@pytest.fixture
def redis_url(servers: Servers) -> str:
    """An empty Redis database."""
    with Redis.from_url(servers.redis.url) as client:
        client.flushall()
    return servers.redis.url


@pytest.fixture
def database_url(servers: Servers) -> Iterator[str]:
    """A migrated, empty PostgreSQL database."""
    name = f"test_{next(_numbers)}"
    _administer(servers, f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE} STRATEGY FILE_COPY")
    yield servers.postgres.url(name)
    _administer(servers, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def ca(tmp_path_factory: pytest.TempPathFactory) -> TestCA:
    """The authority that certifies the test merchants."""
    return TestCA(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def system(
    servers: Servers, redis_url: str, database_url: str, ca: TestCA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[System]:
    """The whole system on empty servers; nothing runs until the test starts it."""
    settings = {
        "WEBHOOKS_DATABASE_URL": database_url,
        "WEBHOOKS_BROKER_URL": redis_url,
        "WEBHOOKS_SECRETS_KEY": Fernet.generate_key().decode(),
        "WEBHOOKS_CA_BUNDLE": str(ca.pem),
        "WEBHOOKS_ALLOW_PRIVATE_ADDRESSES": "true",
    }
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
