"""Starts that wait for a slot, in memory. Features: ADM-01, DUR-05."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from yukta_rx.durability.stores.queued_starts import QueuedStart


class MemoryQueuedStartStore:
    """See `QueuedStartStore`; lost with the process."""

    durable = False

    def __init__(self) -> None:
        self._starts: dict[str, QueuedStart] = {}

    async def put(self, start: QueuedStart) -> None:
        """Let a start wait."""
        self._starts[start.execution_id] = start

    async def claim(self, execution_id: str) -> QueuedStart | None:
        """Take a start that got a slot; None if it does not wait."""
        return self._starts.pop(execution_id, None)

    async def remove(self, execution_id: str) -> bool:
        """Take a start back; False if it does not wait."""
        return self._starts.pop(execution_id, None) is not None

    async def set_priority(self, execution_id: str, priority: float) -> bool:
        """Change the priority; False if the start does not wait."""
        start = self._starts.get(execution_id)
        if start is not None:
            self._starts[execution_id] = msgspec.structs.replace(start, priority=priority)
        return start is not None

    async def list(self) -> Sequence[QueuedStart]:
        """Every start that waits, the earliest first."""
        return sorted(self._starts.values(), key=lambda start: start.queued_at)

    async def opened(self, start: QueuedStart) -> QueuedStart:
        """A start that waits, with its payload."""
        return start
