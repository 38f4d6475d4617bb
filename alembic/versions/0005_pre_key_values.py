"""Values of sessions: the seeds' V5.

Revision: 0005
Feature: DUR-04.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this step."""
    op.create_table(
        "kv_entry",
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("part", "session_id", "key", name=op.f("kv_entry_pkey")),
    )


def downgrade() -> None:
    """Go back to the step before."""
    op.drop_table("kv_entry")
