"""The fence, and everything else that outlives a server.

Revision: 0007
Feature: DUR-04.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this step."""
    op.create_table(
        "blob",
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("part", "sha256", name=op.f("blob_pkey")),
    )
    op.create_table(
        "blob_owner",
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("store", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("part", "store", "run", "sha256", name=op.f("blob_owner_pkey")),
    )
    op.create_index("blob_owner_sha256_idx", "blob_owner", ["part", "sha256"], unique=False)
    op.create_table(
        "early_signal",
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("seq", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("lineage", sa.Text(), nullable=False),
        sa.Column("node_id", sa.Text(), nullable=False),
        sa.Column("signal", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("part", "seq", name=op.f("early_signal_pkey")),
    )
    op.create_index(
        "early_signal_node_idx", "early_signal", ["part", "lineage", "node_id"], unique=False
    )
    op.create_table(
        "effect",
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("store", sa.Text(), nullable=False),
        sa.Column("lineage", sa.Text(), nullable=False),
        sa.Column("node_id", sa.Text(), nullable=False),
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("result", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint(
            "part", "store", "lineage", "node_id", "message_id", "name", name=op.f("effect_pkey")
        ),
    )
    op.create_table(
        "event",
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("part", "seq", name=op.f("event_pkey")),
    )
    op.create_table(
        "event_epoch",
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("behind", sa.BigInteger(), nullable=False),
        sa.Column("place", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.PrimaryKeyConstraint("part", "name", name=op.f("event_epoch_pkey")),
    )
    op.create_table(
        "event_span",
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("oldest", sa.BigInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("newest", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("part", name=op.f("event_span_pkey")),
    )
    op.create_table(
        "execution_archive",
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("execution_id", sa.Text(), nullable=False),
        sa.Column("place", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("part", "execution_id", name=op.f("execution_archive_pkey")),
    )
    op.create_index(
        "execution_archive_place_idx", "execution_archive", ["part", "place"], unique=False
    )
    op.create_table(
        "execution_log_quarantine",
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("execution_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column(
            "found_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.PrimaryKeyConstraint(
            "part", "execution_id", "seq", name=op.f("execution_log_quarantine_pkey")
        ),
    )
    op.create_table(
        "execution_result",
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("execution_id", sa.Text(), nullable=False),
        sa.Column("cursor", sa.BigInteger(), nullable=False),
        sa.Column("result", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint(
            "part", "execution_id", "cursor", name=op.f("execution_result_pkey")
        ),
    )
    op.create_table(
        "execution_results",
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("execution_id", sa.Text(), nullable=False),
        sa.Column("last_cursor", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("cut", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("part", "execution_id", name=op.f("execution_results_pkey")),
    )
    op.create_table(
        "idempotency_key",
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("workflow_id", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("execution_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("given_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint(
            "part", "session_id", "workflow_id", "key", name=op.f("idempotency_key_pkey")
        ),
    )
    op.create_index(
        "idempotency_key_expires_at_idx", "idempotency_key", ["expires_at"], unique=False
    )
    op.create_table(
        "input_request",
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("lineage", sa.Text(), nullable=False),
        sa.Column("node_id", sa.Text(), nullable=False),
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("signal", sa.Text(), nullable=False),
        sa.Column("execution_id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("changed", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("part", "request_id", name=op.f("input_request_pkey")),
    )
    op.create_index(
        "input_request_key_idx",
        "input_request",
        ["part", "lineage", "node_id", "message_id", "signal"],
        unique=False,
    )
    op.create_index(
        "input_request_open_idx",
        "input_request",
        ["part", "request_id"],
        unique=False,
        postgresql_where=sa.text("state = 'OPEN'"),
    )
    op.create_table(
        "kv_count",
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("entries", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("part", "session_id", name=op.f("kv_count_pkey")),
    )
    op.create_table(
        "leader_epoch",
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("taken_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("part", name=op.f("leader_epoch_pkey")),
    )
    op.create_table(
        "quarantined_row",
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("seq", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("row", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column(
            "found_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.PrimaryKeyConstraint("part", "seq", name=op.f("quarantined_row_pkey")),
    )
    op.create_table(
        "queued_start",
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("execution_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("priority", sa.Text(), nullable=False),
        sa.Column("queued_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("start", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("part", "execution_id", name=op.f("queued_start_pkey")),
    )
    op.create_table(
        "run",
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("execution_id", sa.Text(), nullable=False),
        sa.Column("started_seq", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("ended_seq", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.Column("resumed", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("part", "execution_id", name=op.f("run_pkey")),
    )
    op.create_index("run_last_seq_idx", "run", ["part", "last_seq"], unique=False)
    op.create_index(
        "run_open_idx",
        "run",
        ["part", "started_seq"],
        unique=False,
        postgresql_where=sa.text("started_seq > 0 AND ended_seq = 0"),
    )
    op.create_table(
        "workflow_number",
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("workflow_id", sa.Text(), nullable=False),
        sa.Column("last_version", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "part", "session_id", "workflow_id", name=op.f("workflow_number_pkey")
        ),
    )
    _sum_up()


def _sum_up() -> None:
    """Fill the tables that say in short what others hold already."""
    op.execute("""
        INSERT INTO workflow_number (part, epoch, session_id, workflow_id, last_version)
        SELECT part, max(epoch), session_id, workflow_id, max(version)
        FROM workflow_definition_revision GROUP BY part, session_id, workflow_id
    """)
    op.execute("""
        INSERT INTO kv_count (part, epoch, session_id, entries)
        SELECT part, max(epoch), session_id, count(*) FROM kv_entry GROUP BY part, session_id
    """)
    op.execute("""
        INSERT INTO run (part, epoch, execution_id, started_seq, ended_seq, last_seq, resumed)
        SELECT part, max(epoch), execution_id,
            coalesce(max(seq) FILTER (WHERE type = 'RUN_STARTED'), 0),
            coalesce(max(seq) FILTER (WHERE type IN ('RUN_FINISHED', 'RUN_ABORTED')), 0),
            max(seq), count(*) FILTER (WHERE type = 'RUN_RESUMED')
        FROM execution_log WHERE execution_id NOT IN ('scheduler', 'control_orphan')
        GROUP BY part, execution_id
    """)


def downgrade() -> None:
    """Go back to the step before."""
    op.drop_table("workflow_number")
    op.drop_index(
        "run_open_idx",
        table_name="run",
        postgresql_where=sa.text("started_seq > 0 AND ended_seq = 0"),
    )
    op.drop_index("run_last_seq_idx", table_name="run")
    op.drop_table("run")
    op.drop_table("queued_start")
    op.drop_table("quarantined_row")
    op.drop_table("leader_epoch")
    op.drop_table("kv_count")
    op.drop_index(
        "input_request_open_idx",
        table_name="input_request",
        postgresql_where=sa.text("state = 'OPEN'"),
    )
    op.drop_index("input_request_key_idx", table_name="input_request")
    op.drop_table("input_request")
    op.drop_index("idempotency_key_expires_at_idx", table_name="idempotency_key")
    op.drop_table("idempotency_key")
    op.drop_table("execution_results")
    op.drop_table("execution_result")
    op.drop_table("execution_log_quarantine")
    op.drop_index("execution_archive_place_idx", table_name="execution_archive")
    op.drop_table("execution_archive")
    op.drop_table("event_span")
    op.drop_table("event_epoch")
    op.drop_table("event")
    op.drop_table("effect")
    op.drop_index("early_signal_node_idx", table_name="early_signal")
    op.drop_table("early_signal")
    op.drop_index("blob_owner_sha256_idx", table_name="blob_owner")
    op.drop_table("blob_owner")
    op.drop_table("blob")
