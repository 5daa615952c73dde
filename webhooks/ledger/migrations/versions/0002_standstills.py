"""What makes a standstill seen: leases that say when their work was last done, claims with a name, refused events."""

import sqlalchemy as sa
from alembic import op

from webhooks.errors import NotPossible

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create leases and refused_events, name claims, and demand a secret of every merchant with an address."""
    op.create_table(
        "leases",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("ends_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("name"),
        comment="what one process at a time does, and when it was last done",
    )
    op.create_table(
        "refused_events",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=True),
        sa.Column("merchant_id", sa.Text(), nullable=True),
        sa.Column("type", sa.Text(), nullable=True),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        comment="events sent by task name that could not be accepted: their producers hear nothing",
    )
    op.add_column("deliveries", sa.Column("claimed_by", sa.Uuid(), nullable=True))
    _refuse_addresses_without_a_secret()
    op.create_check_constraint("address_has_a_secret", "merchants", "url IS NULL OR secret IS NOT NULL")


def _refuse_addresses_without_a_secret() -> None:
    """Name those that there are, only possible by hand: nothing was ever sent to them."""
    found = op.get_bind().scalars(
        sa.text("SELECT id FROM merchants WHERE url IS NOT NULL AND secret IS NULL ORDER BY id LIMIT 5")
    )
    if named := ", ".join(found):
        raise NotPossible(
            f"merchants with an address and no secret, to which nothing was ever sent: {named}; take each address away "
            "with SQL (url = NULL in the table merchants), then upgrade again, and set it anew"
        )
