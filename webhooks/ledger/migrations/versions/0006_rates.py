"""An endpoint's own rate, and deliveries that are held for it."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_KNOWN = "held_for IN ('address', 'breaker', 'lane', 'rate', 'operator', 'replay')"


def upgrade() -> None:
    """Let more be said of what a delivery waits for, which rows of the release before satisfy, and add the column."""
    with op.get_context().autocommit_block():
        op.execute(
            "SET LOCAL lock_timeout = '2s'; ALTER TABLE deliveries DROP CONSTRAINT IF EXISTS held_for_is_known, "
            f"ADD CONSTRAINT held_for_is_known CHECK ({_KNOWN}) NOT VALID"
        )
        op.execute("ALTER TABLE deliveries VALIDATE CONSTRAINT held_for_is_known")  # while others read and write
    op.add_column("endpoints", sa.Column("rate", sa.Double(), nullable=True))
    op.create_check_constraint("rate_is_possible", "endpoints", "rate BETWEEN 0.01 AND 1000")
