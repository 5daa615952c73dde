"""An index of the attempts by when they began: as small as it can be, and next to no work for who writes one down."""

from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Build it while others read and write."""
    with op.get_context().autocommit_block():
        # What an attempt before left behind would not be complete.
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS attempts_lately")
        op.create_index(
            "attempts_lately",
            "attempts",
            ["started_at"],
            postgresql_using="brin",
            postgresql_with={"pages_per_range": 16, "autosummarize": "on"},
            postgresql_concurrently=True,
        )
