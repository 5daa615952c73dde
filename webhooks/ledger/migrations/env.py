"""Run by Alembic: the connection comes from `webhooks.ledger.schema`."""

from alembic import context

from webhooks.ledger.side_tables import every_table as metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transaction_per_migration=True,  # what was done stands, whatever comes of the next
)
with context.begin_transaction():
    context.run_migrations()
