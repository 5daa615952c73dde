"""The operators' command on deliveries that a worker has dealt with."""

from __future__ import annotations

import json

from tests.command import done, run
from tests.system import System
from webhooks import deliver
from webhooks.model import State


def test_deliveries_are_listed_and_shown_with_their_attempts(system: System, acme: str) -> None:
    """`delivery show` tells the whole journey, and no command prints a body."""
    first, second = f"{acme}-1", f"{acme}-2"
    event = {"id": first, "type": "kyc.status_changed", "status": "approved", "merchant_id": acme, "note": "a body"}
    system.merchant(acme).answers(404)
    deliver.delay(event)
    deliver.delay({**event, "id": second, "merchant_id": f"{acme}-nobody"})
    system.wait_for_state(State.FAILED, first)
    system.wait_for_state(State.HELD, second)
    shown = run("delivery", "show", first).stdout
    assert "failed: rejected" in shown
    assert "404" in shown
    listed = run("delivery", "list").stdout
    assert "held for address" in listed
    as_json = done("delivery", "show", first)
    assert [(step["number"], step["status"], step["outcome"]) for step in as_json["journey"]] == [(1, 404, "rejected")]
    failed = done("delivery", "list", "--state", "failed", "--merchant", acme)
    assert [item["id"] for item in failed] == [first]
    assert "a body" not in shown + listed + json.dumps([as_json, failed])
