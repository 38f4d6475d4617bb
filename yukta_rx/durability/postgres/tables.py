"""The schema, once: every table and index as SQLAlchemy metadata; migrations are made to match it.

What is stored is text that the codec wrote, so that it comes back exactly; `jsonb` would reorder
members and change numbers. Columns beside it are what statements look for. Every table that a
leader writes has its partition and the epoch of the writer.

Feature: DUR-04.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)

metadata = MetaData(
    naming_convention={"pk": "%(table_name)s_pkey", "ix": "%(table_name)s_%(column_0_N_name)s_idx"}
)


def _whose() -> list[Column[Any]]:
    """Whose row it is, and the fencing number that it was written with."""
    return [
        Column("part", Integer, nullable=False),
        Column("epoch", BigInteger, nullable=False),
    ]


def _text(name: str, *, null: bool = False) -> Column[Any]:
    return Column(name, Text, nullable=null)


def _time(name: str, *, null: bool = False) -> Column[Any]:
    return Column(name, DateTime(timezone=True), nullable=null)


def _number(name: str, default: int | None = None) -> Column[Any]:
    kept = None if default is None else text(str(default))
    return Column(name, BigInteger, nullable=False, server_default=kept)


# --- what is drawn -------------------------------------------------------------------------------

workflow_definition = Table(
    "workflow_definition",
    metadata,
    *_whose(),
    _text("session_id"),
    _text("workflow_id"),
    _number("version"),
    _text("definition_version"),
    _text("record"),
    _time("updated_at"),
    PrimaryKeyConstraint("part", "session_id", "workflow_id"),
)
"""The current form of each workflow; `record` is the whole `WorkflowRecord`."""

workflow_definition_revision = Table(
    "workflow_definition_revision",
    metadata,
    *_whose(),
    _text("session_id"),
    _text("workflow_id"),
    _number("version"),
    _text("definition_version"),
    _text("record"),
    _time("updated_at"),
    _text("note", null=True),
    PrimaryKeyConstraint("part", "session_id", "workflow_id", "version"),
)
"""Every version that is kept; the note stands beside the record, since it changes alone."""

workflow_number = Table(
    "workflow_number",
    metadata,
    *_whose(),
    _text("session_id"),
    _text("workflow_id"),
    _number("last_version"),
    PrimaryKeyConstraint("part", "session_id", "workflow_id"),
)
"""The highest number that a workflow ever had; outlives its removal."""

session_config = Table(
    "session_config",
    metadata,
    *_whose(),
    _text("session_id"),
    _text("record"),
    _time("updated_at"),
    PrimaryKeyConstraint("part", "session_id"),
)

quarantined_row = Table(
    "quarantined_row",
    metadata,
    *_whose(),
    Column("seq", BigInteger, Identity(always=True), nullable=False),
    _text("place"),
    _text("row"),
    _text("reason"),
    Column("found_at", DateTime(timezone=True), nullable=False, server_default=text("now()")),
    PrimaryKeyConstraint("part", "seq"),
)
"""What could not be read and had to make room: nothing is lost."""

# --- what happened -------------------------------------------------------------------------------

execution_log = Table(
    "execution_log",
    metadata,
    *_whose(),
    _text("execution_id"),
    Column("seq", BigInteger, Identity(always=True), nullable=False),
    _text("type"),
    _text("event"),
    PrimaryKeyConstraint("part", "execution_id", "seq"),
)

execution_log_quarantine = Table(
    "execution_log_quarantine",
    metadata,
    *_whose(),
    _text("execution_id"),
    _number("seq"),
    _text("event"),
    _text("reason"),
    Column("found_at", DateTime(timezone=True), nullable=False, server_default=text("now()")),
    PrimaryKeyConstraint("part", "execution_id", "seq"),
)
"""Rows of the log that this version cannot read."""

run = Table(
    "run",
    metadata,
    *_whose(),
    _text("execution_id"),
    _number("started_seq", 0),
    _number("ended_seq", 0),
    _number("last_seq"),
    _number("resumed", 0),
    Column("parent", Text, nullable=True),
    PrimaryKeyConstraint("part", "execution_id"),
)
"""Where the start, the end and the newest entry of a run are, 0 for none, and the run that started
it: what retention and recovery look at, so that nobody groups the log."""

Index(
    "run_open_idx",
    run.c.part,
    run.c.started_seq,
    postgresql_where=text("started_seq > 0 AND ended_seq = 0"),
)
Index("run_root_idx", run.c.part, run.c.last_seq, postgresql_where=text("parent IS NULL"))
Index("run_child_idx", run.c.part, run.c.last_seq, postgresql_where=text("parent IS NOT NULL"))

idempotency_key = Table(
    "idempotency_key",
    metadata,
    *_whose(),
    _text("session_id"),
    _text("workflow_id"),
    _text("key"),
    _text("execution_id"),
    _number("seq"),
    _text("event"),
    _time("given_at"),
    _time("expires_at"),
    PrimaryKeyConstraint("part", "session_id", "workflow_id", "key"),
)
"""`seq` is the place of its event in the log, by which a write that is repeated knows its own."""

Index("idempotency_key_expires_at_idx", idempotency_key.c.expires_at)

queued_start = Table(
    "queued_start",
    metadata,
    *_whose(),
    _text("execution_id"),
    Column("seq", BigInteger, Identity(always=True), nullable=False),
    Column("priority", Text, nullable=False),
    _time("queued_at"),
    _text("start"),
    PrimaryKeyConstraint("part", "execution_id"),
)
"""`priority` is text of JSON: a number that comes back as it was."""

input_request = Table(
    "input_request",
    metadata,
    *_whose(),
    _text("request_id"),
    _text("lineage"),
    _text("node_id"),
    _text("message_id"),
    _text("signal"),
    _text("execution_id"),
    _text("state"),
    Column("changed", BigInteger, Identity(always=True), nullable=False),
    _text("request"),
    PrimaryKeyConstraint("part", "request_id"),
)

Index(
    "input_request_key_idx",
    input_request.c.part,
    input_request.c.lineage,
    input_request.c.node_id,
    input_request.c.message_id,
    input_request.c.signal,
)
Index(
    "input_request_open_idx",
    input_request.c.part,
    input_request.c.request_id,
    postgresql_where=text("state = 'OPEN'"),
)

early_signal = Table(
    "early_signal",
    metadata,
    *_whose(),
    Column("seq", BigInteger, Identity(always=True), nullable=False),
    _text("lineage"),
    _text("node_id"),
    _text("signal"),
    _time("expires_at"),
    _text("answer"),
    PrimaryKeyConstraint("part", "seq"),
)

Index("early_signal_node_idx", early_signal.c.part, early_signal.c.lineage, early_signal.c.node_id)

# --- what nodes did ------------------------------------------------------------------------------

node_checkpoint = Table(
    "node_checkpoint",
    metadata,
    *_whose(),
    _text("execution_id"),
    _text("node_id"),
    _number("seq"),
    _text("row"),
    _text("blobs", null=True),
    PrimaryKeyConstraint("part", "execution_id", "node_id", "seq"),
)
"""A row holds a batch of a node's output; `seq` is counted by the writer over all runs. `blobs` are
the hashes of what the row only refers to. Rows behind the `last_seq` of their node do not count."""

node_checkpoint_state = Table(
    "node_checkpoint_state",
    metadata,
    *_whose(),
    _text("execution_id"),
    _text("node_id"),
    Column("complete", Boolean, nullable=False, server_default=text("false")),
    _text("reason", null=True),
    _number("messages", 0),
    _number("inputs", 0),
    _number("bytes", 0),
    _number("last_seq", 0),
    PrimaryKeyConstraint("part", "execution_id", "node_id"),
)

execution_archive = Table(
    "execution_archive",
    metadata,
    *_whose(),
    _text("execution_id"),
    Column("place", BigInteger, Identity(always=True), nullable=False),
    _text("run"),
    PrimaryKeyConstraint("part", "execution_id"),
)

Index("execution_archive_place_idx", execution_archive.c.part, execution_archive.c.place)

execution_result = Table(
    "execution_result",
    metadata,
    *_whose(),
    _text("execution_id"),
    _number("cursor"),
    _text("result"),
    PrimaryKeyConstraint("part", "execution_id", "cursor"),
)

execution_results = Table(
    "execution_results",
    metadata,
    *_whose(),
    _text("execution_id"),
    _number("last_cursor", 0),
    _number("cut", 0),
    _time("ended_at", null=True),
    Column("parent", Text, nullable=True),
    PrimaryKeyConstraint("part", "execution_id"),
)
"""What is known of the results of a run as a whole; none is kept up to `cut`."""

effect = Table(
    "effect",
    metadata,
    *_whose(),
    _text("store"),
    _text("lineage"),
    _text("node_id"),
    _text("message_id"),
    _text("name"),
    Column("result", LargeBinary, nullable=False),
    PrimaryKeyConstraint("part", "store", "lineage", "node_id", "message_id", "name"),
)
"""Effects of `effects`, of `key_values` and of `histories`, each by that word in `store`."""

blob = Table(
    "blob",
    metadata,
    *_whose(),
    _text("sha256"),
    Column("data", LargeBinary, nullable=False),
    _number("size"),
    PrimaryKeyConstraint("part", "sha256"),
)

blob_owner = Table(
    "blob_owner",
    metadata,
    *_whose(),
    _text("store"),
    _text("run"),
    _text("sha256"),
    PrimaryKeyConstraint("part", "store", "run", "sha256"),
)

Index("blob_owner_sha256_idx", blob_owner.c.part, blob_owner.c.sha256)

# --- the feed ------------------------------------------------------------------------------------

event = Table(
    "event",
    metadata,
    *_whose(),
    _number("seq"),
    _time("time"),
    _text("event"),
    PrimaryKeyConstraint("part", "seq"),
)

event_epoch = Table(
    "event_epoch",
    metadata,
    *_whose(),
    _text("name"),
    _number("behind"),
    Column("place", BigInteger, Identity(always=True), nullable=False),
    PrimaryKeyConstraint("part", "name"),
)

event_span = Table(
    "event_span",
    metadata,
    *_whose(),
    _number("oldest", 1),
    _number("newest", 0),
    PrimaryKeyConstraint("part"),
)

# --- what plugins keep ---------------------------------------------------------------------------

kv_entry = Table(
    "kv_entry",
    metadata,
    *_whose(),
    _text("session_id"),
    _text("key"),
    _text("value"),
    PrimaryKeyConstraint("part", "session_id", "key"),
)

kv_count = Table(
    "kv_count",
    metadata,
    *_whose(),
    _text("session_id"),
    _number("entries", 0),
    PrimaryKeyConstraint("part", "session_id"),
)
"""Keys of a session: changed with them, and locked by whoever adds one."""

session_history = Table(
    "session_history",
    metadata,
    *_whose(),
    _text("session_id"),
    _text("key"),
    Column("turn", BigInteger, Identity(always=True), nullable=False),
    _time("at"),
    _text("text"),
    PrimaryKeyConstraint("part", "session_id", "key", "turn"),
)

Index("session_history_at_idx", session_history.c.part, session_history.c.at)

# --- who leads -----------------------------------------------------------------------------------

leader_epoch = Table(
    "leader_epoch",
    metadata,
    Column("part", Integer, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    _text("holder"),
    _time("taken_at"),
    PrimaryKeyConstraint("part"),
)
"""The fence: raised by who takes over, and held by every write. See `fence`."""

leader_lease = Table(
    "leader_lease",
    metadata,
    Column("part", Integer, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    _text("holder"),
    _text("url", null=True),
    _time("expires_at"),
    PrimaryKeyConstraint("part"),
)
"""Renewed by the leader; apart from the fence, which a renewal would have to wait for."""
