"""Wall-clock times as they are shown and stored: RFC 3339, UTC, milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_now() -> datetime:
    """Return the current wall-clock time in UTC."""
    return datetime.now(UTC)


def rfc3339(time: datetime) -> str:
    """Return an aware time as text, for example `2026-11-30T20:29:00.125Z`.

    Raises:
        ValueError: the time has no zone, so it names no instant.
    """
    if time.tzinfo is None:
        raise ValueError("a time without a zone cannot be written as RFC 3339")
    if time.tzinfo is not UTC:
        time = time.astimezone(UTC)
    return time.isoformat(timespec="milliseconds")[: -len("+00:00")] + "Z"
