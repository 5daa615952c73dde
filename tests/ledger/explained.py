"""Reads whose plans are looked at: by which index PostgreSQL comes to what they ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Executable, Row, text

from webhooks.ledger.database import Database


class Explained:
    """Runs statements as the database does, and keeps the plan of each."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.plans: list[str] = []

    def rows(
        self, statement: Executable, values: Mapping[str, Any] | None = None, *, repeatable: bool = False
    ) -> Sequence[Row[Any]]:
        """Run a statement."""
        compiled = statement.params(values or {}).compile(  # type: ignore[attr-defined]
            dialect=self._database.engine.dialect, compile_kwargs={"literal_binds": True}
        )
        # What is literal in the statement may look like a name of ours.
        plan = self._database.rows(text("EXPLAIN " + str(compiled).replace("%%", "%").replace(":", r"\:")))
        self.plans.append("\n".join(row[0] for row in plan))
        return self._database.rows(statement, values, repeatable=repeatable)
