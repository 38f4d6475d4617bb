"""Runs know which run started them, so that they are let go with it.

Of runs that are there already it is not known; they are let go as if none had.

Revision: 0008
Feature: DUR-04.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this step."""
    op.add_column("run", sa.Column("parent", sa.Text(), nullable=True))
    op.add_column("execution_results", sa.Column("parent", sa.Text(), nullable=True))
    op.drop_index("run_last_seq_idx", table_name="run")
    for name, condition in (("root", "parent IS NULL"), ("child", "parent IS NOT NULL")):
        op.create_index(
            f"run_{name}_idx",
            "run",
            ["part", "last_seq"],
            unique=False,
            postgresql_where=sa.text(condition),
        )


def downgrade() -> None:
    """Go back to the step before."""
    op.drop_index("run_child_idx", table_name="run")
    op.drop_index("run_root_idx", table_name="run")
    op.create_index("run_last_seq_idx", "run", ["part", "last_seq"], unique=False)
    op.drop_column("execution_results", "parent")
    op.drop_column("run", "parent")
