"""Definitions with their versions, sessions, the execution log: what the seeds create as V1.

Revision: 0001
Feature: DUR-04.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this step."""
    op.create_table(
        "execution_log",
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("execution_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("part", "execution_id", "seq", name=op.f("execution_log_pkey")),
    )
    op.create_table(
        "session_config",
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("part", "session_id", name=op.f("session_config_pkey")),
    )
    op.create_table(
        "workflow_definition",
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("workflow_id", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("definition_version", sa.Text(), nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint(
            "part", "session_id", "workflow_id", name=op.f("workflow_definition_pkey")
        ),
    )
    op.create_table(
        "workflow_definition_revision",
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("workflow_id", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("definition_version", sa.Text(), nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint(
            "part",
            "session_id",
            "workflow_id",
            "version",
            name=op.f("workflow_definition_revision_pkey"),
        ),
    )


def downgrade() -> None:
    """Go back to the step before."""
    op.drop_table("workflow_definition_revision")
    op.drop_table("workflow_definition")
    op.drop_table("session_config")
    op.drop_table("execution_log")
