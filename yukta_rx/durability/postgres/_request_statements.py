"""The statements of input requests and early signals. `$1` is the partition. Feature: CTL-05."""

from __future__ import annotations

from typing import Final

ASKING: Final = 1_937_077_061
"""First half of the lock of a lineage, whose questions and signals are put one after the other."""

TURN: Final = f"SELECT pg_advisory_xact_lock({ASKING}, hashtext($1))"

SAME: Final = """
SELECT request_id, request FROM input_request
WHERE part = $1 AND lineage = $2 AND node_id = $3 AND message_id = $4 AND signal = $5
    AND state IN ('OPEN', 'ANSWERED')
ORDER BY request_id FOR UPDATE
"""
"""Requests of a key that somebody who asks the same finds."""

ADD: Final = """
INSERT INTO input_request (part, epoch, request_id, lineage, node_id, message_id, signal,
    execution_id, state, request)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
"""

TAKE_OVER: Final = """
UPDATE input_request SET epoch = $2, execution_id = $4, request = $5
WHERE part = $1 AND request_id = $3
"""

ONE: Final = "SELECT request_id, request FROM input_request WHERE part = $1 AND request_id = $2"

CLOSE: Final = """
UPDATE input_request SET epoch = $2, state = $4, request = $5, changed = DEFAULT
WHERE part = $1 AND request_id = $3
"""

OPEN: Final = """
SELECT request_id, request FROM input_request
WHERE part = $1 AND state = 'OPEN' ORDER BY request_id
"""

PRUNE: Final = """
DELETE FROM input_request
WHERE part = $1 AND lineage = $2 AND state <> 'OPEN' AND changed <= (
    SELECT changed FROM input_request
    WHERE part = $1 AND lineage = $2 AND state <> 'OPEN'
    ORDER BY changed DESC OFFSET $3 LIMIT 1
)
"""
"""All requests of a lineage but those that were closed last."""

EARLY: Final = """
SELECT seq, answer FROM early_signal
WHERE part = $1 AND lineage = $2 AND node_id = $3 AND signal = $4 AND expires_at > $5
ORDER BY seq
"""

TAKE_EARLY: Final = "DELETE FROM early_signal WHERE part = $1 AND seq = $2"

DROP_EXPIRED: Final = """
DELETE FROM early_signal
WHERE part = $1 AND lineage = $2 AND node_id = $3 AND expires_at <= $4
"""

KEPT: Final = """
SELECT count(*) AS kept, min(expires_at) AS first FROM early_signal
WHERE part = $1 AND lineage = $2 AND node_id = $3 AND expires_at > $4
"""

KEEP: Final = """
INSERT INTO early_signal (part, epoch, lineage, node_id, signal, expires_at, answer)
VALUES ($1, $2, $3, $4, $5, $6, $7)
"""

FORGET: Final = (
    "DELETE FROM input_request WHERE part = $1 AND lineage = $2",
    "DELETE FROM early_signal WHERE part = $1 AND lineage = $2",
)
