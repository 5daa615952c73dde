"""What a worker's log says of an attempt, and when; and that programs can read every line of it."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from signal import SIGUSR1
from typing import NoReturn

import pytest

from tests.courier import accept
from tests.merchant import Reply
from tests.system import System
from webhooks import deliver, parts
from webhooks.model import Operator, State
from webhooks.observing.facts import Fact
from webhooks.observing.observers import Observers
from webhooks.observing.operators import Acted
from webhooks.operating import breakers, deliveries
from webhooks.process.stacks import HEADING

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


MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def test_every_line_is_an_object_for_programs(system: System) -> None:
    """From the first line of worker, beat and an act to the last, at INFO: attempts, a hold, a release, an end, acts.

    No banner stands between them, no body, secret or address; and a deployment's own format changes nothing. A worker
    that is asked what its threads do (SIGUSR1) says it in one line, and goes on.
    """
    system.set(log="json", fast_waits="0.1", celery_config="celeryconfig")
    system.merchant("acme").answers(Reply(500), Reply(200), Reply(404))
    system.start()
    body = {"type": "kyc.status_changed", "merchant_id": "acme", "card": "4000CANARY"}
    worker, beat = system.stage.programs
    worker.send(SIGUSR1)
    system.wait_until(lambda: HEADING in worker.log.read_text(), "what its threads do is told")
    deliver.delay({**body, "id": "evt-retried"})
    system.wait_for_state(State.DELIVERED, "evt-retried")
    acts = [system.run("webhooks", "merchant", "pause", "acme", "--why", "a try")]
    deliver.delay({**body, "id": "evt-failed"})
    system.wait_for_state(State.HELD, "evt-failed")
    acts += [system.run("webhooks", "merchant", "resume", "acme")]
    system.wait_for_state(State.FAILED, "evt-failed")
    system.wait_until(lambda: "delivery.finished" in worker.log.read_text(), "the end is told")
    for program in (worker, beat):
        program.stop()
    told = [json.loads(line) for line in worker.log.read_text().splitlines()]
    assert all(MOMENT.fullmatch(each["time"]) and each["level"] and each["logger"] for each in told)
    assert [json.loads(line)["level"] for line in beat.log.read_text().splitlines()]
    facts = [each for each in told if each["logger"] == "webhooks"]
    assert [(each["name"], each.get("then") or each.get("held_for")) for each in facts if "id" in each] == [
        ("delivery.attempted", "retry"),
        ("delivery.attempted", "delivered"),
        ("delivery.held", "operator"),
        ("delivery.released", None),
        ("delivery.attempted", "failed"),
        ("delivery.finished", None),
    ]
    assert {"worker: Warm shutdown (MainProcess)"} <= {each.get("message") for each in told}
    acted = [json.loads(act.stderr) for act in acts]
    assert [(each["name"], each["what"], each.get("why")) for each in acted] == [
        ("operator.acted", "paused acme", "a try"),
        ("operator.acted", "resumed acme", None),
    ]
    everything = worker.log.read_text() + "".join(act.stderr for act in acts)
    assert not {word for word in ("4000CANARY", "localhost", "a secret of the tests") if word in everything}


def undone(by: Operator) -> NoReturn:
    """Begin an act that comes to nothing."""
    with parts.act(by, "", "") as act:
        act.note("what comes to nothing")
        raise ZeroDivisionError


def test_an_act_is_told_once_it_counts(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """As its lines in the audit say it, with how many deliveries it concerned; what was undone is not told."""
    system.merchant("acme")
    ids = [accept({"id": f"evt-{n}", "type": "x", "merchant_id": "acme"}).id for n in range(3)]
    told: list[Fact] = []
    monkeypatch.setattr(parts, "observers", lambda: Observers([told.append]))
    by = Operator("somebody", "a try")
    deliveries.cancel(by, ids)
    breakers.reset_once(by, "acme")
    with pytest.raises(ZeroDivisionError):
        undone(by)
    assert [(each.what, each.deliveries) for each in told if isinstance(each, Acted)] == [
        ("cancel of evt-0, evt-1, evt-2", 3),
        ("breaker reset of acme", None),
    ]
    assert [(line.who, line.what, line.why, line.deliveries) for line in reversed(parts.audit().latest(9).items)] == [
        (each.who, each.what, each.why, each.deliveries) for each in told if isinstance(each, Acted)
    ]
