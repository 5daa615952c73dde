"""The tables: events, where they go, and what has become of them on each way.

A pending delivery carries the time at which the sweep must look at it (`sweep_at`). Claiming one changes no column that
an index has or asks for, so that PostgreSQL writes no index entry for it (HOT): who is at it, and until when, stands in
`claims`, which is as small as the number of POSTs that are out.
"""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Index,
    Integer,
    Interval,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from webhooks.model import HeldFor, Ladder, Outcome, Reason, State

metadata = MetaData()

Timestamp = DateTime(timezone=True)


def one_of(column: str, words: type[StrEnum]) -> CheckConstraint:
    """Return what keeps a column to these words."""
    listed = ", ".join(f"'{word.value}'" for word in words)
    return CheckConstraint(f"{column} IN ({listed})", name=f"{column}_is_known")


events = Table(
    "events",
    metadata,
    Column("id", Text, primary_key=True),  # names one event for ever, also after its body was pruned
    Column("merchant_id", Text, nullable=False),  # it need not have an endpoint: then the delivery is held
    Column("type", Text, nullable=False),
    Column("money", Boolean, nullable=False),
    Column("body", LargeBinary),
    Column("body_sha256", LargeBinary, nullable=False),
    Column("accepted_at", Timestamp, nullable=False),
    Column("unmatched", Boolean, nullable=False, server_default="false"),  # no endpoint of its merchant wanted it
    Index("events_unmatched", "accepted_at", postgresql_where=text("unmatched AND body IS NOT NULL")),
    comment="what producers handed over",
)

event_keys = Table(
    "event_keys",
    metadata,
    Column("value", Text, nullable=False),
    Column("field", Text, nullable=False),  # of the body
    Column("event_id", Text, nullable=False),
    Column("accepted_at", Timestamp, nullable=False),  # as the event was: the newest come first
    Index("event_keys_by_value", "value", "accepted_at"),
    comment="by what support finds events",
)

endpoints = Table(
    "endpoints",
    metadata,
    Column("id", Text, primary_key=True),  # of the default endpoint: the merchant's
    Column("merchant_id", Text, nullable=False),
    Column("url", Text),
    Column("secret", LargeBinary),  # encrypted; see Settings.cipher
    Column("previous_secret", LargeBinary),  # encrypted; it also signs until previous_until
    Column("previous_until", Timestamp),
    Column("standard_headers", Boolean, nullable=False, server_default="false"),
    Column("headers", JSONB, nullable=False, server_default="{}"),  # own ones: name → encrypted value
    Column("types", ARRAY(Text)),  # the events that it wants, such as payment.*; all, where there are none
    Column("lane", Integer),  # how many deliveries may be in flight at once; by default WEBHOOKS_LANE
    Column("rate", Double),  # how many attempts it gets in a second, where there is a bound
    Column("note", Text),
    Column("paused_at", Timestamp),  # by an operator: its deliveries are held
    Column("removed_at", Timestamp),  # what was accepted before ends as cancelled
    Column("created_at", Timestamp, nullable=False, server_default=func.now()),
    Column("updated_at", Timestamp, nullable=False, server_default=func.now()),
    CheckConstraint("url IS NULL OR secret IS NOT NULL", name="address_has_a_secret"),  # every POST is signed
    CheckConstraint("id = merchant_id OR id LIKE 'ep\\_%'", name="default_or_named"),
    CheckConstraint("lane BETWEEN 1 AND 1000", name="lane_has_room"),
    CheckConstraint("rate BETWEEN 0.01 AND 1000", name="rate_is_possible"),
    Index("endpoints_of_merchant", "merchant_id"),
    comment="where the events of a merchant go",
)

deliveries = Table(
    "deliveries",
    metadata,
    Column("id", Text, primary_key=True),  # the event's at the default endpoint, else event~endpoint
    Column("event_id", Text, nullable=False),
    Column("merchant_id", Text, nullable=False),
    Column("endpoint_id", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("money", Boolean, nullable=False),
    # Only what a producer of 0.1 writes: a trigger turns it into an event, and leaves nothing here.
    Column("body", LargeBinary),
    Column("body_sha256", LargeBinary),
    Column("state", Text, nullable=False, server_default=State.PENDING.value),
    Column("reason", Text),
    Column("held_for", Text),
    Column("due_at", Timestamp, nullable=False),
    Column("sweep_at", Timestamp),  # pending only: when the sweep looks at the row if nothing has happened by then
    Column("queued_at", Timestamp),  # when a message was last published for this turn
    Column("sending_since", Timestamp),  # a worker is at it: see claims
    Column("turn", Integer, nullable=False, server_default="0"),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("fast_spent", SmallInteger, nullable=False, server_default="0"),
    Column("slow_spent", SmallInteger, nullable=False, server_default="0"),
    Column("slow_since", Timestamp),
    Column("accepted_at", Timestamp, nullable=False),
    Column("expires_at", Timestamp, nullable=False),
    Column("finished_at", Timestamp),
    Column(
        "pruned", Boolean, nullable=False, server_default="false"
    ),  # its attempts and notes, and its event's body when all are
    Column("seen_at", Timestamp),  # somebody has noted something about it; counts while it is not before finished_at
    Column("dismissed_at", Timestamp),  # somebody has dealt with it: it is off the desk; counts as seen_at does
    one_of("state", State),
    one_of("reason", Reason),
    one_of("held_for", HeldFor),
    CheckConstraint("(state = 'failed') = (reason IS NOT NULL)", name="failed_has_a_reason"),
    CheckConstraint("(state = 'held') = (held_for IS NOT NULL)", name="held_says_for_what"),
    CheckConstraint("(state = 'pending') = (sweep_at IS NOT NULL)", name="pending_is_swept"),
    CheckConstraint("(state IN ('delivered', 'failed')) = (finished_at IS NOT NULL)", name="final_has_a_time"),
    # Each index serves one question; the partial ones stay small because most rows are finished.
    Index("deliveries_to_sweep", "sweep_at", postgresql_where=text("state = 'pending'")),
    Index("deliveries_to_expire", "expires_at", postgresql_where=text("state IN ('pending', 'held')")),
    Index(
        "deliveries_held_at",
        *("endpoint_id", "accepted_at", "id"),
        postgresql_include=["held_for"],  # how many an endpoint has held for what, without a look at the rows
        postgresql_where=text("state = 'held'"),
    ),
    Index(
        "deliveries_to_probe", "endpoint_id", "fast_spent", "accepted_at", "id", postgresql_where=text("state = 'held'")
    ),
    Index("deliveries_of_merchant", "merchant_id", "accepted_at"),
    Index("deliveries_of_event", "event_id", postgresql_where=text("event_id <> id")),  # the others have its id
    Index(
        "deliveries_failed",
        "accepted_at",
        postgresql_include=["reason", "money"],  # how many have failed for what
        postgresql_where=text("state = 'failed'"),
    ),
    Index(
        "deliveries_failed_at",
        *("endpoint_id", "accepted_at"),
        postgresql_include=["reason"],
        postgresql_where=text("state = 'failed'"),
    ),
    # The newest of all, of a type, and at an endpoint that is no merchant's default one.
    Index("deliveries_newest", "accepted_at"),
    Index("deliveries_of_type", "type", "accepted_at"),
    Index(
        "deliveries_at_endpoint",
        *("endpoint_id", "accepted_at"),
        postgresql_where=text("endpoint_id <> merchant_id"),
    ),
    Index(
        "deliveries_to_prune", "state", "finished_at", postgresql_where=text("finished_at IS NOT NULL AND NOT pruned")
    ),
    # What failed and nobody has dealt with; see webhooks.ledger.failures.
    Index(
        "deliveries_on_desk",
        *("merchant_id", "reason", "money", "finished_at", "id"),
        postgresql_include=["seen_at"],
        postgresql_where=text(
            "state = 'failed' AND NOT pruned AND reason <> 'cancelled' "
            "AND (dismissed_at IS NULL OR dismissed_at < finished_at)"
        ),
    ),
    postgresql_with={"fillfactor": "80"},  # so that the version that a claim makes finds room on its row's page
)

claims = Table(
    "claims",
    metadata,
    Column("delivery_id", Text, primary_key=True),
    Column("name", Uuid, nullable=False),  # so that one whose answer was lost knows itself again
    Column("ends_at", Timestamp, nullable=False),  # past it, its worker counts as dead
    Column("silent_since", Timestamp),  # its lease has run out; see Backlog.suspect
    # As many rows come and go as there are attempts: it is kept small by being cleaned often.
    postgresql_with={"autovacuum_vacuum_scale_factor": "0", "autovacuum_vacuum_threshold": "2000"},
    comment="which delivery a worker is sending now",
)

leases = Table(
    "leases",
    metadata,
    Column("name", Text, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("ends_at", Timestamp, nullable=False),  # then somebody else may take it
    Column("finished_at", Timestamp),  # when its work was last done to the end
    comment="what one process at a time does, and when it was last done",
)

attempts = Table(
    "attempts",
    metadata,
    Column("delivery_id", Text, ForeignKey("deliveries.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("started_at", Timestamp, nullable=False),
    Column("duration_ms", BigInteger),  # unknown when the worker died
    Column("outcome", Text, nullable=False),
    Column("status", SmallInteger),
    Column("cause", Text),
    Column("excerpt", Text),
    Column("ladder", Text),  # the one that was charged, if any
    Column("probe", Boolean, nullable=False, server_default="false"),
    Column("endpoint_id", Text),  # none has what the release before has written down
    one_of("outcome", Outcome),
    one_of("ladder", Ladder),
    # What was attempted of late; a page knows from when to when its attempts are, as they come in that order.
    Index(
        "attempts_lately",
        "started_at",
        postgresql_using="brin",
        postgresql_with={"pages_per_range": 16, "autosummarize": "on"},
    ),
    # How an endpoint answers of late, and who was answered what; a 2xx is no question.
    Index("attempts_at_endpoint", "endpoint_id", "started_at", postgresql_where=text("endpoint_id IS NOT NULL")),
    Index("attempts_answered", "status", "started_at", postgresql_where=text("outcome <> 'delivered'")),
)

tallies = Table(
    "tallies",
    metadata,
    Column("minute", Timestamp, primary_key=True),
    Column("accepted", BigInteger, nullable=False),  # deliveries, as are the others
    Column("delivered", BigInteger, nullable=False),
    Column("failed", BigInteger, nullable=False),
    Column("lag", Interval),
    Column("longest_lag", Interval),
    comment="what went through in each minute",
)
