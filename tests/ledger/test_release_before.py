"""Producers and workers of the release before go on, on tables that know by what events are found."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.command import done
from tests.ledger.test_schema import start_over
from tests.system import System
from webhooks import parts

_ROLE = "a_producer_before"

_BEFORE = """
SELECT * FROM webhooks_accept_event('evt-1', 'acme', 'refund.completed', true, '{}', sha256('{}'), :none, :none, false,
    :most)
"""


@pytest.fixture
def role(system: System) -> Iterator[str]:
    """A producer's own role, which may write events, and is of all databases."""
    start_over(system, "0007")
    system.sql(f"CREATE ROLE {_ROLE}")
    yield _ROLE
    system.sql(f"DROP OWNED BY {_ROLE}")
    system.sql(f"DROP ROLE {_ROLE}")


def test_whoever_may_write_events_may_say_by_what_they_are_found(system: System, role: str) -> None:
    """An upgrade gives the same rights, and no further ones."""
    system.sql(f"GRANT SELECT, INSERT ON events TO {role}")
    done("db", "upgrade")
    rights = "SELECT has_table_privilege(:role, 'event_keys', right_) AS may FROM unnest(:rights) AS right_"
    told = system.sql(rights, role=role, rights=["SELECT", "INSERT", "DELETE", "UPDATE"])
    assert [row.may for row in told] == [True, True, False, False]


def test_a_producer_of_the_release_before_is_served(system: System) -> None:
    """By the function that it knows; what it accepts is found by the event's id, and its attempts by their delivery."""
    start_over(system, "0007")
    done("db", "upgrade")
    (row,) = system.sql(_BEFORE, none=timedelta(), most=timedelta(days=30))
    assert (row.event_id, row.endpoint_id) == ("evt-1", "acme")
    assert [(each.delivery.id, each.field) for each in parts.views().find("evt-1", 10)] == [("evt-1", "id")]
    written = "INSERT INTO attempts (delivery_id, number, started_at, outcome) VALUES ('evt-1', 1, now(), 'unknown')"
    system.sql(written)
    assert len(parts.views().delivery("evt-1").attempts) == 1
    assert parts.views().last_answers("acme", 10) == []
