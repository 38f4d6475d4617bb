"""No child sees the end of a node before the end marker of that is written.

The store has the lines in order, and writes them when it is told to.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.logged import LoggedCheckpointStore
from yukta_rx.config.settings import Settings
from yukta_rx.durability.recorder import RunRecorder
from yukta_rx.durability.stores.checkpoints import WRITE_FAILED
from yukta_rx.engine.run import Run
from yukta_rx.errors import StoreUnavailableError
from yukta_rx.plugins.contract import Message, ProcessorPlugin, processor, terminal, trigger
from yukta_rx.streams.aio import Tasks
from yukta_rx.streams.circuit import StopMode
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = pytest.mark.feature("DUR-02", "DUR-03")

MOMENT = 0.2
"""Seconds of a virtual clock, in which all happens that waits for no write."""


class Held(LoggedCheckpointStore):
    """Lines are written when `release` is called, or fail in `refuse`."""

    def __init__(self) -> None:
        super().__init__(delay=0)
        self.free = False

    def write(self, *line: Any) -> asyncio.Future[None] | None:
        self.log.append(line)
        self.last = asyncio.get_running_loop().create_future()
        self.coming.append((line, self.last))
        if self.free:
            self.there()
        return self.last

    def release(self, count: int = 1 << 30) -> None:
        while self.coming and count:
            self.there()
            count -= 1

    def refuse(self) -> None:
        """The oldest line cannot be written."""
        _, done = self.coming.popleft()
        done.set_exception(StoreUnavailableError("no answer"))

    @property
    def marks(self) -> list[str]:
        """The nodes of markers on their way."""
        return [line[2] for line, _ in self.coming if line[0] == "done"]


@trigger("ONE", blocking=False, replayable=True)
def one(cfg: Any, ctx: Any) -> Iterator[int]:
    """A number."""
    return iter([1])


@processor("PLUS")
async def plus(msg: Message, cfg: Any, ctx: Any) -> Any:
    """One more."""
    return msg.payload + 1


@processor("SUM")
class Sum(ProcessorPlugin):
    """The sum of all, in the end."""

    async def transform(self, stream: AsyncIterator[Message], cfg: Any, ctx: Any) -> Any:
        total = 0
        async for msg in stream:
            total += msg.payload
        yield total


@terminal("END", blocking=False)
def end(msg: Message, cfg: Any, ctx: Any) -> None:
    """Nothing more."""


class Scene:
    """A workflow that is recorded in a store whose writes are held."""

    def __init__(
        self, world: Any, nodes: dict[str, Any], edges: str, *more: Any, **options: Any
    ) -> None:
        self.store = Held()
        self.events: list[Any] = []
        self.results: list[Any] = []
        self.failures = 0
        tasks = Tasks(asyncio.get_running_loop(), lambda: None)
        recorder = RunRecorder(self.store, "run", tasks, self._failed)
        self.run = Run(
            world.run(nodes, edges, one, plus, Sum, end, *more, **options).prepared,
            settings=Settings(),
            emit=self.events.append,
            publish=self.results.append,
            execution_id="run",
            timeout=None,
            recorder=recorder,
        )
        self.task = asyncio.ensure_future(self.run.execute())

    def _failed(self) -> None:
        self.failures += 1

    async def moment(self) -> None:
        await asyncio.sleep(MOMENT)

    async def ended(self) -> Any:
        self.store.free = True
        self.store.release()
        return await self.task

    @property
    def ends(self) -> list[str]:
        """The nodes that have ended, and whose children may know."""
        return [name for name, node in self.run.nodes.items() if node.status.terminal]

    @property
    def said(self) -> list[str]:
        return [str(result.type) for result in self.results]


LINE = {"in": "ONE", "a": "PLUS", "b": "PLUS", "out": "END"}


@virtual_time
async def test_no_child_knows_of_an_end_before_the_marker_is_written(world: Any) -> None:
    scene = Scene(world, LINE, "in>a, a>b, b>out")
    await scene.moment()
    # Of a trigger nothing leaves before it is written, and its marker goes with the last row.
    assert [line[0] for line in scene.store.log] == ["row", "done"]
    assert scene.ends == []
    scene.store.release(1)
    await scene.moment()
    for node in ("in", "a", "b", "out"):
        assert scene.store.marks == [node], "its children do not even begin to end"
        assert not scene.task.done()
        scene.store.release()
        await scene.moment()

    assert (await scene.task).status == "SUCCESS"
    assert scene.said == ["RESULT", "NODE_END", "EXECUTION_END"]
    assert all(state.complete for state in (await scene.store.states("run")).values())


@virtual_time
async def test_a_child_that_sees_the_end_of_its_input_does_not_before_the_marker_is_written(
    world: Any,
) -> None:
    scene = Scene(world, {**LINE, "b": "SUM"}, "in>a, a>b, b>out")
    await scene.moment()
    scene.store.release(1)
    await scene.moment()
    scene.store.release(1)
    await scene.moment()

    assert scene.store.marks == ["a"]
    assert scene.run.nodes["b"].counters["out"] == 0
    scene.store.release()
    await scene.moment()
    assert scene.run.nodes["b"].counters["out"] == 1
    assert (await scene.ended()).status == "SUCCESS"


@virtual_time
async def test_what_a_terminal_does_last_waits_for_the_markers_of_all_above_it(world: Any) -> None:
    done: list[str] = []

    async def last(cfg: Any, ctx: Any) -> None:
        done.append(ctx.node_id)

    book = terminal("BOOK", blocking=False, finish=last, anew=lambda _options: False)(
        lambda msg, cfg, ctx: None
    )
    scene = Scene(world, {**LINE, "out": "BOOK"}, "in>a, a>b, b>out", book)
    await scene.moment()
    scene.store.release(1)
    await scene.moment()
    for node in ("in", "a", "b"):
        assert scene.store.marks == [node]
        assert done == []
        scene.store.release()
        await scene.moment()

    assert done == ["out"]
    assert (await scene.ended()).status == "SUCCESS"


@virtual_time
async def test_a_marker_that_cannot_be_written_is_counted_and_its_output_given_up(
    world: Any,
) -> None:
    scene = Scene(world, LINE, "in>a, a>b, b>out")
    await scene.moment()
    scene.store.release(1)
    await scene.moment()
    assert scene.store.marks == ["in"]
    scene.store.refuse()
    await scene.moment()

    assert scene.failures == 1
    assert ("lost", "run", "in", WRITE_FAILED) in scene.store.log
    assert (await scene.ended()).status == "SUCCESS"
    states = await scene.store.states("run")
    assert {name for name, state in states.items() if not state.complete} == {"in"}


@virtual_time
async def test_a_run_that_waits_for_its_markers_can_be_cancelled(world: Any) -> None:
    scene = Scene(world, LINE, "in>a, a>b, b>out")
    await scene.moment()
    scene.store.release(1)
    await scene.moment()
    scene.run.stop(StopMode.CANCEL)
    await scene.moment()

    assert scene.task.done()
    assert (await scene.task).status == "CANCELLED"
