"""A large ledger, made in one command: `python -m benchmarks.crowd` fills the one of WEBHOOKS_DATABASE_URL.

By default 1,000,000 deliveries of 300 merchants with some 3,000,000 attempts over 30 days, as a busy installation has
them: most delivered, some thousands held, failed and pending, types and merchants some common and some rare. The same
numbers make the same ledger.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import psycopg2

_AT_ONCE = 50_000  # deliveries in one transaction

TYPES = (
    "payment.status_changed",
    "withdrawal.status_changed",
    "exchange.status_changed",
    "refund.completed",
    "subscription.status_changed",
    "kyc.status_changed",
)
RARE_TYPE = "payment.delivery_proof_reminder"  # one of 10,000
RARE_ANSWER = 418

_ENDPOINTS = """
INSERT INTO endpoints (id, merchant_id, url, secret)
SELECT CASE WHEN named THEN 'ep_crowd' || n ELSE 'crowd-' || n END, 'crowd-' || n, 'https://crowd.example/', 's'
FROM generate_series(1, %(merchants)s) AS n, unnest(ARRAY[false, true]) AS named
WHERE n %% 10 <> 0 AND (NOT named OR n %% 7 = 0)
ON CONFLICT DO NOTHING
"""

# What chance there is comes of a number's digest, so that it is the same in every run. Of each 1,000 deliveries: 3 are
# pending, 6 held, 5 failed; the pending are among the youngest, as long as those are.
_DRAWN = """
CREATE TEMPORARY TABLE drawn ON COMMIT DROP AS
SELECT id, merchant_id, CASE WHEN named THEN 'ep_crowd' || m ELSE merchant_id END AS endpoint_id, type,
    type IN ('payment.status_changed', 'refund.completed') AS money, accepted_at, state, n,
    CASE WHEN m %% 10 = 0 THEN 'address' WHEN m %% 3 = 0 THEN 'breaker' ELSE 'lane' END AS held_for,
    (ARRAY['fast_exhausted', 'slow_exhausted', 'rejected', 'expired', 'cancelled'])[1 + n %% 5] AS reason,
    CASE state WHEN 'failed' THEN 6 WHEN 'held' THEN n %% 2 WHEN 'pending' THEN n %% 3 ELSE 1 + floor(5 * c)::int END
        AS attempts,
    CASE WHEN n %% 5000 = 7 THEN 418 ELSE (ARRAY[500, 503, 404, 429])[1 + n %% 4] END AS refusal
FROM (
    SELECT n, 'crowd-evt-' || n AS id, 'crowd-' || m AS merchant_id, m, m %% 7 = 0 AND n %% 3 = 0 AS named, c,
        CASE WHEN n %% 10000 = 0 THEN %(rare)s ELSE (%(types)s)[1 + floor(6 * b * b)::int] END AS type,
        now() - CAST(%(span)s AS interval) * (1 - n / %(total)s::float8) AS accepted_at,
        CASE WHEN n > %(total)s * 0.997 THEN 'pending' WHEN n %% 1000 < 6 THEN 'held' WHEN n %% 1000 < 11 THEN 'failed'
            ELSE 'delivered' END AS state
    FROM (
        SELECT n, 1 + floor(%(merchants)s * a * a)::int AS m, b, c
        FROM generate_series(%(first)s, %(last)s) AS n, LATERAL (
            SELECT abs(hashint8extended(n, 1) %% 1000000) / 1e6 AS a, abs(hashint8extended(n, 2) %% 1000000) / 1e6 AS b,
                abs(hashint8extended(n, 3) %% 1000000) / 1e6 AS c
        ) AS chance
    ) AS drawn
) AS chosen;
"""

_FILL = (
    """
INSERT INTO events (id, merchant_id, type, money, body, body_sha256, accepted_at)
SELECT id, merchant_id, type, money, convert_to(format('{"id":"%%s","payment_id":"pay_%%s"}', id, n), 'UTF8'),
    sha256(id::bytea), accepted_at
FROM drawn
""",
    """
INSERT INTO event_keys (value, field, event_id, accepted_at)
SELECT 'pay_' || n, 'payment_id', id, accepted_at FROM drawn
UNION ALL SELECT 'order-' || n %% 100000, 'external_id', id, accepted_at FROM drawn
""",
    """
INSERT INTO deliveries (id, event_id, merchant_id, endpoint_id, type, money, state, reason, held_for, due_at, sweep_at,
    turn, attempts, fast_spent, accepted_at, expires_at, finished_at)
SELECT id || CASE WHEN endpoint_id = merchant_id THEN '' ELSE '~' || endpoint_id END, id, merchant_id, endpoint_id,
    type, money, state, CASE state WHEN 'failed' THEN reason END, CASE state WHEN 'held' THEN held_for END,
    accepted_at + attempts * interval '2 s', CASE state WHEN 'pending' THEN accepted_at + interval '30 s' END,
    attempts, attempts, 0, accepted_at, accepted_at + interval '30 days',
    CASE WHEN state IN ('delivered', 'failed') THEN accepted_at + attempts * interval '2.1 s' END
FROM drawn
""",
    """
INSERT INTO attempts (delivery_id, endpoint_id, number, started_at, duration_ms, outcome, status)
SELECT id || CASE WHEN endpoint_id = merchant_id THEN '' ELSE '~' || endpoint_id END, endpoint_id, number,
    accepted_at + number * interval '2.05 s', 20 + n %% 400, CASE WHEN state = 'delivered' AND number = attempts
        THEN 'delivered' WHEN refusal IN (404, 418) THEN 'rejected' WHEN refusal = 429 THEN 'throttled'
        ELSE 'unavailable' END, CASE WHEN state = 'delivered' AND number = attempts THEN 200 ELSE refusal END
FROM drawn, generate_series(1, attempts) AS number
""",
)


@dataclass(frozen=True, slots=True)
class Crowd:
    """How large a ledger is to be."""

    deliveries: int = 1_000_000
    merchants: int = 300
    days: float = 30


def fill(url: str, crowd: Crowd) -> None:
    """Fill a migrated ledger, and let PostgreSQL look at what it has; what is there stays."""
    connection = psycopg2.connect(url)
    values = {
        "total": crowd.deliveries,
        "merchants": crowd.merchants,
        "span": f"{crowd.days} days",
        "types": list(TYPES),
        "rare": RARE_TYPE,
    }
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute(_ENDPOINTS, values)
        for first in range(1, crowd.deliveries + 1, _AT_ONCE):
            bounds = {"first": first, "last": min(first + _AT_ONCE - 1, crowd.deliveries)}
            with connection, connection.cursor() as cursor:
                for statement in (_DRAWN, *_FILL):
                    cursor.execute(statement, values | bounds)
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute("VACUUM ANALYZE deliveries, attempts, events, event_keys, endpoints")
    finally:
        connection.close()


def main(words: Sequence[str] | None = None) -> int:
    """Fill the ledger of this environment."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crowd", description="Fill a ledger, to read from it.")
    usual = Crowd()
    parser.add_argument("--deliveries", type=int, default=usual.deliveries)
    parser.add_argument("--merchants", type=int, default=usual.merchants)
    parser.add_argument("--days", type=float, default=usual.days)
    asked = parser.parse_args(words)
    url = os.environ.get("WEBHOOKS_DATABASE_URL")
    if not url:
        print("WEBHOOKS_DATABASE_URL is not set: it names the ledger to fill, which must be nobody's", file=sys.stderr)
        return 2
    fill(url, Crowd(asked.deliveries, asked.merchants, asked.days))
    return 0


if __name__ == "__main__":
    sys.exit(main())
