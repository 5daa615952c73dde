"""What operators did by hand: who, when, what and why."""

from __future__ import annotations

import getpass
import os
from collections.abc import Sequence
from typing import Any

from sqlalchemy import insert, select

from webhooks.ledger.database import Database
from webhooks.ledger.tables import audit


class Audit:
    """The operators' record; lines are only ever added."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def note(self, what: str, *, why: str | None = None, deliveries: int | None = None) -> None:
        """Add a line about what the person at this terminal did; `deliveries` is how many it concerned."""
        self._database.rows(insert(audit).values(who=_who(), what=what, why=why, deliveries=deliveries))

    def latest(self, count: int) -> Sequence[dict[str, Any]]:
        """Return the latest lines, the newest first."""
        rows = self._database.rows(select(audit).order_by(audit.c.id.desc()).limit(count))
        return [row._asdict() for row in rows]


def _who() -> str:
    """Name the person: who became root is told by sudo."""
    try:
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):  # a container's user needs no name
        return f"uid {os.getuid()}"
