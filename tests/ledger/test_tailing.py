"""Following the attempts: each is told once, whatever the order in which they are written down."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg2
import pytest
from sqlalchemy import Interval, TextClause, text

from tests.courier import accept
from tests.system import System
from webhooks import parts
from webhooks.errors import LedgerUnavailable
from webhooks.ledger import tailing
from webhooks.ledger.tailing import Followed, Tail
from webhooks.ledger.transitions import the

EVENT = {"type": "kyc.status_changed", "status": "approved", "merchant_id": "acme"}
INSERT = (
    "INSERT INTO attempts (delivery_id, number, started_at, duration_ms, outcome, status)"
    " VALUES (%s, %s, now() - interval '1 second' * %s, 80, %s, 200)"
)


class Writer:
    """Somebody who writes attempts down, and commits when told to."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg2.connect(url)

    def write(self, delivery_id: str, number: int, *, ago_s: float = 0, outcome: str = "delivered") -> None:
        """Write one down, which began so long ago."""
        with self._connection.cursor() as cursor:
            cursor.execute(INSERT, (delivery_id, number, ago_s, outcome))

    def commit(self) -> None:
        """Have it seen."""
        self._connection.commit()


@pytest.fixture
def url(system: System) -> Any:
    """The ledger, with two deliveries in it."""
    for delivery_id, merchant_id in (("evt-1", "acme"), ("evt-2", "other")):
        accept({**EVENT, "id": delivery_id, "merchant_id": merchant_id})
    return system.environment["WEBHOOKS_DATABASE_URL"]


def tail(since: datetime | None = None, **followed: Any) -> Tail:
    """Follow from here on."""
    one = Tail(parts.database(), Followed(**followed), since)
    if since is None:
        assert news(one) == []
    return one


def news(one: Tail) -> Sequence[str]:
    """Return what is new, as `delivery/number`."""
    return [f"{made.attempt.delivery_id}/{made.attempt.number}" for made in one.news()]


def test_what_takes_longer_to_commit_is_told_when_it_has(url: str) -> None:
    """Neither is one lost that began first and was written down last, nor is one told twice."""
    slow, quick = Writer(url), Writer(url)
    one = tail()
    slow.write("evt-1", 1, ago_s=20)
    quick.write("evt-1", 2)
    quick.commit()
    assert news(one) == ["evt-1/2"]
    quick.write("evt-1", 3)
    quick.commit()
    slow.commit()
    assert news(one) == ["evt-1/1", "evt-1/3"]
    assert news(one) == []


def test_each_is_told_once_in_pages_while_others_are_written(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written down between two pages of one look is left to the next look, wherever it falls in the order."""
    monkeypatch.setattr(tailing, "_PAGE", 2)
    writer, one = Writer(url), tail()
    for number in range(1, 6):
        writer.write("evt-1", number, ago_s=10 - number)
    writer.commit()
    told = []
    for made in one.news():
        told.append(made.attempt.number)
        writer.write("evt-2", made.attempt.number, ago_s=20 if made.attempt.number % 2 else 0)
        writer.commit()
    assert told == [1, 2, 3, 4, 5]
    assert sorted(news(one)) == [f"evt-2/{number}" for number in range(1, 6)]
    assert news(one) == []


def test_an_outage_loses_none_and_repeats_none(url: str, system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever follows goes on where it was, and what was written down after the outage is told as well."""
    monkeypatch.setattr(tailing, "_PAGE", 2)
    writer, one = Writer(url), tail()
    for number in range(1, 6):
        writer.write("evt-1", number, ago_s=10 - number)
    writer.commit()
    going = one.news()
    told = [next(going).attempt.number, next(going).attempt.number]
    with system.ledger_away(), parts.database().within(timedelta(seconds=2)), pytest.raises(LedgerUnavailable):
        next(going)
    assert told == [1, 2]
    assert news(one) == ["evt-1/3", "evt-1/4", "evt-1/5"]
    again = Writer(url)
    again.write("evt-2", 1, ago_s=60)
    again.commit()
    assert news(one) == ["evt-2/1"]


def test_an_answer_that_comes_late_is_told_as_well(url: str) -> None:
    """An attempt of unknown outcome is told, and its answer when that is written down after all."""
    one = tail()
    parts.database().rows(text(f"{INSERT.replace('%s', '{}')}".format("'evt-1'", 1, 5, "'unknown'")))
    assert [made.attempt.outcome for made in one.news()] == ["unknown"]
    parts.database().rows(text("UPDATE attempts SET outcome = 'delivered'"))
    assert [made.attempt.outcome for made in one.news()] == ["delivered"]
    assert news(one) == []


@pytest.mark.parametrize(
    ("followed", "told"),
    [
        ({}, ["evt-1/1", "evt-1/2", "evt-2/1"]),
        ({"merchant_id": "acme"}, ["evt-1/1", "evt-1/2"]),
        ({"endpoint_id": "other"}, ["evt-2/1"]),
        ({"failed": True}, ["evt-1/1"]),
        ({"merchant_id": "other", "failed": True}, []),
    ],
    ids=json.dumps,
)
def test_only_what_is_followed_is_told(url: str, followed: dict[str, Any], told: Sequence[str]) -> None:
    """One merchant's, one endpoint's, what was not answered 2xx."""
    one, writer = tail(**followed), Writer(url)
    writer.write("evt-1", 1, ago_s=3, outcome="unavailable")
    writer.write("evt-1", 2, ago_s=2)
    writer.write("evt-2", 1, ago_s=1)
    writer.commit()
    assert news(one) == told


def test_what_was_lately_can_be_told_first(url: str) -> None:
    """From a moment on, and then what comes; older ones are left out."""
    writer = Writer(url)
    writer.write("evt-1", 1, ago_s=900)
    writer.write("evt-1", 2, ago_s=300)
    writer.commit()
    one = tail(since=datetime.now(UTC) - timedelta(minutes=10))
    assert news(one) == ["evt-1/2"]
    writer.write("evt-1", 3)
    writer.commit()
    assert news(one) == ["evt-1/3"]


def test_what_is_new_is_found_by_the_index(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many attempts there are, a look reads the pages of the last minutes, and no others."""
    parts.database().rows(
        text(
            "INSERT INTO attempts (delivery_id, number, started_at, outcome) SELECT 'evt-1', number,"
            " now() - interval '30 days' + number * interval '30 seconds', 'unavailable'"
            " FROM generate_series(1, 80000) AS number"
        )
    )
    parts.database().rows(text("ANALYZE attempts"))
    one, seen = tail(), list[str]()
    look, asked = one._look(), Tail._rows

    def explained(reads: Tail, statement: TextClause, **values: Any) -> Sequence[Any]:
        its_plan = text(f"EXPLAIN {statement.text}").bindparams(the("latest", Interval))
        seen.extend(row[0] for row in asked(reads, its_plan, **values))
        return []

    monkeypatch.setattr(Tail, "_rows", explained)
    one._page(look)
    plan = "\n".join(seen)
    assert "attempts_lately" in plan, plan
    assert "Seq Scan on attempts" not in plan
