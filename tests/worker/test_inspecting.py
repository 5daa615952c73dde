"""What `celery inspect` says of the whole: what is held, what is overdue, and who sweeps."""

from __future__ import annotations

import json
import os
from datetime import datetime
from socket import gethostname
from typing import Any

from tests.courier import accept
from tests.system import System
from webhooks import deliver, parts
from webhooks.celery.app import app
from webhooks.model import HeldFor, State

EVENT = {"type": "payment.status_changed", "status": "paid", "card": "4000CANARY"}


def asked(what: str, **arguments: int) -> Any:
    """Ask the worker as `celery inspect` does."""
    (answer,) = app.control.inspect(timeout=10, limit=1)._request(what, **arguments).values()
    return answer


def test_what_is_held(system: System, acme: str) -> None:
    """For what, and at which endpoints most: as many as were asked for; no body is among it."""
    for number in range(3):
        deliver.delay({**EVENT, "id": f"{acme}-{number}", "merchant_id": acme})
    deliver.delay({**EVENT, "id": f"{acme}-other", "merchant_id": f"{acme}-other"})
    system.wait_for_state(State.HELD, *(f"{acme}-{each}" for each in (0, 1, 2, "other")))
    told = system.run("celery", "-A", "webhooks", "inspect", "held", "1", "--json").stdout
    (answer,) = json.loads(told.partition("{")[1] + told.partition("{")[2]).values()
    assert answer["held"] == sum(answer["held_for"].values()) == sum(parts.views().count_held().values())
    assert answer["held_for"]["address"] == parts.views().count_held()[HeldFor.ADDRESS]
    (most,) = answer["endpoints"]
    assert (most["endpoint_id"], most["merchant_id"], most["number"]) == (acme, acme, 3)
    assert datetime.fromisoformat(most["oldest"]) == system.delivery(f"{acme}-0")["accepted_at"]
    everything = asked("held")
    assert {acme: 3, f"{acme}-other": 1}.items() <= {
        each["endpoint_id"]: each["number"] for each in everything["endpoints"]
    }.items()
    assert "CANARY" not in told + json.dumps(everything)


def test_what_is_overdue(system: System, acme: str) -> None:
    """The longest first, with ids and since when; what is not due yet is not among it."""
    system.merchant(acme)
    for number, hours in ((1, 2), (2, 1), (3, -1)):
        message = accept({**EVENT, "id": f"{acme}-{number}", "merchant_id": acme})
        system.sql(  # the sweep does not look at them, as if their messages were on their way
            "UPDATE deliveries SET due_at = now() - :hours * interval '1 hour',"
            " sweep_at = now() + interval '29 seconds' WHERE id = :id",
            id=message.id,
            hours=hours,
        )
    first, second = asked("overdue")["overdue"]
    assert (first["id"], second["id"]) == (f"{acme}-1", f"{acme}-2")
    assert {**first, "due_at": ..., "overdue_s": ...} == {
        "id": f"{acme}-1",
        "merchant_id": acme,
        "type": "payment.status_changed",
        "attempts": 0,
        "due_at": ...,
        "overdue_s": ...,
    }
    assert datetime.fromisoformat(first["due_at"]) == system.delivery(first["id"])["due_at"]
    assert 7200 <= first["overdue_s"] < 7500
    assert [each["id"] for each in asked("overdue", most=1)["overdue"]] == [first["id"]]


def test_who_sweeps(system: System) -> None:
    """When it was last done, by which process, what that did and how long it took."""
    answer: dict[str, Any] = {}

    def has_swept() -> object:
        answer.update(asked("sweep"))
        return answer["last_done"] and "done" in (answer["here"] or {})

    system.wait_until(has_swept, "this worker has swept")
    assert answer["by"].startswith(f"{gethostname()}:{os.getpid()}:")
    assert 0 <= answer["ago_s"] < 30
    assert datetime.fromisoformat(answer["last_done"]).utcoffset() is not None
    done = answer["here"]["done"]
    assert done.keys() == {"expired", "buried", "published", "probes", "released", "ended", "took_s", "ago_s"}
    assert 0 < done["took_s"] < 10


def test_a_mistake_and_a_ledger_that_is_away_are_one_line(system: System) -> None:
    """How many may be shown is bounded; a sweep that stopped is told by the worker that stopped."""
    assert asked("held", most=101) == {"error": "say how many to show: 1 to 100"}
    assert asked("overdue", most=0) == {"error": "say how many to show: 1 to 100"}
    with system.ledger_away():
        for what in ("held", "overdue", "sweep"):
            error = asked(what)["error"]
            assert "the ledger" in error
            assert "\n" not in error
