"""The tables beside the deliveries: what operators noted, did and were told, and which events were refused."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Identity, Index, SmallInteger, Table, Text, func
from sqlalchemy.dialects.postgresql import ARRAY

from webhooks.ledger.tables import Timestamp, metadata, one_of
from webhooks.observing.operators import NoticeKind

notes = Table(
    "notes",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("delivery_id", Text, ForeignKey("deliveries.id", ondelete="CASCADE"), nullable=False),
    Column("at", Timestamp, nullable=False, server_default=func.now()),
    Column("who", Text, nullable=False),
    Column("text", Text, nullable=False),
    Index("notes_of_delivery", "delivery_id", "id"),
    comment="what people wrote down about deliveries",
)


audit = Table(
    "audit",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("at", Timestamp, nullable=False, server_default=func.now()),
    Column("who", Text, nullable=False),
    Column("what", Text, nullable=False),
    Column("why", Text),
    Column("deliveries", BigInteger),  # how many it concerned, where it concerned deliveries
    comment="what operators did by hand",
)


refused_events = Table(
    "refused_events",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("at", Timestamp, nullable=False, server_default=func.now()),
    Column("event_id", Text),
    Column("merchant_id", Text),
    Column("type", Text),
    Column("task_id", Text, nullable=False),
    Column("why", Text, nullable=False),
    comment="events sent by task name that could not be accepted: their producers hear nothing",
)


notices = Table(
    "notices",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("kind", Text, nullable=False),
    Column("key", Text, unique=True),  # what makes it the same thing, so that it is noted once; none when that is over
    Column("merchant_id", Text, nullable=False),
    Column("endpoint_id", Text),
    Column("since", Timestamp, nullable=False),
    Column("noted_at", Timestamp),  # none of an endpoint that has not been paused for long enough
    Column("held", BigInteger, nullable=False, server_default="0"),
    Column("failed", BigInteger, nullable=False, server_default="0"),
    Column("tries", SmallInteger, nullable=False, server_default="0"),
    Column("try_at", Timestamp),  # none when all recipients have it, or it was given up
    Column("told_at", Timestamp),  # when the first recipient had it
    Column("told_to", ARRAY(Text), nullable=False, server_default="{}"),
    Column("told_with", BigInteger),  # the notice in whose message it was
    Column("trouble", Text),  # why a recipient has it not
    one_of("kind", NoticeKind),
    Index("notices_noted", "noted_at"),
    Index("notices_of_merchant", "merchant_id", "kind", "noted_at"),
    comment="what operators are told without having asked, and whom it has reached",
)

every_table = metadata
"""All tables, those of `webhooks.ledger.tables` and these."""
