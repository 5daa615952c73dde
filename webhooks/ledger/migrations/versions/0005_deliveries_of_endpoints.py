"""What holds of every delivery from here on: it has an event and an endpoint, and who sends it stands in claims."""

from alembic import op

revision = "0005"
down_revision = "0004"

_SENT = """
INSERT INTO claims (delivery_id, name, ends_at, silent_since)
SELECT id, coalesce(claimed_by, gen_random_uuid()), sweep_at, silent_since
FROM deliveries WHERE state = 'pending' AND sending_since IS NOT NULL
ON CONFLICT DO NOTHING
"""


def upgrade() -> None:
    """Demand it, and drop the columns that have moved."""
    with op.get_context().autocommit_block():
        for column in ("event_id", "endpoint_id"):
            op.execute(
                f"SET LOCAL lock_timeout = '2s'; ALTER TABLE deliveries DROP CONSTRAINT IF EXISTS has_{column}, "
                f"ADD CONSTRAINT has_{column} CHECK ({column} IS NOT NULL) NOT VALID"
            )
            op.execute(f"ALTER TABLE deliveries VALIDATE CONSTRAINT has_{column}")  # while others read and write
    for column in ("event_id", "endpoint_id"):
        op.alter_column("deliveries", column, nullable=False)  # the constraint says so already: nothing is read
        op.drop_constraint(f"has_{column}", "deliveries")
    op.execute(_SENT)
    op.drop_column("deliveries", "claimed_by")
    op.drop_column("deliveries", "silent_since")
