"""What operators see in Flower."""

from __future__ import annotations

import ast
import base64
import json
import re
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.command import done
from tests.system import System
from webhooks import deliver
from webhooks.demo.embedded import free_port
from webhooks.demo.stage import Stage
from webhooks.model import State

EVENT = {"type": "payment.status_changed", "status": "paid", "merchant_id": "acme", "card": "4000CANARY"}
LOGIN = "operator:password"


def get(port: int, path: str, login: str | None) -> str:
    """GET from Flower."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}")
    if login:
        request.add_header("Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")
    with urllib.request.urlopen(request, timeout=5) as answer:
        return str(answer.read().decode())


def ask(port: int, path: str) -> Any:
    """GET from Flower's API."""
    return json.loads(get(port, path, LOGIN))


def test_one_line_for_each_delivery(system: System) -> None:
    """Flower's list has one line a delivery, under its id, through all attempts; its state tells where it stands."""
    system.set(fast_waits="0.1,0.1,0.1")
    good, bad = system.merchant("acme"), system.merchant("strict")
    good.answers(503, 503, 200)
    bad.answers(404)
    port = free_port()
    system.stage.flower(port, LOGIN)
    system.start()
    deliver.delay({**EVENT, "id": "retried"})
    deliver.delay({**EVENT, "id": "refused", "type": "kyc.status_changed", "merchant_id": "strict"})
    deliver.delay({**EVENT, "id": "held", "merchant_id": "newcomer"})
    system.wait_for_state(State.DELIVERED, "retried")
    system.wait_for_state(State.FAILED, "refused")
    system.wait_for_state(State.HELD, "held")
    expected = {"retried": "SUCCESS", "refused": "FAILURE", "held": "RETRY"}
    tasks: dict[str, Any] = {}

    def all_shown() -> bool:
        tasks.update(ask(port, "/api/tasks"))
        return {task_id: task["state"] for task_id, task in tasks.items()} == expected

    system.wait_until(all_shown, f"Flower shows {expected} and nothing else")
    assert {task["name"] for task in tasks.values()} == {"webhooks.deliver"}
    for task_id, task in tasks.items():
        (identity,) = ast.literal_eval(task["args"])
        assert identity.keys() == {"id", "merchant_id", "type"}
        assert identity["id"] == task_id
        assert "4000CANARY" not in json.dumps(task)
    assert re.fullmatch(r"delivered 200 in [\d.]+ m?s, attempt 3", tasks["retried"]["result"])
    assert re.fullmatch(r"rejected: 404 after [\d.]+ m?s, attempt 1", tasks["refused"]["result"])
    assert tasks["held"]["result"] == "held for address"
    assert "rejected" in tasks["refused"]["exception"]
    assert "held for address" in tasks["held"]["exception"]
    assert (tasks["retried"]["exception"], tasks["retried"]["retries"]) == (None, 2)  # nothing of its first two
    assert {task["traceback"] for task in tasks.values()} == {None}
    columns = ["uuid", "args", "state", "result", "received", "started", "runtime", "retries", "worker"]
    assert re.findall(r'data-column="(\w+)"', get(port, "/tasks", LOGIN)) == columns
    # docs/operations.md says so: it answers to anybody, and tells of nobody.
    metrics = get(port, "/metrics", login=None)
    assert 'task="webhooks.deliver"' in metrics
    assert not re.search('"(acme|strict|newcomer|retried|refused|held)"|CANARY', metrics)


def test_flower_wants_a_login(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the password neither list nor revoke is served; a FLOWER_PORT of Kubernetes' making keeps no Flower."""
    monkeypatch.setenv("FLOWER_PORT", "tcp://10.0.0.1:5555")
    port = free_port()
    system.stage.flower(port, LOGIN)
    for path in ("/", "/api/tasks", "/tasks", "/api/workers"):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            get(port, path, login=None)
    request = urllib.request.Request(f"http://127.0.0.1:{port}/api/task/revoke/any", data=b"", method="POST")
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(request, timeout=5)


def test_flower_remembers_and_revokes_nothing(system: System) -> None:
    """A restarted Flower shows what it showed before; its Revoke is not there, or never says that it has revoked."""
    system.merchant("acme")
    system.start()
    port = free_port()
    kept = ("--persistent", f"--db={system.folder / 'kept'}")
    settings = {name: value for name, value in system.environment.items() if name.startswith("WEBHOOKS_")}

    def shown() -> dict[str, Any]:
        return {task_id: task["state"] for task_id, task in ask(port, "/api/tasks").items()}

    with Stage(system.folder, settings) as itself:  # which writes down what it knows as its interpreter ends
        itself.flower(port, LOGIN, *kept, "--read-only=false")
        deliver.delay({**EVENT, "id": "delivered"})
        deliver.delay({**EVENT, "id": "held", "merchant_id": "newcomer"})
        expected = {"delivered": "SUCCESS", "held": "RETRY"}
        system.wait_until(lambda: shown() == expected, "both are shown")
        assert 'id="task-revoke"' in get(port, "/task/held", LOGIN)
        assert revoke(port, "held")[0] == 500
    system.stage.flower(port, LOGIN, *kept)
    assert shown() == expected
    assert ask(port, "/api/tasks")["held"]["result"] == "held for address"
    assert 'id="task-revoke"' not in get(port, "/task/held", LOGIN)
    assert revoke(port, "held") == (403, "Read only mode is enabled")
    assert system.delivery("held")["state"] == State.HELD


def revoke(port: int, task_id: str) -> tuple[int, str]:
    """Press Revoke; return Flower's status and text."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/api/task/revoke/{task_id}", data=b"", method="POST")
    request.add_header("Authorization", f"Basic {base64.b64encode(LOGIN.encode()).decode()}")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=5)
    return refused.value.code, refused.value.read().decode()


def test_what_ends_by_hand_or_by_age_is_seen_as_ended(system: System) -> None:
    """Cancelled, of a removed endpoint, expired: FAILURE with its reason. A replay has begun again."""
    system.merchant("acme").answers(404)
    system.merchant("gone")
    port = free_port()
    system.stage.flower(port, LOGIN)
    system.start()
    deliver.delay({**EVENT, "id": "replayed", "type": "kyc.status_changed"})
    system.wait_for_state(State.FAILED, "replayed")
    done("merchant", "pause", "acme")
    done("merchant", "pause", "gone")
    for delivery_id in ("cancelled", "expired"):
        deliver.delay({**EVENT, "id": delivery_id})
    deliver.delay({**EVENT, "id": "removed", "merchant_id": "gone"})
    waiting = ("cancelled", "expired", "removed")
    system.wait_for_state(State.HELD, *waiting)
    states = {"replayed": "FAILURE"} | dict.fromkeys(waiting, "RETRY")
    shown: dict[str, Any] = {}

    def shows(expected: dict[str, str]) -> bool:
        shown.update(ask(port, "/api/tasks"))
        return {task_id: task["state"] for task_id, task in shown.items()} == expected

    system.wait_until(lambda: shows(states), f"Flower shows {states}")
    done("delivery", "cancel", "cancelled", "--why", "a test")
    done("endpoint", "remove", "gone", "--yes", "--why", "a test")
    done("delivery", "replay", "replayed", "--why", "a test")
    system.sql("UPDATE deliveries SET expires_at = now() WHERE id = 'expired'")
    states = {"replayed": "RETRY"} | dict.fromkeys(waiting, "FAILURE")
    system.wait_until(lambda: shows(states), f"Flower shows {states}")
    assert {task_id: task["result"] for task_id, task in shown.items()} == {
        "replayed": "held for replay: it is sent again",
        "cancelled": "cancelled",
        "removed": "cancelled",
        "expired": "expired",
    }
    assert {task["worker"].partition("@")[0] for task in shown.values()} == {"worker"}  # a command looks like none
