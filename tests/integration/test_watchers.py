"""What Flower is told of deliveries that no attempt ends: by the sweep's worker, or at the command's request."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from celery.worker.control import Panel

from tests import courier
from tests.command import done
from tests.system import System
from webhooks import parts
from webhooks.celery import watchers
from webhooks.celery.app import SWEEP, app
from webhooks.model import Reason, State
from webhooks.observing.outage import Outage

EVENT = {"type": "payment.status_changed", "status": "paid", "merchant_id": "acme"}


@pytest.fixture
def sent() -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """What this process sends as if it were a worker."""
    events: list[tuple[str, dict[str, Any]]] = []
    watchers.send_by(lambda kind, **fields: events.append((kind, fields)))
    yield events
    watchers.send_by(None)


def as_told(delivery_id: str, words: str) -> dict[str, Any]:
    """Return the fields of an event that tells of a delivery."""
    says = {"result": words, "exception": words, "traceback": None}
    return {"uuid": delivery_id, "name": "webhooks.deliver", **says}


def test_the_sweep_tells_what_it_ends_and_takes_back(system: System, sent: list[Any]) -> None:
    """Expired and of a removed endpoint: failed, each for its reason. From a dead worker: it is tried again."""
    system.merchant("acme")
    system.merchant("gone")
    for delivery_id in ("expired", "buried"):
        message = courier.accept({**EVENT, "id": delivery_id})
    parts.ledger().claim(message)
    system.sql("UPDATE claims SET ends_at = now(), silent_since = now()")
    system.sql("UPDATE deliveries SET expires_at = now() WHERE id = 'expired'")
    courier.accept({**EVENT, "id": "removed", "merchant_id": "gone"})
    system.sql("UPDATE deliveries SET state = 'held', held_for = 'breaker', sweep_at = NULL WHERE id = 'removed'")
    parts.endpoints().remove("gone")
    swept = parts.sweeper().tick()
    assert (swept.expired, swept.buried, swept.ended) == (1, 1, 1)
    assert sorted(sent, key=lambda each: str(each[1]["uuid"])) == [
        ("task-retried", as_told("buried", "its worker died: nobody knows the outcome, and it is tried again")),
        ("task-failed", as_told("expired", Reason.EXPIRED)),
        ("task-failed", as_told("removed", Reason.CANCELLED)),
    ]
    sent.clear()
    assert parts.sweeper().tick().took > timedelta()
    assert sent == []


def test_a_workers_own_acts_are_told_by_itself(system: System, sent: list[Any]) -> None:
    """A cancel and a replay; what was refused is not told."""
    system.merchant("acme")
    courier.accept({**EVENT, "id": "evt-1"})
    done("delivery", "cancel", "evt-1", "--why", "a test")
    assert sent.pop() == ("task-failed", as_told("evt-1", "cancelled"))
    done("delivery", "replay", "evt-1", "--cancelled", "--why", "a test")
    assert sent.pop() == ("task-retried", as_told("evt-1", "held for replay: it is sent again"))
    assert sent == []


def test_only_who_sweeps_tells_what_a_command_asks_for(system: System, sent: list[Any]) -> None:
    """Of several workers one, and never of more than one command holds."""
    app.loader.import_default_modules()  # as a worker does
    ids = [str(number) for number in range(watchers.TOGETHER + 1)]
    for queues, told in (({"deliveries"}, 0), ({"deliveries", SWEEP}, watchers.TOGETHER)):
        consumer = SimpleNamespace(queues=[SimpleNamespace(name=name) for name in queues])
        state = SimpleNamespace(app=app, consumer=SimpleNamespace(task_consumer=consumer))
        Panel.data["tell_ended"](state, delivery_ids=ids, ending="FAILURE", words="cancelled")
        assert len(sent) == told


def test_a_broker_that_is_away_harms_no_act(
    system: System, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What was asked for is done, and nothing is said of it; for a second nobody else asks."""
    options = {"max_retries": 1, "interval_start": 0, "interval_step": 0.1, "socket_connect_timeout": 1}
    nowhere = Celery("nowhere", broker="redis://127.0.0.1:1/0", set_as_current=False, broker_transport_options=options)
    outage = Outage()
    monkeypatch.setattr(watchers, "app", nowhere)
    monkeypatch.setattr(watchers, "_outage", outage)
    courier.accept({**EVENT, "id": "evt-1"})
    done("delivery", "cancel", "evt-1", "--why", "a test")
    assert system.delivery("evt-1")["state"] == State.FAILED
    assert not outage.may_try()
    assert caplog.text == ""
