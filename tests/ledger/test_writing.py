"""What a delivery writes into the indexes of the ledger."""

from __future__ import annotations

from tests.ledger.books import Books
from webhooks.accepting import reading
from webhooks.demo.stage import wait_until

_MANY = 200  # more than the room that is left on their pages takes at once

_UPDATES = """
SELECT pg_stat_get_tuples_updated(oid) AS made, pg_stat_get_tuples_hot_updated(oid) AS hot
FROM pg_class WHERE relname = 'deliveries'
"""


def test_a_claim_writes_no_entry_into_an_index(books: Books) -> None:
    """Every claim is an update within its row's page (HOT), also of more deliveries than the pages have room for."""
    books.register()
    events = [{"id": f"evt-{n}", "type": "refund.completed", "merchant_id": "acme"} for n in range(_MANY)]
    messages = [message for event in events for message in books.ledger.record(reading.read(event))]
    books.sql("SELECT pg_stat_reset_single_table_counters('deliveries'::regclass)")
    for message in messages:
        books.claim(message)
    books.database.dispose()  # a session tells at its end what it has done
    wait_until(lambda: _updates(books)[0] == _MANY, "all claims are counted")
    assert _updates(books)[1] > 0.9 * _MANY  # whoever looks at the table at that moment may cost one


def _updates(books: Books) -> tuple[int, int]:
    """Return how many updates of deliveries are counted, and how many of them were HOT."""
    (row,) = books.sql(_UPDATES)
    return row.made, row.hot
