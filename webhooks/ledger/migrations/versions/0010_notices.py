"""What operators are told without having asked."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Create the table; nobody of the release before knows it."""
    moment = sa.DateTime(timezone=True)
    op.create_table(
        "notices",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=True),
        sa.Column("merchant_id", sa.Text(), nullable=False),
        sa.Column("endpoint_id", sa.Text(), nullable=True),
        sa.Column("since", moment, nullable=False),
        sa.Column("noted_at", moment, nullable=True),
        sa.Column("held", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("failed", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("tries", sa.SmallInteger(), server_default="0", nullable=False),
        sa.Column("try_at", moment, nullable=True),
        sa.Column("told_at", moment, nullable=True),
        sa.Column("told_to", postgresql.ARRAY(sa.Text()), server_default="{}", nullable=False),
        sa.Column("told_with", sa.BigInteger(), nullable=True),
        sa.Column("trouble", sa.Text(), nullable=True),
        sa.CheckConstraint("kind IN ('endpoint_paused', 'endpoint_gone', 'money_failed')", name="kind_is_known"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("key"),
        comment="what operators are told without having asked, and whom it has reached",
    )
    op.create_index("notices_noted", "notices", ["noted_at"])
    op.create_index("notices_of_merchant", "notices", ["merchant_id", "kind", "noted_at"])
