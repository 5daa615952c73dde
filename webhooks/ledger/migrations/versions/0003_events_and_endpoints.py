"""Events apart from their deliveries, and endpoints where there was one address a merchant: what is new, all empty.

Producers of 0.1 go on meanwhile and afterwards: a trigger turns what they write into an event. Workers of 0.1 find no
merchants from here on, and send nothing.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

revision = "0003"
down_revision = "0002"

# The first body counts, as ever: what 0.1 accepted before is not in events until the next revision has moved it, which
# may be at the very moment when a producer of 0.1 would compare the bodies itself. So they are compared here.
_TAKE_EVENT = """
CREATE FUNCTION webhooks_take_event() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    known bytea := (SELECT body_sha256 FROM deliveries WHERE id = NEW.id AND event_id IS NULL);
BEGIN
    IF known = NEW.body_sha256 THEN
        RETURN NEW;
    END IF;
    IF known IS NULL THEN
        INSERT INTO events (id, merchant_id, type, money, body, body_sha256, accepted_at)
        VALUES (NEW.id, NEW.merchant_id, NEW.type, NEW.money, NEW.body, NEW.body_sha256, NEW.accepted_at)
        ON CONFLICT (id) DO NOTHING;
        known := (SELECT body_sha256 FROM events WHERE id = NEW.id);
    END IF;
    IF known <> NEW.body_sha256 THEN
        RAISE EXCEPTION 'event % was accepted before with another body', NEW.id;
    END IF;
    NEW.event_id := NEW.id;
    NEW.endpoint_id := NEW.merchant_id;
    NEW.body := NULL;
    NEW.body_sha256 := NULL;
    RETURN NEW;
END $$;
CREATE TRIGGER webhooks_take_event BEFORE INSERT ON deliveries
    FOR EACH ROW WHEN (NEW.event_id IS NULL) EXECUTE FUNCTION webhooks_take_event();
"""


def upgrade() -> None:
    """Create events and claims, make endpoints of merchants, and give deliveries their new columns."""
    op.create_table(
        "events",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("merchant_id", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("money", sa.Boolean(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=True),
        sa.Column("body_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("accepted_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("unmatched", sa.Boolean(), server_default="false", nullable=False),
        sa.PrimaryKeyConstraint("id"),
        comment="what producers handed over",
    )
    op.create_index(
        "events_unmatched", "events", ["accepted_at"], postgresql_where=sa.text("unmatched AND body IS NOT NULL")
    )
    op.create_table(
        "claims",
        sa.Column("delivery_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Uuid(), nullable=False),
        sa.Column("ends_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("silent_since", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("delivery_id"),
        comment="which delivery a worker is sending now",
        postgresql_with={"autovacuum_vacuum_scale_factor": "0", "autovacuum_vacuum_threshold": "2000"},
    )
    _make_endpoints()
    op.add_column("deliveries", sa.Column("event_id", sa.Text(), nullable=True))
    op.add_column("deliveries", sa.Column("endpoint_id", sa.Text(), nullable=True))
    op.add_column("deliveries", sa.Column("pruned", sa.Boolean(), server_default="false", nullable=False))
    op.alter_column("deliveries", "body_sha256", nullable=True)
    op.execute("ALTER TABLE deliveries SET (fillfactor = 80)")
    op.execute(_TAKE_EVENT)


def _make_endpoints() -> None:
    op.rename_table("merchants", "endpoints")
    op.execute("ALTER INDEX merchants_pkey RENAME TO endpoints_pkey")
    op.create_table_comment("endpoints", "where the events of a merchant go")
    op.add_column("endpoints", sa.Column("merchant_id", sa.Text(), nullable=True))
    op.execute("UPDATE endpoints SET merchant_id = id")
    op.alter_column("endpoints", "merchant_id", nullable=False)
    op.add_column("endpoints", sa.Column("headers", JSONB(), server_default="{}", nullable=False))
    op.add_column("endpoints", sa.Column("types", ARRAY(sa.Text()), nullable=True))
    op.add_column("endpoints", sa.Column("lane", sa.Integer(), nullable=True))
    op.add_column("endpoints", sa.Column("note", sa.Text(), nullable=True))
    op.add_column("endpoints", sa.Column("removed_at", sa.DateTime(timezone=True), nullable=True))
    op.create_check_constraint("default_or_named", "endpoints", r"id = merchant_id OR id LIKE 'ep\_%'")
    op.create_check_constraint("lane_has_room", "endpoints", "lane BETWEEN 1 AND 1000")
    op.create_index("endpoints_of_merchant", "endpoints", ["merchant_id"])
