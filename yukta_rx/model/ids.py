"""Identifiers: their one shape, and execution ids that sort by time.

Feature: DEF-02.
"""

from __future__ import annotations

import re
import secrets
import time
from typing import NewType
from uuid import UUID

from yukta_rx.errors import BadRequestError

SessionId = NewType("SessionId", str)
WorkflowId = NewType("WorkflowId", str)
NodeId = NewType("NodeId", str)
ExecutionId = NewType("ExecutionId", str)

ID_PATTERN = "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
"""The shape of every id, as it stands in schemas."""

# `$` would let a trailing newline through, so the check itself is a full match.
_SHAPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_RULE = "1 to 128 of the characters A-Z a-z 0-9 . _ - and a letter or digit first"


def id_fault(kind: str, text: object) -> str | None:
    """Return what is wrong with an id as a sentence, or None when it is fine.

    Args:
        kind: what the id names, as the document calls it (`workflowId`).
        text: the candidate; anything but a string is a fault too.
    """
    if not isinstance(text, str):
        return f"{kind} must be a string, not {type(text).__name__}"
    if _SHAPE.fullmatch(text):
        return None
    shown = ascii(text if len(text) <= 40 else text[:40] + "...")
    return f"{kind} {shown} is not an id: use {_RULE}"


def check_id(kind: str, text: object) -> str:
    """Return the id if its shape is right.

    Raises:
        BadRequestError: code `invalid_parameter`; `parameter` is the kind.
    """
    fault = id_fault(kind, text)
    if fault is not None:
        raise BadRequestError(fault, code="invalid_parameter", parameter=kind)
    return str(text)


_COUNTER_BITS = 74
_last_ms = 0
_last_counter = 0


def new_execution_id() -> str:
    """Return a new UUIDv7 as text; within a process each is greater than the one before.

    The 74 bits beside the time are random for the first id of a millisecond and grow by a random
    step for the next, so ids stay sorted and cannot be guessed from one another. A clock that
    steps back does not break the order.
    """
    global _last_ms, _last_counter
    now = time.time_ns() // 1_000_000
    if now > _last_ms:
        # The top bit stays clear, so that a busy millisecond has room to count up.
        ms, counter = now, secrets.randbits(_COUNTER_BITS - 1)
    else:
        ms, counter = _last_ms, _last_counter + 1 + secrets.randbits(32)
        if counter >> _COUNTER_BITS:
            ms, counter = ms + 1, secrets.randbits(_COUNTER_BITS - 1)
    _last_ms, _last_counter = ms, counter
    high, low = counter >> 62, counter & (1 << 62) - 1
    return str(UUID(int=ms << 80 | 7 << 76 | high << 64 | 2 << 62 | low))
