"""What operators read is found by indexes: no question looks through all deliveries, attempts or events."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from typing import Any

import psycopg2
import pytest
from sqlalchemy import Executable, Row, event

from benchmarks.crowd import RARE_ANSWER, RARE_TYPE, Crowd, fill
from tests.databases import Databases
from webhooks.ledger.database import Database, unlimited
from webhooks.ledger.replays import Replays
from webhooks.ledger.tallying import Tallying
from webhooks.ledger.views import Views, Wanted
from webhooks.model import HeldFor, Reason, State

_LARGE = {"deliveries", "attempts", "events", "event_keys"}
_MERCHANT, _NAMED = "crowd-1", "ep_crowd7"


class Explained(Database):
    """The ledger, with the plan of every statement that was asked; nothing is set that a server has not by itself."""

    def __init__(self, url: str) -> None:
        super().__init__(url, connections=2)
        self._url = url
        self.plans: list[dict[str, Any]] = []
        event.listen(self.engine, "before_cursor_execute", self._explain)

    def rows(
        self, statement: Executable, values: Mapping[str, Any] | None = None, *, repeatable: bool = False
    ) -> Sequence[Row[Any]]:
        """Explain a statement, then run it."""
        with self.engine.connect() as connection, contextlib.suppress(_ExplainedError):
            unlimited(connection).execute(statement, values or {})
        return super().rows(statement, values, repeatable=repeatable)

    def _explain(self, _connection: Any, _cursor: Any, sql: str, values: Any, *_more: Any) -> None:
        with closing(psycopg2.connect(self._url)) as connection, connection.cursor() as cursor:
            if not sql.startswith("EXPLAIN"):
                cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}", values)
                ((told,),) = cursor.fetchall()
                self.plans.append(told[0]["Plan"])
        raise _ExplainedError


class _ExplainedError(Exception):
    """It is not run."""


@pytest.fixture(scope="module")
def ledger(databases: Databases) -> Iterator[Explained]:
    """A small crowd's ledger, of which PostgreSQL knows what it has."""
    with databases.one() as url:
        fill(url, Crowd(deliveries=20_000, merchants=60))
        database = Explained(url)
        yield database
        database.dispose()


READS: Mapping[str, tuple[Callable[[Views, Database], object], set[str]]] = {
    "the newest": (lambda views, _: views.deliveries(Wanted(), 50), {"deliveries_newest"}),
    "behind another": (lambda views, _: views.deliveries(Wanted(), 50, "crowd-evt-9000"), {"deliveries_newest"}),
    "a merchant's": (lambda views, _: views.deliveries(Wanted(merchant_id="crowd-50"), 50), {"deliveries_of_merchant"}),
    "an endpoint's": (lambda views, _: views.deliveries(Wanted(endpoint_id=_NAMED), 50), {"deliveries_at_endpoint"}),
    "a default endpoint's": (
        lambda views, _: views.deliveries(Wanted(endpoint_id="crowd-50"), 50),
        {"deliveries_of_merchant"},
    ),
    "a rare type's": (lambda views, _: views.deliveries(Wanted(type=RARE_TYPE), 50), {"deliveries_of_type"}),
    "a type that there is not": (lambda views, _: views.deliveries(Wanted(type="x.y"), 50), {"deliveries_of_type"}),
    "failed": (lambda views, _: views.deliveries(Wanted(state=State.FAILED), 50), {"deliveries_failed"}),
    "failed for a reason": (
        lambda views, _: views.deliveries(Wanted(reason=Reason.EXPIRED), 50),
        {"deliveries_failed"},
    ),
    "held for a cause": (lambda views, _: views.deliveries(Wanted(held_for=HeldFor.ADDRESS), 50), set()),
    "pending": (lambda views, _: views.deliveries(Wanted(state=State.PENDING), 50), set()),
    "delivered": (lambda views, _: views.deliveries(Wanted(state=State.DELIVERED), 50), {"deliveries_newest"}),
    "not delivered": (lambda views, _: views.deliveries(Wanted(answer=503), 50), {"deliveries_to_expire"}),
    "rarely answered": (lambda views, _: views.deliveries(Wanted(answer=RARE_ANSWER), 50), {"attempts_answered"}),
    "found": (lambda views, _: views.find("pay_77", 50), {"event_keys_by_value", "deliveries_pkey"}),
    "found of many": (lambda views, _: views.find("order-1", 50), {"event_keys_by_value"}),
    "by state": (lambda views, _: views.count_by_state(), {"deliveries_failed", "deliveries_held_at"}),
    "standing": (lambda views, _: views.standing(), {"deliveries_failed", "deliveries_held_at"}),
    "let go": (lambda views, _: views.count_let_go(), {"deliveries_held_at"}),
    "stock": (lambda views, _: views.stock(), {"deliveries_held_at", "deliveries_to_sweep", "deliveries_on_desk"}),
    "held by merchant": (lambda views, _: views.holders(20), {"deliveries_held_at"}),
    "held by endpoint": (lambda views, _: views.holding_most(20), {"deliveries_held_at"}),
    "held of a merchant": (lambda views, _: views.count_held("crowd-7"), {"deliveries_held_at"}),
    "overdue": (lambda views, _: views.overdue(20), {"deliveries_to_sweep"}),
    "pace": (lambda views, _: views.pace(), {"deliveries_newest", "deliveries_to_prune"}),
    "counted": (lambda _, database: Tallying(database).tally(), {"deliveries_newest", "deliveries_to_prune"}),
    "an endpoint's answers": (
        lambda views, _: views.performance_at(_MERCHANT),
        {"attempts_at_endpoint", "deliveries_held_at", "deliveries_failed_at"},
    ),
    "a merchant's answers": (lambda views, _: views.performance_of("crowd-7"), {"attempts_at_endpoint"}),
    "last answers": (lambda views, _: views.last_answers(_MERCHANT, 20), {"attempts_at_endpoint"}),
    "a replay by type": (
        lambda _, database: Replays(database, max_age=timedelta(days=30)).replay_some(
            Wanted(type=RARE_TYPE), again=True, finished_before=_views(database).now(), most=5
        ),
        {"deliveries_of_type"},
    ),
}


@pytest.mark.parametrize("name", READS)
def test_a_question_is_answered_by_its_index(ledger: Explained, name: str) -> None:
    """The planner chooses it of itself, and looks through none of the large tables."""
    read, expected = READS[name]
    ledger.plans.clear()
    read(_views(ledger), ledger)
    nodes = [node for plan in ledger.plans for node in _nodes(plan)]
    assert [node for node in nodes if node["Node Type"] == "Seq Scan" and node["Relation Name"] in _LARGE] == []
    assert expected <= {node["Index Name"] for node in nodes if "Index Name" in node}


def _views(database: Database) -> Views:
    return Views(database, recover_after=timedelta(seconds=30))


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Give the nodes of a plan, but for what reads the first rows that there are, and no more."""
    yield plan
    for below in plan.get("Plans", ()):
        if not (plan["Node Type"] == "Limit" and below["Node Type"] == "Seq Scan" and "Filter" not in below):
            yield from _nodes(below)
