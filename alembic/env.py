"""Runs the schema steps on the connection that `yukta_rx.durability.postgres.migrate` gives.

Feature: DUR-04.
"""

from alembic import context

from yukta_rx.durability.postgres.tables import metadata

connection = context.config.attributes.get("connection")
if connection is None:
    context.configure(
        dialect_name="postgresql", target_metadata=metadata, as_sql=True, literal_binds=True
    )
else:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        transaction_per_migration=True,
        compare_server_default=True,
    )
with context.begin_transaction():
    context.run_migrations()
