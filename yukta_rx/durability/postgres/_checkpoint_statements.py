"""Statements of the checkpoint store.  Features: DUR-02, DUR-04.

What a node has is what its state says: rows behind the `last_seq` of a state do not count, so that
what comes for a node that is complete or given up changes nothing.
"""

from __future__ import annotations

from typing import Final

from yukta_rx.durability.postgres._arrays import flags, long_texts, numbers, texts, texts_or_none
from yukta_rx.durability.postgres.fence import FENCE
from yukta_rx.durability.stores.claims import STORE

ROW_COLUMNS: Final = (texts, texts, numbers, long_texts, texts_or_none)
STATE_COLUMNS: Final = (texts, texts, flags, texts_or_none, numbers, numbers, numbers, numbers)
"""What the columns are of the rows, and of the states, that `WRITE` gets."""

GOING: Final = "cleared"
"""Reason of a state whose run is on its way out, or not all here yet: it is shown to nobody."""

STEP: Final = 500
"""Rows that are copied or removed in one transaction."""

_STATE: Final = """
part, epoch, execution_id, node_id, complete, reason, messages, inputs, bytes, last_seq
"""

_GIVEN: Final = """
unnest($8::text::text[], $9::text::text[], $10::text::bool[], $11::text::text[],
       $12::text::bigint[], $13::text::bigint[], $14::text::bigint[], $15::text::bigint[]) AS given
"""

# A repeat after a lost answer finds its rows there, and the states as new as what it says.
WRITE: Final = f"""
WITH fence AS ({FENCE}), put AS (
    INSERT INTO node_checkpoint (part, epoch, execution_id, node_id, seq, row, blobs)
    SELECT $1, $2, given.* FROM fence,
        unnest($3::text::text[], $4::text::text[], $5::text::bigint[], $6::text[],
            $7::text::text[]) AS given
    ON CONFLICT DO NOTHING
), told AS (
    INSERT INTO node_checkpoint_state AS known ({_STATE})
    SELECT $1, $2, given.* FROM fence, {_GIVEN}
    ON CONFLICT (part, execution_id, node_id) DO UPDATE SET
        epoch = excluded.epoch, complete = excluded.complete, reason = excluded.reason,
        messages = known.messages + excluded.messages, inputs = known.inputs + excluded.inputs,
        bytes = known.bytes + excluded.bytes, last_seq = excluded.last_seq
    WHERE NOT known.complete AND known.reason IS NULL AND known.last_seq < excluded.last_seq
)
SELECT count(*) AS fence FROM fence
"""

GIVE_UP: Final = f"""
INSERT INTO node_checkpoint_state AS known ({_STATE})
SELECT $1, $2, given.id, given.node, false, given.reason, 0, 0, 0, $3
FROM unnest($4::text[], $5::text[], $6::text[]) AS given (id, node, reason)
ON CONFLICT (part, execution_id, node_id) DO UPDATE SET
    epoch = excluded.epoch, complete = false, reason = excluded.reason
"""
"""Of outputs that could not be written: whatever is there, since nobody knows what is."""

STATES: Final = """
SELECT node_id, complete, reason, messages, inputs FROM node_checkpoint_state
WHERE part = $1 AND execution_id = $2
"""

STATE: Final = """
SELECT reason, messages, last_seq FROM node_checkpoint_state
WHERE part = $1 AND execution_id = $2 AND node_id = $3
"""

PAGE: Final = """
SELECT seq, row, blobs FROM node_checkpoint
WHERE part = $1 AND execution_id = $2 AND node_id = $3 AND seq > $4 AND seq <= $5
ORDER BY seq LIMIT $6
"""

RUNS: Final = "SELECT DISTINCT execution_id FROM node_checkpoint_state WHERE part = $1"

HELD: Final = """
SELECT coalesce(sum(bytes), 0)::bigint AS bytes, coalesce(max(last_seq), 0) AS seq
FROM node_checkpoint_state WHERE part = $1
"""

# --- forgetting a run ----------------------------------------------------------------------------

CLEAR: Final = f"""
WITH fence AS ({FENCE}), gone AS (
    DELETE FROM node_checkpoint WHERE ctid = ANY (ARRAY(
        SELECT old.ctid FROM node_checkpoint AS old, fence
        WHERE part = $1 AND execution_id = ANY ($3::text[]) LIMIT $4))
    RETURNING 1
), rest AS (
    SELECT (SELECT count(*) FROM gone) = $4 AS more FROM fence
), leaving AS (
    UPDATE node_checkpoint_state SET complete = false, reason = '{GOING}' FROM rest
    WHERE rest.more AND part = $1 AND execution_id = ANY ($3::text[])
        AND reason IS DISTINCT FROM '{GOING}'
), told AS (
    DELETE FROM node_checkpoint_state USING rest
    WHERE NOT rest.more AND part = $1 AND execution_id = ANY ($3::text[])
    RETURNING bytes
)
SELECT (SELECT count(*) FROM fence) AS fence, (SELECT more FROM rest) AS more,
    (SELECT coalesce(sum(bytes), 0)::bigint FROM told) AS bytes,
    ARRAY(SELECT DISTINCT run FROM blob_owner
        WHERE part = $1 AND store = '{STORE}' AND run = ANY ($3::text[])) AS apart
"""
"""Some rows of runs; with the last of them what is known of the runs goes too. Says how many bytes
are gone then, and which of the runs have payloads that are kept apart, also where the rows went by
the same statement before, and nobody heard of it."""

# --- a run that begins with what another has -----------------------------------------------------

COPY_ROWS: Final = """
WITH chosen AS (
    SELECT old.node_id, old.seq, old.row, old.blobs
    FROM node_checkpoint AS old JOIN node_checkpoint_state AS state
        USING (part, execution_id, node_id)
    WHERE part = $1 AND execution_id = $3 AND node_id = ANY ($5::text[])
        AND old.seq <= state.last_seq AND state.reason IS NULL
        AND (old.node_id, old.seq) > ($6::text, $7::bigint)
    ORDER BY old.node_id, old.seq LIMIT $8
), put AS (
    INSERT INTO node_checkpoint (part, epoch, execution_id, node_id, seq, row, blobs)
    SELECT $1, $2, $4, node_id, seq, row, blobs FROM chosen ON CONFLICT DO NOTHING
)
SELECT node_id, seq, blobs FROM chosen ORDER BY node_id, seq
"""

BEGIN: Final = f"""
INSERT INTO node_checkpoint_state ({_STATE})
SELECT part, $2, $4, node_id, false, '{GOING}', 0, 0, 0, 0 FROM node_checkpoint_state
WHERE part = $1 AND execution_id = $3 AND node_id = ANY ($5::text[])
ON CONFLICT DO NOTHING
"""

COPY_STATES: Final = f"""
WITH put AS (
    INSERT INTO node_checkpoint_state AS known ({_STATE})
    SELECT part, $2, $4, node_id, complete, reason, messages, inputs, bytes, last_seq
    FROM node_checkpoint_state
    WHERE part = $1 AND execution_id = $3 AND node_id = ANY ($5::text[])
        AND reason IS DISTINCT FROM '{GOING}'
    ON CONFLICT (part, execution_id, node_id) DO UPDATE SET
        epoch = excluded.epoch, complete = excluded.complete, reason = excluded.reason,
        messages = excluded.messages, inputs = excluded.inputs, bytes = excluded.bytes,
        last_seq = excluded.last_seq
    RETURNING bytes)
SELECT coalesce(sum(bytes), 0)::bigint FROM put
"""
