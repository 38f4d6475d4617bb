"""When the execution log is written, and when it never will be."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.control.history import History
from yukta_rx.durability.memory.execution_log import MemoryExecutionLogStore
from yukta_rx.errors import StaleLeaderError
from yukta_rx.metrics import Meters
from yukta_rx.model.execution_log import NodeFinished, RunResumed
from yukta_rx.model.status import TaskStatus
from yukta_rx.streams.clock import LoopClock
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.feature("DUR-01", "DUR-04")

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Log(MemoryExecutionLogStore):
    """Says what is written together; refuses everything if another server leads."""

    def __init__(self, *, stale: bool = False) -> None:
        super().__init__(500, 10_000)
        self.stale = stale
        self.writes: list[str] = []

    def _append(self, events: Sequence[Any]) -> None:
        self.writes.append("".join(getattr(event, "node_id", "!") for event in events))
        if self.stale:
            raise StaleLeaderError("epoch 1 is over")
        super()._append(events)


def history(store: Log, linger: float = 0) -> History:
    return History(store, LoopClock(asyncio.get_running_loop()), Meters(), linger)


def end_of(node_id: str) -> NodeFinished:
    return NodeFinished(execution_id="a", time=NOW, node_id=node_id, status=TaskStatus.SUCCESS)


@virtual_time
async def test_ends_of_nodes_wait_for_more_and_what_somebody_is_told_of_does_not() -> None:
    store = Log()
    async with history(store, linger=0.5) as log:
        for node in "ab":
            log.note(end_of(node))
            await asyncio.sleep(0.2)
        assert store.writes == []
        await asyncio.sleep(1)
        log.note(end_of("c"))
        await asyncio.sleep(0.1)
        log.note(RunResumed(execution_id="a", time=NOW, new_execution_id="b", attempt=1))
        log.note(end_of("d"))
        await asyncio.sleep(0.1)
        assert store.writes == ["ab", "c!d"]
        log.note(end_of("e"))
        await log.settled()
        assert store.writes[2:] == ["e"]
        log.note(end_of("f"))

    assert store.writes[3:] == ["f"]


@virtual_time
async def test_once_another_server_leads_nothing_waits_any_more(caplog: Any) -> None:
    store = Log(stale=True)
    async with history(store) as log:
        log.note(end_of("a"))
        log.note(end_of("b"))
        await log.settled()
        log.note(end_of("c"))
        await log.settled()
        assert log.fault() is None

    assert store.writes == ["ab"]
    assert "2 events are not written: epoch 1 is over" in caplog.text
