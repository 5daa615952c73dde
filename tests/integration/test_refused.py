"""Events by task name that cannot be accepted: told in the open, without a word of their bodies (I9)."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from typing import Any

from tests.command import done, run
from tests.remains import in_clear
from tests.system import System
from webhooks import app, deliver, parts
from webhooks.ledger.pruning import Pruning
from webhooks.model import State

EVENT = {"id": "evt-1", "type": "payment.status_changed", "status": "paid", "merchant_id": "acme"}
CARD = "4000CANARY"


def by_name(event: dict[str, Any], *, task: str = "webhooks.deliver", task_id: str | None = None) -> None:
    """Send an event as code without this package does."""
    app.send_task(task, args=[event], task_id=task_id)


def push(system: System, name: str, body: str, *, content_type: str = "application/json", **headers: str) -> None:
    """Put a message into the queue that no Celery would send."""
    way = {"exchange": "deliveries", "routing_key": "deliveries"}
    message = {
        "body": base64.b64encode(body.encode()).decode(),
        "content-encoding": "utf-8",
        "content-type": content_type,
        "headers": {"id": name, **headers},
        "properties": {"delivery_tag": name, "delivery_info": way, "body_encoding": "base64"},
    }
    system.redis().lpush("deliveries", json.dumps(message))


def test_what_looks_like_celerys_own_json_is_sent_as_it_came(system: System) -> None:
    """Where no sender can have meant a date or an amount by it, it is data like any other."""
    merchant = system.merchant("acme")
    system.start()
    data = {
        "unknown": {"__type__": "nope", "__value__": "x"},
        "more": {"__type__": "decimal", "__value__": "1.00", "currency": "EUR"},
        "half": [{"__type__": "datetime"}],
    }
    by_name({**EVENT, **data})
    system.wait_for_state(State.DELIVERED, "evt-1")
    assert json.loads(merchant.requests[0].body) == {**EVENT, **data}


def test_each_refusal_is_one_error_and_one_row_without_the_body(system: System) -> None:
    """Whatever is wrong with an event or its message: id and reason are told, also at DEBUG, and work goes on."""
    system.merchant("acme")
    worker = system.start("-l", "DEBUG")
    deliver.delay(EVENT)
    by_name({**EVENT, "card": CARD}, task_id="conflict")
    by_name({"id": "evt-2", "merchant_id": "acme", "card": CARD}, task_id="no-type")
    by_name({**EVENT, "id": "evt-3", "card": CARD}, task="webhooks.delivr", task_id="mistyped")
    by_name({**EVENT, "id": "evt-4", "items": [{"amount": Decimal("1.00")}]}, task_id="amount")
    app.send_task("webhooks.deliver", args=[EVENT], kwargs={"surprise": CARD}, task_id="two-arguments")
    push(system, "unreadable", f'[[{{"card": "{CARD}"', task="webhooks.deliver")
    push(system, "too-deep", "[" * 100_000, task="webhooks.deliver")
    push(system, "no-json", CARD, content_type="application/x-python-serialize", task="webhooks.deliver")
    push(system, "no-arguments", f'["{CARD}"]', task="webhooks.deliver")
    push(system, "no-task", f'["{CARD}"]')
    system.redis().lpush("deliveries", CARD)
    expected = {
        "conflict": "id: evt-1 was accepted before with another body; nothing was changed",
        "no-type": "type: must be a non-empty string",
        "mistyped": "there is no task 'webhooks.delivr'; events go to 'webhooks.deliver'",
        "amount": "event.items[0].amount: Celery's notation for a decimal; write it as text before sending",
        "two-arguments": "deliver takes one argument, the event",
        "unreadable": "the message cannot be read: DecodeError",
        "too-deep": "the message cannot be read: DecodeError",
        "no-json": "the message is not one of a task, or not JSON: ContentDisallowed",
        "no-arguments": "the message is not one of a task: ValueError",
        "no-task": "the message names no task",
    }
    system.wait_until(lambda: len(parts.refusals().latest(100).items) == len(expected), "all are listed")
    rows = {row["task_id"]: row for row in done("event", "refused")}
    assert {name: row["why"] for name, row in rows.items()} == expected
    known = {name: row["event_id"] for name, row in rows.items() if row["event_id"]}
    assert known == {"conflict": "evt-1", "no-type": "evt-2", "mistyped": "evt-3", "amount": "evt-4"}
    by_name({**EVENT, "id": "evt-after", "card": CARD})
    system.wait_for_state(State.DELIVERED, "evt-1", "evt-after")
    log = worker.log.read_text()
    errors = [line for line in log.splitlines() if "ERROR" in line or "CRITICAL" in line]
    assert sorted(line.count("event.refused") for line in errors) == [0] + [1] * len(expected)
    assert "is no message" in next(line for line in errors if "event.refused" not in line)
    assert [text for text in in_clear(log + run("event", "refused").output) if CARD in text] == []
    assert "Traceback" not in log


def test_refusals_are_listed_newest_first_and_forgotten(system: System) -> None:
    """There are more than are shown, and the rows go when failed deliveries do."""
    for number in range(3):
        system.sql("INSERT INTO refused_events (task_id, why) VALUES (:id, 'old')", id=str(number))
    assert [row["task_id"] for row in done("event", "refused", "--limit", "2")] == ["2", "1"]
    system.sql("UPDATE refused_events SET at = now() - interval '1 year' WHERE task_id < '2'")
    pruning: Pruning = parts.pruning()
    assert pruning.prune() == 2
    assert [row["task_id"] for row in done("event", "refused")] == ["2"]
