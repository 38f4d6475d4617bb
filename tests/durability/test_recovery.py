"""What is closed with a run that a crash ended is closed before the log has its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.execution_log import NOW, finished, started
from yukta_rx.durability.memory.execution_log import MemoryExecutionLogStore
from yukta_rx.durability.memory.queued_starts import MemoryQueuedStartStore
from yukta_rx.durability.recovery import recover
from yukta_rx.errors import StoreUnavailableError
from yukta_rx.model.execution_log import RunAborted
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from yukta_rx.durability.stores.execution_log import LoggedRun

pytestmark = pytest.mark.feature("DUR-01", "DUR-03")


async def log_of_two() -> MemoryExecutionLogStore:
    """One run that has ended, and one that has not."""
    events = MemoryExecutionLogStore(100, 100)
    await events.append_start(started("over"))
    await events.append([finished("over")])
    await events.append_start(started("cut"))
    return events


async def unfinished(events: MemoryExecutionLogStore) -> list[str]:
    return [run.started.execution_id for run in await events.runs() if run.ended is None]


@virtual_time
async def test_a_run_is_closed_before_its_end_is_written() -> None:
    events = await log_of_two()
    closed: list[object] = []

    async def closing(runs: Sequence[LoggedRun]) -> None:
        assert await unfinished(events) == ["cut"]
        closed.extend((run.started.execution_id, type(run.ended)) for run in runs)

    found = await recover(events, MemoryQueuedStartStore(), NOW, closing)

    assert closed == [("cut", RunAborted)]
    assert found.aborted == {"cut"}
    assert await unfinished(events) == []


@virtual_time
async def test_a_run_that_cannot_be_closed_has_no_end_and_is_found_again() -> None:
    events = await log_of_two()

    async def closing(runs: Sequence[LoggedRun]) -> None:
        raise StoreUnavailableError("no answer", store="results")

    with pytest.raises(StoreUnavailableError):
        await recover(events, MemoryQueuedStartStore(), NOW, closing)
    assert await unfinished(events) == ["cut"]

    assert (await recover(events, MemoryQueuedStartStore(), NOW)).aborted == {"cut"}
