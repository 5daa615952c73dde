"""What an operator does while the drill goes on: `webhooks endpoint remove`, of one that is dead."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime

from tests import command
from webhooks.demo.stage import wait_until

_WITHIN = 30  # seconds; with the ledger just back, the first tries may be refused


@dataclass(frozen=True, slots=True)
class Removal:
    """An endpoint that was removed: when the command began and ended, and how many deliveries it says it cancelled."""

    endpoint_id: str
    began: datetime
    ended: datetime
    cancelled: int


def remove(endpoint_id: str) -> Removal:
    """Remove an endpoint; whoever sees its command fail types it again."""
    began, said = datetime.now(UTC), ""

    def is_removed() -> bool:
        nonlocal said
        typed = command.run("endpoint", "remove", endpoint_id, "--yes", "--json")
        said = typed.stdout
        return typed.exit_code == 0

    wait_until(is_removed, f"{endpoint_id} is removed", timeout=_WITHIN)
    return Removal(endpoint_id, began, datetime.now(UTC), json.loads(said)["cancelled"])
