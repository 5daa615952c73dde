"""What there is already, moved: each body into its event, in batches that each count, so that nothing waits for it.

Interrupted, it goes on where it was.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_BATCH = 5000

# In the order of the primary key. Where a producer of this release has handed over the same id meanwhile, the body of
# the delivery is the older one, and counts.
_MOVE = """
WITH next AS MATERIALIZED (
    SELECT id FROM deliveries WHERE event_id IS NULL AND id > :after ORDER BY id LIMIT :batch FOR UPDATE
), moved AS (
    INSERT INTO events (id, merchant_id, type, money, body, body_sha256, accepted_at)
    SELECT id, merchant_id, type, money, body, body_sha256, accepted_at FROM deliveries JOIN next USING (id)
    ON CONFLICT (id) DO UPDATE SET body = excluded.body, body_sha256 = excluded.body_sha256
), said AS (
    UPDATE deliveries SET event_id = next.id, endpoint_id = deliveries.merchant_id, body = NULL, body_sha256 = NULL,
        pruned = deliveries.finished_at IS NOT NULL AND deliveries.body IS NULL
    FROM next WHERE deliveries.id = next.id
)
SELECT max(id) FROM next
"""

_INDEXES = {
    "deliveries_held": ("endpoint_id, accepted_at, id", "state = 'held'"),
    "deliveries_to_probe": ("endpoint_id, fast_spent, accepted_at, id", "state = 'held'"),
    "deliveries_to_prune": ("state, finished_at", "finished_at IS NOT NULL AND NOT pruned"),
    "deliveries_of_event": ("event_id", "event_id <> id"),
}


def upgrade() -> None:
    """Move the events, then build the indexes anew."""
    with op.get_context().autocommit_block():
        after = ""
        while (last := _move(after)) is not None:
            after = last
        for name, (columns, where) in _INDEXES.items():
            op.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
            op.execute(f"CREATE INDEX CONCURRENTLY {name} ON deliveries ({columns}) WHERE {where}")
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS deliveries_sending")


def _move(after: str) -> str | None:
    last: str | None = op.get_bind().scalar(sa.text(_MOVE), {"after": after, "batch": _BATCH})
    return last
