"""What operators ask of a large ledger: by which fields events are found, whose attempts these are, what went through.

The release before goes on: what it accepts is found by its event's id alone, and the attempts that it writes down are
not among those of their endpoint. Nothing that is there is written again; only indexes are built, beside everybody.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

# It is RECORD_ONE of this release on, as 0007 says of the one before.
_ACCEPT = """
CREATE OR REPLACE FUNCTION webhooks_accept_event_with_keys(the_id text, the_merchant_id text, the_type text,
    the_money boolean, the_body bytea, the_digest bytea, the_wait interval, the_recover_after interval,
    the_queued boolean, the_max_age interval, the_fields text[], the_values text[])
RETURNS TABLE (event_id text, merchant_id text, endpoint_id text, type text, accepted_at timestamptz, lane integer,
    rate double precision)
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH ways AS MATERIALIZED (
        SELECT coalesce(endpoints.id, the_merchant_id) AS endpoint_id, endpoints.lane, endpoints.rate,
            (endpoints.types IS NULL OR EXISTS (
                SELECT FROM unnest(endpoints.types) AS wanted
                WHERE the_type = wanted OR right(wanted, 2) = '.*' AND starts_with(the_type, left(wanted, -1))
            )) AS wanted
        FROM (VALUES (the_merchant_id)) AS given (merchant_id)
        LEFT JOIN endpoints ON endpoints.merchant_id = given.merchant_id AND endpoints.removed_at IS NULL
    ), accepted AS (
        INSERT INTO events (id, merchant_id, type, money, body, body_sha256, accepted_at, unmatched)
        VALUES (the_id, the_merchant_id, the_type, the_money, the_body, the_digest, statement_timestamp(),
            NOT EXISTS (SELECT FROM ways WHERE wanted))
        ON CONFLICT (id) DO NOTHING
        RETURNING accepted_at
    ), found_by AS (
        INSERT INTO event_keys (value, field, event_id, accepted_at)
        SELECT given.value, given.field, the_id, accepted.accepted_at
        FROM accepted, unnest(the_values, the_fields) AS given (value, field)
    ), begun AS (
        INSERT INTO deliveries (id, event_id, merchant_id, endpoint_id, type, money, due_at, sweep_at, queued_at,
            accepted_at, expires_at)
        SELECT CASE WHEN ways.endpoint_id = the_merchant_id THEN the_id ELSE the_id || '~' || ways.endpoint_id END,
            the_id, the_merchant_id, ways.endpoint_id, the_type, the_money, accepted.accepted_at + the_wait,
            accepted.accepted_at + the_wait + the_recover_after, CASE WHEN the_queued THEN accepted.accepted_at END,
            accepted.accepted_at, accepted.accepted_at + the_max_age
        FROM accepted JOIN ways ON wanted
        ON CONFLICT (id) DO NOTHING
    )
    SELECT the_id, the_merchant_id, ways.endpoint_id, the_type, accepted.accepted_at, ways.lane, ways.rate
    FROM accepted LEFT JOIN ways ON wanted;
END
$function$
"""

# Whoever may write events may say by what they are found: a producer that records in its own transaction has a role of
# its own, perhaps.
_AS_EVENTS = """
DO $$
DECLARE given record;
BEGIN
    FOR given IN
        SELECT CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END AS whom, privilege_type
        FROM pg_class, aclexplode(relacl)
        WHERE pg_class.oid = 'events'::regclass AND privilege_type IN ('SELECT', 'INSERT', 'DELETE')
    LOOP
        EXECUTE format('GRANT %s ON event_keys TO %s', given.privilege_type, given.whom);
    END LOOP;
END $$
"""

_INDEXES = {
    "deliveries_newest": "deliveries (accepted_at)",
    "deliveries_of_type": "deliveries (type, accepted_at)",
    "deliveries_at_endpoint": "deliveries (endpoint_id, accepted_at) WHERE endpoint_id <> merchant_id",
    "deliveries_held_at": "deliveries (endpoint_id, accepted_at, id) INCLUDE (held_for) WHERE state = 'held'",
    "deliveries_failed": "deliveries (accepted_at) INCLUDE (reason, money) WHERE state = 'failed'",
    "deliveries_failed_at": "deliveries (endpoint_id, accepted_at) INCLUDE (reason) WHERE state = 'failed'",
    "attempts_at_endpoint": "attempts (endpoint_id, started_at) WHERE endpoint_id IS NOT NULL",
    "attempts_answered": "attempts (status, started_at) WHERE outcome <> 'delivered'",
}
_REPLACED = ("deliveries_held", "deliveries_to_replay")


def upgrade() -> None:
    """Make the tables and the function, then build the indexes, and drop those that two of them stand in for."""
    op.create_table(
        "event_keys",
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("field", sa.Text(), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("accepted_at", sa.DateTime(timezone=True), nullable=False),
        sa.Index("event_keys_by_value", "value", "accepted_at"),
        comment="by what support finds events",
    )
    op.create_table(
        "tallies",
        sa.Column("minute", sa.DateTime(timezone=True), nullable=False),
        sa.Column("accepted", sa.BigInteger(), nullable=False),
        sa.Column("delivered", sa.BigInteger(), nullable=False),
        sa.Column("failed", sa.BigInteger(), nullable=False),
        sa.Column("lag", sa.Interval(), nullable=True),
        sa.Column("longest_lag", sa.Interval(), nullable=True),
        sa.PrimaryKeyConstraint("minute"),
        comment="what went through in each minute",
    )
    op.add_column("attempts", sa.Column("endpoint_id", sa.Text(), nullable=True))
    op.execute(_AS_EVENTS)
    op.execute(_ACCEPT)
    op.execute("GRANT EXECUTE ON FUNCTION webhooks_accept_event_with_keys TO PUBLIC")
    with op.get_context().autocommit_block():
        for name, of in _INDEXES.items():
            op.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
            op.execute(f"CREATE INDEX CONCURRENTLY {name} ON {of}")
        for name in _REPLACED:
            op.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
