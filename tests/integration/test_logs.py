"""What a worker's log says of an attempt, and when."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta

import pytest

from tests.merchant import Reply
from tests.system import System
from webhooks import deliver
from webhooks.model import State

_MOMENT = re.compile(r"\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z): ")


def test_an_attempt_is_one_line_with_its_moment_and_zone(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """At INFO, wherever the machine stands: a retry, a delivery and a failure are told once each, in UTC."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    system.set(fast_waits="0.1")
    merchant = system.merchant("acme")
    merchant.answers(Reply(500), Reply(200), Reply(404))
    worker = system.start()
    deliver.delay({"id": "evt-retried", "type": "kyc.status_changed", "merchant_id": "acme"})
    system.wait_for_state(State.DELIVERED, "evt-retried")
    deliver.delay({"id": "evt-failed", "type": "kyc.status_changed", "merchant_id": "acme"})
    system.wait_for_state(State.FAILED, "evt-failed")
    system.wait_until(lambda: worker.log.read_text().count("delivery.attempted") == 3, "all is told")
    lines = [line for line in worker.log.read_text().splitlines() if "evt-" in line]
    told = [json.loads(line.partition("delivery.attempted ")[2]) for line in lines]
    assert [(each["id"], each["then"]) for each in told] == [
        ("evt-retried", "retry"),
        ("evt-retried", "delivered"),
        ("evt-failed", "failed"),
    ]
    for line, request in zip(lines, merchant.requests, strict=True):
        moment = _MOMENT.match(line)
        assert moment, line
        assert abs(datetime.fromisoformat(moment[1]) - request.at) < timedelta(minutes=5)
    assert "webhooks.sweep" not in worker.log.read_text().partition(" ready.")[2]


def test_at_debug_celery_says_how_a_task_ended(system: System) -> None:
    """What waits is retried and what failed has failed: to Celery a task that returned has succeeded."""
    system.set(fast_waits="0.1")
    system.merchant("acme").answers(Reply(500), Reply(200), Reply(404))
    worker = system.start("-l", "DEBUG")
    deliver.delay({"id": "evt-retried", "type": "kyc.status_changed", "merchant_id": "acme"})
    system.wait_for_state(State.DELIVERED, "evt-retried")
    deliver.delay({"id": "evt-failed", "type": "kyc.status_changed", "merchant_id": "acme"})
    deliver.delay({"id": "evt-held", "type": "kyc.status_changed", "merchant_id": "nobody"})
    expected = (
        r"evt-retried\] retry: 500 after [\d.]+ m?s; attempt 2 in ",
        r"evt-retried\] succeeded in [\d.e-]+s: SUCCESS delivered 200 in ",
        r"evt-failed\] failed: rejected: 404 after ",
        r"evt-held\] retry: held for address$",
    )
    system.wait_until(
        lambda: all(re.search(each, worker.log.read_text(), re.MULTILINE) for each in expected), "all is told"
    )
