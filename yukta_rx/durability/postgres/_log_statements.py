"""The statements of the execution log. `$1` and `$2` are partition and epoch of the writer.

Feature: DUR-01.
"""

from __future__ import annotations

from typing import Final

from yukta_rx.durability.postgres._arrays import numbers, texts, times
from yukta_rx.durability.postgres.fence import FENCE
from yukta_rx.model.execution_log import STREAMS, RunAborted, RunFinished, RunResumed, RunStarted

_NO_RUNS: Final = ", ".join(f"'{name}'" for name in sorted(STREAMS))

_MARKS: Final = f"""
    SELECT $1::int, $2::bigint, execution_id,
        coalesce(max(seq) FILTER (WHERE type = '{RunStarted.TYPE}'), 0),
        coalesce(max(seq) FILTER (WHERE type IN ('{RunFinished.TYPE}', '{RunAborted.TYPE}')), 0),
        max(seq),
        count(*) FILTER (WHERE type = '{RunResumed.TYPE}')
"""
"""What `run` says of the rows of the log that are given, by their run."""

_RUN: Final = "run (part, epoch, execution_id, started_seq, ended_seq, last_seq, resumed, parent)"

ROW_COLUMNS: Final = (texts, numbers, texts, texts, numbers)
KEY_COLUMNS: Final = (texts, texts, texts, texts, numbers, texts, times, times)
"""What the columns are of the rows, and of the keys, that `WRITE` gets."""

PLACES: Final = """
SELECT set_config('synchronous_commit', 'off', true), string_agg(nextval(places)::text, ' ')
FROM (SELECT pg_get_serial_sequence('execution_log', 'seq')::regclass AS places OFFSET 0) AS known,
    generate_series(1, $1)
"""
"""Places for so many entries, as one text; they are given before a write, so that it can be
repeated. This one need not be on the disk: the write whose entries have the places puts both there.
"""

WRITE: Final = f"""
WITH fence AS ({FENCE}),
claimed AS (
    INSERT INTO idempotency_key (part, epoch, session_id, workflow_id, key, execution_id, seq,
        event, given_at, expires_at)
    SELECT $1, $2, given.*
    FROM unnest($8::text::text[], $9::text::text[], $10::text::text[], $11::text::text[],
        $12::text::bigint[], $13::text::text[], $14::text::timestamptz[],
        $15::text::timestamptz[]) AS given, fence
    ON CONFLICT (part, session_id, workflow_id, key) DO UPDATE SET
        epoch = excluded.epoch, execution_id = excluded.execution_id, seq = excluded.seq,
        event = excluded.event, given_at = excluded.given_at, expires_at = excluded.expires_at
    WHERE idempotency_key.expires_at <= excluded.given_at OR idempotency_key.seq = excluded.seq
    RETURNING seq
),
logged AS (
    INSERT INTO execution_log (part, epoch, execution_id, seq, type, event)
    OVERRIDING SYSTEM VALUE
    SELECT $1, $2, given.execution_id, given.seq, given.type, given.event
    FROM unnest($3::text::text[], $4::text::bigint[], $5::text::text[], $6::text::text[],
        $7::text::bigint[])
        AS given (execution_id, seq, type, event, claim), fence
    WHERE given.claim = 0 OR given.claim IN (SELECT seq FROM claimed)
    ON CONFLICT DO NOTHING
    RETURNING execution_id, seq, type
),
marked AS (
    INSERT INTO {_RUN}
    {_MARKS}, max(below.parent)
    FROM logged LEFT JOIN unnest($16::text::text[], $17::text::text[]) AS below (run, parent)
        ON below.run = logged.execution_id
    WHERE execution_id NOT IN ({_NO_RUNS}) GROUP BY execution_id
    ON CONFLICT (part, execution_id) DO UPDATE SET epoch = excluded.epoch,
        parent = coalesce(run.parent, excluded.parent),
        started_seq = greatest(run.started_seq, excluded.started_seq),
        ended_seq = greatest(run.ended_seq, excluded.ended_seq),
        last_seq = greatest(run.last_seq, excluded.last_seq),
        resumed = run.resumed + excluded.resumed
)
SELECT (SELECT count(*) FROM fence) AS fence, (SELECT count(*) FROM logged) AS done,
    (SELECT coalesce(string_agg(seq::text, ' '), '') FROM claimed) AS claimed
"""
"""Log rows, keys of starts and what `run` says of both. A row is written unless it belongs to a
key that is refused; one that is there already is left alone and marks nothing."""

REMEMBER: Final = """
INSERT INTO idempotency_key (part, epoch, session_id, workflow_id, key, execution_id, seq, event,
    given_at, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (part, session_id, workflow_id, key) DO UPDATE SET
    epoch = excluded.epoch, execution_id = excluded.execution_id, seq = excluded.seq,
    event = excluded.event, given_at = excluded.given_at, expires_at = excluded.expires_at
"""
"""A key that was appended, whatever it stood for."""

SET_FREE: Final = """
DELETE FROM idempotency_key
WHERE part = $1 AND session_id = $2 AND workflow_id = $3 AND key = $4 AND execution_id = $5
"""

# --- reads ---------------------------------------------------------------------------------------

PAGE: Final = """
SELECT seq, event FROM execution_log
WHERE part = $1 AND execution_id = $2 AND seq > $3 ORDER BY seq LIMIT $4
"""

# Each is looked up by its key, however many events there are and whatever the planner knows.
RUNS: Final = """
SELECT run.execution_id, run.started_seq, run.ended_seq, run.last_seq, run.resumed,
    start.event AS started, finish.event AS ended
FROM run
JOIN LATERAL (
    SELECT event FROM execution_log AS log WHERE log.part = run.part
        AND log.execution_id = run.execution_id AND log.seq = run.started_seq LIMIT 1
) AS start ON true
LEFT JOIN LATERAL (
    SELECT event FROM execution_log AS log WHERE log.part = run.part
        AND log.execution_id = run.execution_id AND log.seq = run.ended_seq LIMIT 1
) AS finish ON true
WHERE run.part = $1 AND run.started_seq > 0
ORDER BY run.last_seq
"""

UNFINISHED: Final = """
SELECT run.execution_id, run.started_seq, start.event AS started
FROM run
JOIN LATERAL (
    SELECT event FROM execution_log AS log WHERE log.part = run.part
        AND log.execution_id = run.execution_id AND log.seq = run.started_seq LIMIT 1
) AS start ON true
WHERE run.part = $1 AND run.started_seq > 0 AND run.ended_seq = 0
ORDER BY run.started_seq
"""

START: Final = """
SELECT run.execution_id, run.started_seq, start.event AS started
FROM run JOIN execution_log AS start ON start.part = run.part
    AND start.execution_id = run.execution_id AND start.seq = run.started_seq
WHERE run.part = $1 AND run.execution_id = $2
"""

KEY: Final = """
SELECT execution_id, seq, event FROM idempotency_key
WHERE part = $1 AND session_id = $2 AND workflow_id = $3 AND key = $4
"""

KEYS: Final = """
SELECT execution_id, seq, event FROM idempotency_key
WHERE part = $1 AND expires_at > $2 ORDER BY seq
"""

# --- retention -----------------------------------------------------------------------------------

RUNS_PER_STEP: Final = 50
"""Runs that one step drops, with their entries. Said in the statement, for the planner to know."""

ROWS_PER_STEP: Final = 1000
"""Entries of another stream, or keys, that one step drops."""

OLDEST_ROOT: Final = """
SELECT last_seq FROM run WHERE part = $1 AND parent IS NULL
ORDER BY last_seq DESC OFFSET $2 LIMIT 1
"""
"""Where the newest entry of the oldest root is that has to be kept."""

NEWEST_CHILD: Final = """
SELECT last_seq FROM run WHERE part = $1 AND parent IS NOT NULL
ORDER BY last_seq DESC OFFSET $2 LIMIT 1
"""
"""Where the newest entry of the newest child is that is too many."""

_DROP: Final = f"""
WITH fence AS ({FENCE}),
old AS (
    SELECT run.execution_id FROM run, fence
    WHERE run.part = $1 AND %s AND (run.ended_seq > 0 OR run.started_seq = 0)
    ORDER BY run.last_seq LIMIT {RUNS_PER_STEP} FOR UPDATE OF run SKIP LOCKED
),
gone AS (
    DELETE FROM execution_log AS log USING old
    WHERE log.part = $1 AND log.execution_id = old.execution_id
),
done AS (
    DELETE FROM run USING old WHERE run.part = $1 AND run.execution_id = old.execution_id
    RETURNING 1
)
SELECT (SELECT count(*) FROM fence) AS fence, (SELECT count(*) FROM done) AS done
"""
"""Some of the oldest runs; one that gets an entry meanwhile is left for the next time."""

DROP_ROOTS: Final = _DROP % "run.parent IS NULL AND run.last_seq < $3"

DROP_CHILDREN: Final = _DROP % "run.parent IS NOT NULL AND run.last_seq <= $3"

DROP_ORPHANS: Final = _DROP % (
    "run.parent IS NOT NULL AND NOT EXISTS (SELECT FROM run AS above "
    "WHERE above.part = run.part AND above.execution_id = run.parent)"
)
"""Children go with the run that started them."""

OLDEST_ENTRY: Final = (
    "SELECT seq FROM execution_log WHERE part = $1 AND execution_id = $2 "
    "ORDER BY seq DESC OFFSET $3 LIMIT 1"
)

DROP_ENTRIES: Final = f"""
DELETE FROM execution_log AS log USING fence WHERE log.part = $1 AND log.execution_id = $3
AND log.seq IN (
    SELECT seq FROM execution_log
    WHERE part = $1 AND execution_id = $3 AND seq < $4 ORDER BY seq LIMIT {ROWS_PER_STEP}
)
"""
"""Some of the oldest entries of a stream; `fenced`."""

DROP_KEYS: Final = f"""
DELETE FROM idempotency_key AS old USING fence
WHERE old.part = $1 AND (old.session_id, old.workflow_id, old.key) IN (
    SELECT session_id, workflow_id, key FROM idempotency_key
    WHERE part = $1 AND expires_at <= $3 ORDER BY expires_at LIMIT {ROWS_PER_STEP}
) AND old.expires_at <= $3
"""
"""Some keys that have expired; `fenced`."""

# --- what cannot be read -------------------------------------------------------------------------

_SET_ASIDE: Final = """
    INSERT INTO execution_log_quarantine (part, epoch, execution_id, seq, event, reason)
    SELECT $1, $2, gone.execution_id, gone.seq, gone.event, $5 FROM gone ON CONFLICT DO NOTHING
"""

SET_ENTRY_ASIDE: Final = f"""
WITH gone AS (
    DELETE FROM execution_log WHERE part = $1 AND execution_id = $3 AND seq = $4
    RETURNING execution_id, seq, event
) {_SET_ASIDE}
"""

SET_KEY_ASIDE: Final = f"""
WITH gone AS (
    DELETE FROM idempotency_key WHERE part = $1 AND execution_id = $3 AND seq = $4
    RETURNING execution_id, seq, event
) {_SET_ASIDE}
"""

FORGET_MARKS: Final = "DELETE FROM run WHERE part = $1 AND execution_id = $2 RETURNING parent"

MARK_AGAIN: Final = f"""
INSERT INTO {_RUN}
{_MARKS}, $4::text FROM execution_log
WHERE part = $1 AND execution_id = $3 AND execution_id NOT IN ({_NO_RUNS}) GROUP BY execution_id
"""
"""What `run` says of the rows that are left of one run."""
