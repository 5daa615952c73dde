"""Fixtures of the wire: a CA, a merchant, and senders that may reach it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from ipaddress import ip_network
from typing import Any, Protocol

import pytest

from tests.merchant import Merchant, TestCA
from webhooks.wire.sender import Sender, SendingRules

DEADLINE = timedelta(seconds=2)
"""For attempts that are to run into it: a table of silent merchants need not take 10 s a row."""

PATIENCE = timedelta(seconds=10)
"""For attempts that are to be answered, on however busy a machine."""


class MakeSender(Protocol):
    """Build a sender that trusts the CA and may reach 127.0.0.0/8, to which every name leads."""

    def __call__(self, *, resolve: Callable[[str], list[str]] = ..., **rules: Any) -> Sender:
        """Make one with these rules changed."""
        ...


def to_loopback(host: str) -> list[str]:
    """Resolve every name to 127.0.0.1."""
    return ["127.0.0.1"]


@pytest.fixture(scope="session")
def ca(tmp_path_factory: pytest.TempPathFactory) -> TestCA:
    """One certificate authority for the session."""
    return TestCA(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def merchant(ca: TestCA) -> Iterator[Merchant]:
    """Start a merchant that answers 200 until told otherwise."""
    with Merchant(ca) as merchant:
        yield merchant


@pytest.fixture(scope="module")
def make_sender(ca: TestCA) -> Iterator[MakeSender]:
    """Build senders and close them at the end of the module."""
    made: list[Sender] = []

    def make(*, resolve: Callable[[str], list[str]] = to_loopback, **rules: Any) -> Sender:
        given: dict[str, Any] = {
            "deadline": PATIENCE,
            "ca_bundle": ca.pem,
            "allowed_networks": (ip_network("127.0.0.0/8"),),
        }
        made.append(Sender(SendingRules(**(given | rules)), resolve=resolve))
        return made[-1]

    yield make
    for sender in made:
        sender.close()


@pytest.fixture
def sender(make_sender: MakeSender) -> Sender:
    """Make a sender of this test's own."""
    return make_sender()


@pytest.fixture
def hasty(make_sender: MakeSender) -> Sender:
    """Make a sender of this test's own, for attempts that are to run into the deadline."""
    return make_sender(deadline=DEADLINE)
