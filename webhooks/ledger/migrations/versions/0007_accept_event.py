"""How one event is accepted, as a function: planning the statement anew takes longer than running it.

Producers of the release before send the statement and go on. Whoever changes what it does gives the new one another
name: producers of this release go on with this one.
"""

from alembic import op

revision = "0007"
down_revision = "0006"

# It runs with the rights of whoever calls it. One statement sees one moment: of an endpoint that comes or goes
# meanwhile, the event's mark and its deliveries say the same.
_ACCEPT = """
CREATE OR REPLACE FUNCTION webhooks_accept_event(the_id text, the_merchant_id text, the_type text, the_money boolean,
    the_body bytea, the_digest bytea, the_wait interval, the_recover_after interval, the_queued boolean,
    the_max_age interval)
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


def upgrade() -> None:
    """Make it, for all who may write into the tables, whatever is usual for functions of this database."""
    op.execute(_ACCEPT)
    op.execute("GRANT EXECUTE ON FUNCTION webhooks_accept_event TO PUBLIC")
