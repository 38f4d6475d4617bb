"""ExecutionArchiveStore: recent runs that can be run again. Features: CTL-04, DUR-02."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import msgspec

from yukta_rx.model.status import TaskStatus
from yukta_rx.model.workflow import WorkflowDefinition


class ArchivedRun(msgspec.Struct, frozen=True, kw_only=True):
    """All that it takes to run a run again, but the recorded outputs.

    Attributes:
        execution_id: the run.
        session_id: its session.
        definition: the workflow that it ran.
        lineage: what the ids of its messages derive from.
        base_dir: folder that relative paths in the workflow start from.
        payload: the start payload as it came, members `yukta.*` included.
        options: what its start said of `options`; None for nothing.
        labels: shown with the run.
        status: how it ended; None while it is live.
        nodes: how each node ended.
        ended_at: when, aware; None while it is live.
    """

    execution_id: str
    session_id: str
    definition: WorkflowDefinition
    lineage: str
    base_dir: Path | None = None
    payload: Any = None
    options: Mapping[str, Any] | None = None
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    status: TaskStatus | None = None
    nodes: Mapping[str, TaskStatus] = msgspec.field(default_factory=dict)
    ended_at: datetime | None = None


class ExecutionArchiveStore(Protocol):
    """Keeps the newest runs that have ended.

    Guarantees:
        A1. `get` and `ids` show a run as soon as its `put` has returned, with all its members.
        A2. `put` keeps the newest `retain` runs, in the order of the puts, and drops the older
            ones in the same step; it returns the ids of those, the oldest first. With `retain` 0
            that is the run itself.
        A3. A run that is put again replaces what was there, and is the newest.
        A4. `ids` is ordered, the oldest first.
        A5. `remove` forgets a run, and no other; it may be called again.
        A6. A failure raises; no answer is never taken for "there is none".

    A start payload that is kept apart goes with its run. It is read by a `get` of the whole run
    only, which raises `StoreUnavailableError` and names it if it is missing or damaged.
    """

    async def put(self, run: ArchivedRun, retain: int) -> Sequence[str]:
        """Keep a run among the newest `retain`; the ids of those that had to go."""

    async def get(self, execution_id: str, *, whole: bool = True) -> ArchivedRun | None:
        """A run, None if it is not kept; unless `whole`, its payload may be anything."""

    async def ids(self) -> Sequence[str]:
        """The ids of all that are kept."""

    async def remove(self, execution_id: str) -> None:
        """Forget a run."""
