"""What the tests of faults share: short times, and rows made by the thousand."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.faults.proxy import Proxy
from tests.system import System

_LONGEST_FIRST = (
    "test_a_load_with_retries_a_purge_and_a_release",
    "test_killed_in_mid_post_three_times",
    "test_consuming_again_soon_after_a_long_absence",
)

_BATCH = 50_000  # rows that one statement makes well within the ledger's time limit, also on a busy machine

MakeRows = Callable[..., None]

_ROWS = """
WITH given AS (
    SELECT :prefix || n AS id, now() - interval '1 hour' AS since FROM generate_series(:first, :last) AS n
), accepted AS (
    INSERT INTO events (id, merchant_id, type, money, body, body_sha256, accepted_at)
    SELECT id, :merchant, 'payment.status_changed', true,
           convert_to(json_build_object('id', id, 'merchant_id', :merchant)::text, 'UTF8'), decode('00', 'hex'), since
    FROM given
), claimed AS (
    INSERT INTO claims (delivery_id, name, ends_at) SELECT id, gen_random_uuid(), since FROM given WHERE :sending
)
INSERT INTO deliveries (id, event_id, merchant_id, endpoint_id, type, money, state, held_for, due_at, sweep_at,
                        queued_at, sending_since, attempts, accepted_at, expires_at)
SELECT id, id, :merchant, :merchant, 'payment.status_changed', true, :state, :held_for, since,
       CASE WHEN :state = 'pending' THEN since END, CASE WHEN :queued THEN since END, CASE WHEN :sending THEN since END,
       CASE WHEN :sending THEN 1 ELSE 0 END, since, now() + interval '1 day'
FROM given
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start what waits longest first, so that the others run meanwhile."""
    items.sort(key=lambda item: item.name not in _LONGEST_FIRST)


@pytest.fixture
def make_rows(system: System) -> MakeRows:
    """Make deliveries that were due an hour ago and have no message on the broker."""

    def make(
        count: int,
        *,
        prefix: str = "evt-",
        merchant: str = "acme",
        state: str = "pending",
        held_for: str | None = None,
        queued: bool = False,
        sending: bool = False,
    ) -> None:
        for first in range(1, count + 1, _BATCH):
            system.sql(
                _ROWS,
                first=first,
                last=min(first + _BATCH - 1, count),
                prefix=prefix,
                merchant=merchant,
                state=state,
                held_for=held_for,
                queued=queued,
                sending=sending,
            )

    return make


@pytest.fixture
def proxy(system: System) -> Iterator[Proxy]:
    """A proxy through which the system's processes reach Redis."""
    with Proxy(system.servers.redis.port) as proxy:
        system.set(broker_url=proxy.url)
        yield proxy
