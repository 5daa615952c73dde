"""Accepting events, and where each goes: the statements with which events and their deliveries begin.

Values are named `the_…` to keep apart from columns.
"""

from __future__ import annotations

from sqlalchemy import text

# Whether an endpoint wants what is given: all events, those of a type, or all under a name.
_WANTED = """(endpoints.types IS NULL OR EXISTS (
        SELECT FROM unnest(endpoints.types) AS wanted
        WHERE given.type = wanted OR right(wanted, 2) = '.*' AND starts_with(given.type, left(wanted, -1))))"""

# A caller's transaction may have begun long ago: the statement's time counts. Events come as one array a column, so
# that one statement takes one event or hundreds. Which endpoints want one is said here, in the same round trip; a
# merchant without any has it held for its address. An id that is known changes nothing, see CONFLICTS.
#
# What is more than an endpoint's lane would take is held from the beginning: as a message it would come to nothing but
# being held, at the cost of a worker's time for each.
RECORD = text(f"""
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(CAST(:the_ids AS text[]), CAST(:the_merchant_ids AS text[]), CAST(:the_types AS text[]),
        CAST(:the_money AS boolean[]), CAST(:the_bodies AS bytea[]), CAST(:the_digests AS bytea[]))
        AS given (id, merchant_id, type, money, body, body_sha256)
), ways AS MATERIALIZED (
    SELECT given.id AS event_id, coalesce(endpoints.id, given.merchant_id) AS endpoint_id, endpoints.lane,
        endpoints.rate, {_WANTED} AS wanted, CASE WHEN endpoints.url IS NULL THEN 'address'
        WHEN endpoints.paused_at IS NOT NULL THEN 'operator' ELSE 'lane' END AS held_for
    FROM given LEFT JOIN endpoints ON endpoints.merchant_id = given.merchant_id AND endpoints.removed_at IS NULL
), accepted AS (
    INSERT INTO events (id, merchant_id, type, money, body, body_sha256, accepted_at, unmatched)
    SELECT id, merchant_id, type, money, body, body_sha256, statement_timestamp(),
        NOT EXISTS (SELECT FROM ways WHERE event_id = given.id AND wanted)
    FROM given
    ON CONFLICT (id) DO NOTHING
    RETURNING id, merchant_id, type, money, accepted_at
), found_by AS (
    INSERT INTO event_keys (value, field, event_id, accepted_at)
    SELECT keys.value, keys.field, accepted.id, accepted.accepted_at
    FROM unnest(CAST(:the_keyed_ids AS text[]), CAST(:the_fields AS text[]), CAST(:the_values AS text[]))
        AS keys (event_id, field, value) JOIN accepted ON accepted.id = keys.event_id
), going AS MATERIALIZED (
    SELECT accepted.*, endpoint_id, lane, rate,
        CASE WHEN row_number() OVER (PARTITION BY endpoint_id ORDER BY id) > coalesce(lane, :the_most)
            THEN held_for END AS held_for
    FROM accepted JOIN ways ON event_id = id AND wanted
), begun AS (
    INSERT INTO deliveries (id, event_id, merchant_id, endpoint_id, type, money, state, held_for, due_at, sweep_at,
        queued_at, accepted_at, expires_at)
    SELECT CASE WHEN endpoint_id = merchant_id THEN id ELSE id || '~' || endpoint_id END, id, merchant_id, endpoint_id,
        type, money, CASE WHEN held_for IS NULL THEN 'pending' ELSE 'held' END, held_for,
        accepted_at + CAST(:the_wait AS interval), CASE WHEN held_for IS NULL
            THEN accepted_at + CAST(:the_wait AS interval) + CAST(:the_recover_after AS interval) END,
        CASE WHEN held_for IS NULL AND :the_queued THEN accepted_at END, accepted_at,
        accepted_at + CAST(:the_max_age AS interval)
    FROM going
    ON CONFLICT (id) DO NOTHING
)
SELECT accepted.id AS event_id, accepted.merchant_id, endpoint_id, accepted.type, accepted.accepted_at, lane, rate
FROM accepted LEFT JOIN going ON going.id = accepted.id AND held_for IS NULL
""")  # noqa: S608 - all of it is written here

# The same of one event, by a function of which every session keeps the plan: making it takes longer than all the rest.
# In a caller's transaction it is RECORD, since the caller's role may be one that calls no functions.
RECORD_ONE = text("""
SELECT event_id, merchant_id, endpoint_id, type, accepted_at, lane, rate
FROM webhooks_accept_event_with_keys(:the_id, :the_merchant_id, :the_type, :the_money, :the_body, :the_digest,
    :the_wait, :the_recover_after, :the_queued, :the_max_age, :the_fields, :the_values)
""")

# What was accepted just now, by a statement whose answer was lost.
RECORDED = text("""
SELECT deliveries.event_id, deliveries.merchant_id, deliveries.endpoint_id, deliveries.type, deliveries.accepted_at,
    endpoints.lane, endpoints.rate
FROM unnest(CAST(:the_ids AS text[]), CAST(:the_digests AS bytea[])) AS given (id, body_sha256)
JOIN events ON events.id = given.id AND events.body_sha256 = given.body_sha256
JOIN deliveries ON deliveries.event_id = events.id
LEFT JOIN endpoints ON endpoints.id = deliveries.endpoint_id
WHERE deliveries.turn = 0 AND deliveries.queued_at = deliveries.accepted_at
""")

CONFLICTS = text("""
SELECT given.id FROM unnest(CAST(:the_ids AS text[]), CAST(:the_digests AS bytea[])) AS given (id, body_sha256)
JOIN events ON events.id = given.id AND events.body_sha256 <> given.body_sha256
""")

# An event that was accepted goes also to the endpoints that want it and have not had it, or to one of these; paced like
# any release.
ROUTE = text(f"""
WITH given AS MATERIALIZED (
    SELECT id, merchant_id, type, money FROM events WHERE id = :the_id AND body IS NOT NULL
), going AS MATERIALIZED (
    SELECT endpoints.id FROM given JOIN endpoints ON endpoints.merchant_id = given.merchant_id
    WHERE endpoints.removed_at IS NULL AND endpoints.id = coalesce(:the_endpoint_id, endpoints.id) AND {_WANTED}
), matched AS (
    UPDATE events SET unmatched = false FROM given, going WHERE events.id = given.id AND unmatched
)
INSERT INTO deliveries (id, event_id, merchant_id, endpoint_id, type, money, state, held_for, due_at, accepted_at,
    expires_at)
SELECT CASE WHEN endpoints.id = given.merchant_id THEN given.id ELSE given.id || '~' || endpoints.id END, given.id,
    given.merchant_id, endpoints.id, type, money, 'held', 'replay', now(), now(), now() + CAST(:the_max_age AS interval)
FROM given, going AS endpoints
ON CONFLICT (id) DO NOTHING
RETURNING id
""")  # noqa: S608 - as above
