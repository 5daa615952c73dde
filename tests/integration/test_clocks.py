"""A worker whose wall clock is wrong: what it signs, what it waits, and what it says of itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from tests import courier
from tests.merchant import Reply, Request
from tests.system import SECRET, System
from webhooks.policy.decisions import Delivered, RetryAt
from webhooks.signing import verify

EVENT = {"type": "refund.completed", "merchant_id": "acme"}
REAL = time.time

SetClock = Callable[[float], None]


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    """Set this process's wall clock wrong by so many seconds; the ledger's and the merchants' go on as they are."""

    def wrong_by(seconds: float) -> None:
        monkeypatch.setattr(time, "time", lambda: REAL() + seconds)

    return wrong_by


def is_fresh(request: Request) -> bool:
    """Verify a request as a receiver does whose clock is right, only stricter."""
    timestamp, signature = request.header("X-Webhook-Timestamp"), request.header("X-Webhook-Signature")
    sent = request.at.timestamp()
    return verify(SECRET, timestamp=timestamp, signature=signature, body=request.body, now=sent, tolerance=5)


@pytest.mark.parametrize("seconds", [400, -400])
def test_a_worker_with_a_wrong_clock_signs_by_the_ledgers(system: System, set_clock: SetClock, seconds: float) -> None:
    """A receiver refuses stamps that are 300 s off: that would be the merchant's 401 for a fault of ours (I10)."""
    merchant = system.merchant("acme")
    merchant.answer_with(lambda request: 200 if is_fresh(request) else 401)
    set_clock(seconds)
    assert courier.send(EVENT) == Delivered()


def test_a_wrong_clock_is_said_once_until_it_was_right(
    system: System, set_clock: SetClock, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning, by how much and which way; another one when it goes wrong again. Two seconds are let pass."""
    system.merchant("acme")
    said = []
    for seconds in (1.5, 400.0, 400.0, 390.0, 0.0, -30.0, -30.0):
        caplog.clear()
        set_clock(seconds)
        courier.send(EVENT)
        said.append(
            [record.message.partition(":")[0] for record in caplog.records if record.name == "webhooks.process.clocks"]
        )
    ahead, behind = (
        f"the clock of this machine is {way} the ledger's" for way in ("400.0 s ahead of", "30.0 s behind")
    )
    assert said == [[], [ahead], [], [], [], [behind], []]


def test_a_merchants_wrong_clock_lengthens_no_wait(system: System) -> None:
    """`Retry-After` as a date, half a minute after the answer's own `Date`, from a clock that is an hour ahead."""
    merchant = system.merchant("acme")

    def busy(_request: Request) -> Reply:
        date = datetime.now(UTC) + timedelta(hours=1)
        again = date + timedelta(seconds=30)
        headers = [("Date", format_datetime(date, usegmt=True)), ("Retry-After", format_datetime(again, usegmt=True))]
        return Reply(503, headers=headers)

    merchant.answer_with(busy)
    before = datetime.now(UTC)
    decision = courier.send(EVENT)
    assert isinstance(decision, RetryAt)
    assert timedelta(seconds=29) < decision.due_at - before < timedelta(minutes=1)
