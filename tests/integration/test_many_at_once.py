"""Transactions that bring many events, and meet over some of them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg2
import pytest

from tests.system import System
from webhooks import EventConflict, deliver, parts, record_many
from webhooks.accepting.batches import MOST_EVENTS
from webhooks.ledger import guest

EVENT = {"type": "refund.completed", "merchant_id": "acme"}


def test_two_transactions_that_share_events_wait_in_no_circle(
    system: System, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the order in which their events were given, and over how many batches."""
    parts.accepting()
    both_began, met = threading.Barrier(2), threading.local()
    record_some = guest._rows

    def meet(connection: Any, statement: Any, values: dict[str, Any]) -> Sequence[Sequence[Any]]:
        rows = record_some(connection, statement, values)
        if not getattr(met, "already", False):
            met.already = True
            with contextlib.suppress(threading.BrokenBarrierError):  # the other may wait for us in the database
                both_began.wait(timeout=1)
        return rows

    monkeypatch.setattr(guest, "_rows", meet)

    def call(own: str, shared: str) -> None:
        connection = psycopg2.connect(database_url)
        with connection:
            ids = [*(f"{own}{number:03}" for number in range(MOST_EVENTS)), shared]
            record_many(connection, [{**EVENT, "id": event_id} for event_id in ids])
        connection.close()

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(call, "a", "b000"), pool.submit(call, "b", "a000")]:
            done.result()
    assert system.sql("SELECT count(*) AS n FROM events")[0].n == 2 * MOST_EVENTS


@pytest.mark.usefixtures("system")
def test_an_error_has_the_ids_of_all_that_clash() -> None:
    """However many the text leaves out."""
    events = [{**EVENT, "id": f"evt-{number:02}"} for number in range(30)]
    deliver.many(events)
    with pytest.raises(EventConflict, match="and 10 more") as refused:
        deliver.many([{**event, "amount": "1"} for event in events])
    assert sorted(refused.value.ids) == [event["id"] for event in events]
