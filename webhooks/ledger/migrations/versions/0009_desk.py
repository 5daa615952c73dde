"""What people have seen and dealt with of what failed, and what they noted. The release before goes on without it."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

_MOMENTS = """
SET LOCAL lock_timeout = '2s'; ALTER TABLE deliveries
    ADD COLUMN IF NOT EXISTS seen_at timestamptz, ADD COLUMN IF NOT EXISTS dismissed_at timestamptz
"""

_OPEN = (
    "state = 'failed' AND NOT pruned AND reason <> 'cancelled' AND (dismissed_at IS NULL OR dismissed_at < finished_at)"
)


def upgrade() -> None:
    """Add two moments, which rewrites no row, index what failed while others read and write, and make room for notes.

    What was cut off in the middle is begun again: an index that was not built to its end is worth nothing.
    """
    with op.get_context().autocommit_block():
        op.execute(_MOMENTS)
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS deliveries_on_desk")
        op.create_index(
            "deliveries_on_desk",
            "deliveries",
            ["merchant_id", "reason", "money", "finished_at", "id"],
            postgresql_include=["seen_at"],
            postgresql_where=sa.text(_OPEN),
            postgresql_concurrently=True,
        )
    op.create_table(
        "notes",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("delivery_id", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["delivery_id"], ["deliveries.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        comment="what people wrote down about deliveries",
    )
    op.create_index("notes_of_delivery", "notes", ["delivery_id", "id"])
