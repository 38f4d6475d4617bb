"""Notes of versions: the seeds' V2.

Revision: 0002
Feature: DUR-04.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this step."""
    op.add_column("workflow_definition_revision", sa.Column("note", sa.Text(), nullable=True))


def downgrade() -> None:
    """Go back to the step before."""
    op.drop_column("workflow_definition_revision", "note")
