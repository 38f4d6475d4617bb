"""A run that has ended is gone as soon as nobody has it any more, without the garbage collector."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.logged import LoggedCheckpointStore
from yukta_rx.durability.recorder import RunRecorder
from yukta_rx.engine.node import NodeRuntime
from yukta_rx.engine.run import Run
from yukta_rx.plugins.context import NodeContext
from yukta_rx.plugins.contract import Message, processor
from yukta_rx.streams.aio import Tasks
from yukta_rx.streams.circuit import Circuit
from yukta_rx.streams.stage import Stage
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = pytest.mark.feature("ENG-06")

PARTS = (Run, NodeRuntime, NodeContext, Circuit, Stage)


@processor("SYNC", blocking=False)
def sync(msg: Message, cfg: Any, ctx: Any) -> Any:
    """The payload."""
    return msg.payload


@processor("ASYNC")
async def later(msg: Message, cfg: Any, ctx: Any) -> Any:
    """The payload, a moment later."""
    await asyncio.sleep(0.01)
    return msg.payload


@processor("MANY", blocking=False)
def many(msg: Message, cfg: Any, ctx: Any) -> Iterator[Any]:
    """The payload, twice."""
    yield msg.payload
    yield msg.payload


@processor("ASYNC_MANY")
async def many_later(msg: Message, cfg: Any, ctx: Any) -> AsyncIterator[Any]:
    """The payload, twice, a moment later."""
    for _ in range(2):
        await asyncio.sleep(0.01)
        yield msg.payload


def parts() -> int:
    # By type: asking a lazy proxy for its class, as `isinstance` does, makes it load something.
    return sum(issubclass(type(one), PARTS) for one in gc.get_objects())


@pytest.mark.parametrize("recorded", [False, True], ids=["not recorded", "recorded"])
@pytest.mark.parametrize("kind", ["SYNC", "ASYNC", "MANY", "ASYNC_MANY"])
@virtual_time
async def test_no_part_of_it_is_left(world: Any, kind: str, recorded: bool) -> None:
    nodes = {"in": ("SEQUENCE_TRIGGER", {"count": 3}), "mid": kind, "out": "COLLECT_TERMINAL"}
    options: dict[str, Any] = {}
    if recorded:
        tasks = Tasks(asyncio.get_running_loop())
        recorder = RunRecorder(LoggedCheckpointStore(), "run", tasks, lambda: None)
        options = {"recorder": recorder, "execution_id": "run"}
    gc.collect()
    before = parts()
    gc.disable()
    try:
        made = [world.run(nodes, "in>mid>out", sync, later, many, many_later, **options)]
        outcome = await made[0].execute()
        assert (outcome.status, outcome.totals["in"]) == ("SUCCESS", 3)
        assert parts() >= before + 10, "one run, three nodes, their contexts and stages"
        if recorded:
            recorder.close()
        del made, outcome
        # What asyncio still has to do for tasks that are done.
        await asyncio.sleep(0.1)
        assert parts() == before
    finally:
        gc.enable()
