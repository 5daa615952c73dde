"""The whole system behind a PgBouncer in transaction mode, which gives every transaction whatever session is free."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from signal import Signals
from urllib.parse import urlsplit

import pytest

from tests import pgbouncer
from tests.faults.frozen import frozen
from tests.merchant import Request
from tests.pgbouncer import PgBouncer
from tests.system import System
from webhooks import deliver, parts
from webhooks.demo.stage import wait_until
from webhooks.errors import LedgerUnavailable
from webhooks.model import State

PAID = {"type": "payment.status_changed", "status": "paid"}

pytestmark = pytest.mark.skipif(not pgbouncer.is_installed(), reason=pgbouncer.MISSING)


@pytest.fixture
def pooled(system: System, database_url: str) -> Iterator[System]:
    """The system with a pooler before its ledger, which has fewer sessions than the system has threads."""
    with PgBouncer(database_url, pool_size=3) as pooler:
        system.set(database_url=pooler.url(urlsplit(database_url).path.lstrip("/")))
        yield system


@pytest.mark.parametrize(
    ("load", "held", "within_s"), [(200, 40, 30), pytest.param(2000, 200, 3, marks=pytest.mark.long)]
)
def test_a_load_with_retries_a_purge_and_a_release(pooled: System, load: int, held: int, within_s: float) -> None:
    """With retries and a purge amid them each arrives once; what was held meanwhile arrives soon after it is let go."""
    pooled.set(fast_waits=",".join(["0.3"] * 9), recover_after=1, horizon="250ms")  # so that every retry is far
    merchant, paused = pooled.merchant("acme"), pooled.merchant("paused")
    merchant.answer_with(_not_at_once)
    parts.endpoints().pause("paused", paused=True)
    worker = pooled.start("-c", "10")
    _accept("paused", range(held))
    _accept("acme", range(load // 2))
    worker.send(Signals.SIGSTOP)
    _accept("acme", range(load // 2, load // 2 + 50))
    assert "messages" in pooled.run("celery", "-A", "webhooks", "purge", "-f").stdout
    worker.send(Signals.SIGCONT)
    _accept("acme", range(load // 2 + 50, load))
    pooled.wait_for_count(State.DELIVERED, load, timeout=60)
    assert pooled.counted() == {State.DELIVERED: load, State.HELD: held}
    parts.endpoints().pause("paused", paused=False)
    pooled.wait_for_count(State.DELIVERED, load + held, timeout=within_s)
    assert Counter(request.webhook_id for request in paused.requests) == {f"paused-{n}": 1 for n in range(held)}
    expected = {f"acme-{number}": 2 if _is_hard(number) else 1 for number in range(load)}
    assert Counter(request.webhook_id for request in merchant.requests) == expected


def test_a_frozen_server_behind_the_pooler_holds_up_no_other_thread(pooled: System) -> None:
    """The pooler goes on answering: whoever asks the ledger is told in time, and the process lives on meanwhile."""
    pooled.set(ledger_timeout=0.5)
    _accept("acme", range(1))
    with frozen(pooled.servers.postgres.url(), at_most=8):
        began = time.monotonic()
        with pytest.raises(LedgerUnavailable):
            _accept("acme", range(1, 2))
        wait_until(lambda: time.monotonic() - began > 2, "what comes after the deadline has come")
        assert time.monotonic() - began < 6
    _accept("acme", range(3))
    assert pooled.counted() == {State.PENDING: 3}


def _accept(merchant_id: str, numbers: range) -> None:
    for number in numbers:
        deliver.delay({**PAID, "merchant_id": merchant_id, "id": f"{merchant_id}-{number}"})


def _is_hard(number: int) -> bool:
    return number % 5 == 0


def _not_at_once(request: Request) -> int:
    number = int(str(request.webhook_id).partition("-")[2])
    return 503 if _is_hard(number) and request.header("X-Webhook-Attempt") == "1" else 200
