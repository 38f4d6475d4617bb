"""Conversations of sessions: the seeds' V6.

Revision: 0006
Feature: DUR-04.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this step."""
    op.create_table(
        "session_history",
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("turn", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint(
            "part", "session_id", "key", "turn", name=op.f("session_history_pkey")
        ),
    )
    op.create_index("session_history_at_idx", "session_history", ["part", "at"], unique=False)


def downgrade() -> None:
    """Go back to the step before."""
    op.drop_index("session_history_at_idx", table_name="session_history")
    op.drop_table("session_history")
