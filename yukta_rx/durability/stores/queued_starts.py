"""QueuedStartStore: starts that wait for a slot, each claimed once. Features: ADM-01, DUR-05."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence


class QueuedStart(msgspec.Struct, frozen=True, kw_only=True):
    """A start that waits for a slot, with all that it takes to go on with it.

    Attributes:
        execution_id: the run that it will be.
        session_id: the session of the workflow.
        workflow_id: the workflow.
        definition_version: content hash of the form of the workflow that it runs.
        priority: higher goes first.
        queued_at: when it came, aware; of two the earlier goes first.
        request: what was asked for, as plain JSON.
    """

    execution_id: str
    session_id: str
    workflow_id: str
    definition_version: str
    priority: float
    queued_at: datetime
    request: dict[str, Any]


class QueuedStartStore(Protocol):
    """Keeps the starts that wait.

    A row is put before the execution log has its start, and is removed if that is never written:
    the log alone says whether there is such a start, so the two writes count as one.

    Guarantees:
        Q1. `list` shows a `put` and a `set_priority` as soon as they have returned.
        Q2. `list` is in the order of `queued_at`; of starts of one moment, of their `put`.
        Q3. Of all calls of `claim` and `remove` for one start, at the same time or later, exactly
            one gets it; from then on `list` does not show it.
        Q4. `set_priority` changes nothing but the priority, and nothing at all of a start that
            does not wait.
        Q5. A failure raises; no answer is never taken for "nothing waits".
        Q6. The request comes back as it was put. In place of a payload that is kept apart,
            everything but `opened` may give the `Blob` that stands for it.

    Attributes:
        durable: whether what was put outlives the process.
    """

    durable: bool

    async def put(self, start: QueuedStart) -> None:
        """Let a start wait; its id is new."""

    async def claim(self, execution_id: str) -> QueuedStart | None:
        """Take a start that got a slot; None if it does not wait."""

    async def remove(self, execution_id: str) -> bool:
        """Take a start back; False if it does not wait."""

    async def set_priority(self, execution_id: str, priority: float) -> bool:
        """Change the priority; False if the start does not wait."""

    async def list(self) -> Sequence[QueuedStart]:
        """Every start that waits."""

    async def opened(self, start: QueuedStart) -> QueuedStart:
        """A start that waits and that `list` gave, with its payload.

        Raises:
            StoreUnavailableError: the payload is missing or damaged, or cannot be read.
        """
