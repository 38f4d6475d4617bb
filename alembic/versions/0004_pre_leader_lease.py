"""Who leads, and until when: the seeds' V4.

Revision: 0004
Feature: DUR-04.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this step."""
    op.create_table(
        "leader_lease",
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=True),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("part", name=op.f("leader_lease_pkey")),
    )


def downgrade() -> None:
    """Go back to the step before."""
    op.drop_table("leader_lease")
