"""What nodes emitted: the seeds' V3.

Revision: 0003
Feature: DUR-04.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this step."""
    op.create_table(
        "node_checkpoint",
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("execution_id", sa.Text(), nullable=False),
        sa.Column("node_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("row", sa.Text(), nullable=False),
        sa.Column("blobs", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint(
            "part", "execution_id", "node_id", "seq", name=op.f("node_checkpoint_pkey")
        ),
    )
    op.create_table(
        "node_checkpoint_state",
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("execution_id", sa.Text(), nullable=False),
        sa.Column("node_id", sa.Text(), nullable=False),
        sa.Column("complete", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("messages", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("inputs", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("bytes", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("last_seq", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint(
            "part", "execution_id", "node_id", name=op.f("node_checkpoint_state_pkey")
        ),
    )


def downgrade() -> None:
    """Go back to the step before."""
    op.drop_table("node_checkpoint_state")
    op.drop_table("node_checkpoint")
