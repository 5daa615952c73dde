"""The demo begins with events that it can play, and with its own settings only."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.command import refused
from webhooks.demo import play
from webhooks.settings import get_settings

PHOENIX = [{"id": f"evt-{number}", "type": "a.b", "merchant_id": "phoenix"} for number in range(5)]
FIVE = "\n".join(map(json.dumps, PHOENIX))


@pytest.fixture(autouse=True)
def _nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting a server would be too late for a refusal."""

    def started() -> None:
        raise AssertionError("servers were started")

    monkeypatch.setattr(play, "Servers", started)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b'{"id": "\xff"}', "the events are not UTF-8"),
        (b"[" * 100_000, "line 1: not JSON"),
        (b'{"id": "evt-1", "type": "a.b", "merchant_id": ["acme"]}', "line 1: the demo wants an object"),
        (b'{"id": ["evt-1"], "type": "a.b", "merchant_id": "acme"}', "line 1: id: must be"),
        (b'{"id": "evt-1", "merchant_id": "acme"}', "line 1: type: must be"),
        (f"{FIVE}\n\n{{}}".encode(), "line 7: the demo wants an object"),
        (f"{FIVE}\n{FIVE}".encode(), "an id of its own for every event"),
        ("\n".join(FIVE.split("\n")[1:]).encode(), "wants 5 or more events for phoenix"),
        (b"", "wants 5 or more events for phoenix"),
    ],
)
def test_events_that_cannot_be_played_are_refused(tmp_path: Path, text: bytes, why: str) -> None:
    """One line says what is wrong, before anything is started."""
    path = tmp_path / "events.jsonl"
    path.write_bytes(text)
    assert why in refused("demo", "--events", str(path))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_line_ends_where_jsonl_says(tmp_path: Path, end: str) -> None:
    """What Unicode calls a line's end may stand inside a string."""
    path = tmp_path / "events.jsonl"
    events: list[dict[str, Any]] = [{**event, "note": "one\u2028two\u0085three"} for event in PHOENIX]
    path.write_bytes(end.join(json.dumps(event, ensure_ascii=False) for event in events).encode())
    assert play.read_events(path) == events


def test_the_demo_uses_no_settings_of_the_person(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has a real system's settings exported sees the demo's servers all the same."""
    own = {
        "WEBHOOKS_DATABASE_URL": "postgresql://demo@localhost/demo",
        "WEBHOOKS_SECRETS_KEY": "a2V5a2V5a2V5a2V5a2V5a2V5a2V5a2V5a2V5a2V5a2U=",
        "WEBHOOKS_BROKER_URL": "redis://demo:6379/0",
    }
    theirs = {"WEBHOOKS_REDIS_URL": "redis://real:6379/0", "webhooks_lane": "3", "WEBHOOKS_MISTYPED": "x"}
    monkeypatch.setattr(os, "environ", {"HOME": "/", **theirs})
    play.use_only(own)
    assert os.environ == {"HOME": "/", **own}
    assert (get_settings().gate_url, get_settings().lane) == ("redis://demo:6379/0", 10)
