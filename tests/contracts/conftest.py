"""Each contract's test runs twice: on the part in memory that the story is tested with, and on the one that ships."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, cast

import pytest
import redis

from tests.contracts import faked, real
from tests.contracts.benches import GateBench, LedgerBench, PublisherBench, SenderBench
from tests.ledger.conftest import books  # noqa: F401 - a fixture
from tests.merchant import Merchant, TestCA
from tests.system import System


@pytest.fixture(params=["fake", "real"])
def ledger_bench(request: pytest.FixtureRequest) -> LedgerBench:
    """A ledger."""
    if request.param == "fake":
        return faked.FakeLedgerBench()
    return real.RealLedgerBench(request.getfixturevalue("books"))


@pytest.fixture(params=["fake", "real"])
def gate_bench(request: pytest.FixtureRequest) -> Iterator[GateBench]:
    """A gate."""
    if request.param == "fake":
        yield faked.FakeGateBench()
        return
    url = request.getfixturevalue("redis_url")
    with redis.Redis.from_url(url, decode_responses=True) as client:
        yield real.RealGateBench(url, client)


@pytest.fixture(params=["fake", "real"])
def publisher_bench(request: pytest.FixtureRequest) -> PublisherBench:
    """A way to a broker."""
    if request.param == "fake":
        return faked.FakePublisherBench()
    return real.RealPublisherBench(cast("System", request.getfixturevalue("system")))


@pytest.fixture(params=["fake", "real"])
def sender_bench(request: pytest.FixtureRequest) -> Iterator[SenderBench]:
    """A sender."""
    if request.param == "fake":
        yield faked.FakeSenderBench()
        return
    ca: Any = request.getfixturevalue("ca")
    assert isinstance(ca, TestCA)
    with Merchant(ca) as merchant, closing(real.RealSenderBench(merchant, ca)) as bench:
        yield bench
