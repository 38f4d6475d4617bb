"""StreamCap: how many event streams may be open at the same time. Feature: OBS-01."""

from __future__ import annotations

from typing import Final, Self

from yukta_rx.errors import TooManyStreamsError

RETRY_LATER: Final = 5.0


class StreamCap:
    """Counts open streams; use it as a context manager around one of them.

    Args:
        limit: how many may be open.
    """

    __slots__ = ("limit", "open")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.open = 0

    def take(self) -> None:
        """Count one more.

        Raises:
            TooManyStreamsError: that would be one too many.
        """
        if self.open >= self.limit:
            detail = f"{self.open} event streams are open, as many as are allowed"
            raise TooManyStreamsError(detail, retry_after=RETRY_LATER)
        self.open += 1

    def give(self) -> None:
        """Count one less."""
        self.open -= 1

    def __enter__(self) -> Self:
        self.take()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.give()
