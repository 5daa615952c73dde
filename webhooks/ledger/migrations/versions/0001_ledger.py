"""The tables of the ledger."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create merchants, deliveries, attempts and audit."""
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("what", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=True),
        sa.Column("deliveries", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        comment="what operators did by hand",
    )
    op.create_table(
        "deliveries",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("merchant_id", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("money", sa.Boolean(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=True),
        sa.Column("body_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("state", sa.Text(), server_default="pending", nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("held_for", sa.Text(), nullable=True),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("sweep_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("queued_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("sending_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("silent_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("turn", sa.Integer(), server_default="0", nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("fast_spent", sa.SmallInteger(), server_default="0", nullable=False),
        sa.Column("slow_spent", sa.SmallInteger(), server_default="0", nullable=False),
        sa.Column("slow_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("accepted_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("(state = 'failed') = (reason IS NOT NULL)", name="failed_has_a_reason"),
        sa.CheckConstraint("(state = 'held') = (held_for IS NOT NULL)", name="held_says_for_what"),
        sa.CheckConstraint("(state = 'pending') = (sweep_at IS NOT NULL)", name="pending_is_swept"),
        sa.CheckConstraint("(state IN ('delivered', 'failed')) = (finished_at IS NOT NULL)", name="final_has_a_time"),
        sa.CheckConstraint(
            "held_for IN ('address', 'breaker', 'lane', 'operator', 'replay')", name="held_for_is_known"
        ),
        sa.CheckConstraint(
            "reason IN ('fast_exhausted', 'slow_exhausted', 'rejected', 'expired', 'cancelled')", name="reason_is_known"
        ),
        sa.CheckConstraint("state IN ('pending', 'held', 'delivered', 'failed')", name="state_is_known"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "deliveries_held",
        "deliveries",
        ["merchant_id", "accepted_at", "id"],
        unique=False,
        postgresql_where=sa.text("state = 'held'"),
    )
    op.create_index("deliveries_of_merchant", "deliveries", ["merchant_id", "accepted_at"], unique=False)
    op.create_index(
        "deliveries_to_expire",
        "deliveries",
        ["expires_at"],
        unique=False,
        postgresql_where=sa.text("state IN ('pending', 'held')"),
    )
    op.create_index(
        "deliveries_to_probe",
        "deliveries",
        ["merchant_id", "fast_spent", "accepted_at", "id"],
        unique=False,
        postgresql_where=sa.text("state = 'held'"),
    )
    op.create_index(
        "deliveries_to_prune",
        "deliveries",
        ["state", "finished_at"],
        unique=False,
        postgresql_where=sa.text("finished_at IS NOT NULL AND body IS NOT NULL"),
    )
    op.create_index(
        "deliveries_to_replay",
        "deliveries",
        ["accepted_at"],
        unique=False,
        postgresql_where=sa.text("state = 'failed'"),
    )
    op.create_index(
        "deliveries_sending",
        "deliveries",
        ["sweep_at"],
        unique=False,
        postgresql_where=sa.text("state = 'pending' AND sending_since IS NOT NULL"),
    )
    op.create_index(
        "deliveries_to_sweep", "deliveries", ["sweep_at"], unique=False, postgresql_where=sa.text("state = 'pending'")
    )
    op.create_table(
        "merchants",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=True),
        sa.Column("secret", sa.LargeBinary(), nullable=True),
        sa.Column("previous_secret", sa.LargeBinary(), nullable=True),
        sa.Column("previous_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("standard_headers", sa.Boolean(), server_default="false", nullable=False),
        sa.Column("paused_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "attempts",
        sa.Column("delivery_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("duration_ms", sa.BigInteger(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("status", sa.SmallInteger(), nullable=True),
        sa.Column("cause", sa.Text(), nullable=True),
        sa.Column("excerpt", sa.Text(), nullable=True),
        sa.Column("ladder", sa.Text(), nullable=True),
        sa.Column("probe", sa.Boolean(), server_default="false", nullable=False),
        sa.CheckConstraint("ladder IN ('fast', 'slow')", name="ladder_is_known"),
        sa.CheckConstraint(
            "outcome IN ('delivered', 'unavailable', 'throttled', 'rejected', 'misdirected', 'unsendable', 'unknown')",
            name="outcome_is_known",
        ),
        sa.ForeignKeyConstraint(["delivery_id"], ["deliveries.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("delivery_id", "number"),
    )
