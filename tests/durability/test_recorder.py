"""What a recorder writes when: rows of whole inputs, soon, and what feeds a node before its own."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from tests.contract.logged import LoggedCheckpointStore
from yukta_rx.durability.recorder import DELAY, ROW_INPUTS, RunRecorder
from yukta_rx.durability.stores.checkpoints import OVER_CAP, CheckpointRow
from yukta_rx.model.message import Message, trigger_message
from yukta_rx.streams.aio import Tasks
from yukta_rx.testing.clock import virtual_time

pytestmark = pytest.mark.feature("DUR-02", "DUR-03")

IN = [trigger_message("lineage", "in", n, n) for n in range(3000)]


def out(cause: Message, index: int = 0) -> Message:
    """An output for an input."""
    return cause.derive("a", index, "x")


class Scene:
    """A store and what records into it."""

    def __init__(self, row: int = 4, **options: Any) -> None:
        self.store = LoggedCheckpointStore(**options)
        self.tasks = Tasks(asyncio.get_running_loop(), lambda: None)
        self.failures = 0
        self.run = RunRecorder(self.store, "run", self.tasks, self._failed, row)
        self.held: list[bool] = []

    def _failed(self) -> None:
        self.failures += 1

    def node(self, name: str = "a", *, by_input: bool = True) -> Any:
        return self.run.node(name, self.held.append, by_input=by_input)

    async def rows(self, name: str = "a") -> list[CheckpointRow]:
        return [row async for row in self.store.read("run", name)]

    async def shown(self, name: str = "a") -> list[tuple[int, list[tuple[str, int]], bool]]:
        """Messages, inputs, and whether it belongs to a group, of each row."""
        return [(len(row), list(row.inputs), bool(row.group)) for row in await self.rows(name)]


@virtual_time
async def test_a_row_covers_whole_inputs_and_is_written_when_it_is_full() -> None:
    scene = Scene()
    node = scene.node()
    for n in range(3):
        node.add(None, [out(IN[n]), out(IN[n], 1)])
        assert len(await scene.rows()) == (0 if n < 2 else 1)
        node.finished([IN[n]])

    assert await scene.shown() == [(4, [(IN[0].id, 2), (IN[1].id, 2)], False)]


@virtual_time
async def test_what_is_finished_is_written_soon_whatever_the_row_still_has_room_for() -> None:
    scene = Scene()
    node = scene.node()
    node.add("side", [out(IN[0])])
    await asyncio.sleep(2 * DELAY)
    assert await scene.shown() == []
    node.finished([IN[0], IN[1]])
    await asyncio.sleep(2 * DELAY)

    assert await scene.shown() == [(1, [(IN[0].id, 1), (IN[1].id, 0)], False)]


@virtual_time
async def test_what_feeds_a_node_is_written_before_what_it_made_of_it() -> None:
    scene = Scene()
    first, second, other = scene.node("first"), scene.node("second"), scene.node("other")
    other.finished([IN[9]])
    first.add(None, [out(IN[0])])
    first.finished([IN[0]])
    second.finished([out(IN[0])])
    for n in range(4):
        second.add(None, [out(IN[n])])
        second.finished([IN[n]])

    assert [line[2] for line in scene.store.log] == ["first", "second"]


@virtual_time
async def test_inputs_without_outputs_fill_a_row_too() -> None:
    scene = Scene()
    node = scene.node()
    node.finished(IN[: ROW_INPUTS - 1])
    assert await scene.rows() == []
    node.finished([IN[ROW_INPUTS]])

    [row] = await scene.rows()
    assert len(row.inputs) == ROW_INPUTS


@virtual_time
async def test_many_outputs_of_one_input_are_written_early_and_tied_together() -> None:
    scene = Scene()
    node = scene.node()
    node.add(None, [out(IN[0])])
    node.finished([IN[0]])
    for index in range(9):
        node.add(None, [out(IN[1], index)])
    early = await scene.shown()
    node.finished([IN[1]])
    node.add(None, [out(IN[2])])
    node.finished([IN[2]])
    node.complete()

    assert early == [(1, [(IN[0].id, 1)], False), (4, [], True), (4, [], True)]
    assert (await scene.shown())[3:] == [(1, [(IN[1].id, 9)], True), (1, [(IN[2].id, 1)], False)]
    assert len({row.group for row in await scene.rows() if row.group}) == 1


@virtual_time
async def test_what_goes_aside_does_not_close_what_is_open() -> None:
    scene = Scene()
    node = scene.node()
    for index in range(5):
        node.add(None, [out(IN[0], index)])
    node.aside("dropped", [IN[7]])
    node.aside(None, [IN[8]])
    await asyncio.sleep(2 * DELAY)
    node.finished([IN[0]])

    assert await scene.shown() == [
        (4, [], True),
        (1, [(IN[7].id, 1), (IN[8].id, 0)], False),
        (1, [(IN[0].id, 5)], True),
    ]


@virtual_time
async def test_inputs_are_not_asked_for_where_nothing_outlives_the_process() -> None:
    class Forgetful(LoggedCheckpointStore):
        durable = False

    scene = Scene()
    scene.run.store = Forgetful()
    node = scene.node()

    assert not node.wants_inputs
    assert not scene.node("b", by_input=False).wants_inputs


@virtual_time
async def test_a_store_that_keeps_no_more_of_a_node_is_asked_no_more() -> None:
    scene = Scene()
    node = scene.node()
    scene.store.mark_incomplete("run", "a", OVER_CAP)
    for n in range(5):
        node.add(None, [out(IN[n])])
        node.finished([IN[n]])
    lines = len(scene.store.log)
    for n in range(5):
        node.add(None, [out(IN[n])])
        node.finished([IN[n]])
    await asyncio.sleep(2 * DELAY)

    assert not node.wanted
    assert len(scene.store.log) == lines == 1


@virtual_time
async def test_nothing_is_written_once_the_run_has_ended() -> None:
    scene = Scene()
    node = scene.node()
    node.finished([IN[0]])
    scene.run.close()
    await asyncio.sleep(2 * DELAY)

    assert scene.store.log == []


@virtual_time
async def test_what_a_trigger_waits_for_is_the_row_of_all_it_gave() -> None:
    scene = Scene(delay=1.0)
    node = scene.node("in", by_input=False)
    node.add(None, IN[:2])
    written = node.written()
    assert written is not None
    before = await scene.rows("in")
    await written

    assert before == []
    assert [len(row) for row in await scene.rows("in")] == [2]
    assert node.written() is None


@virtual_time
async def test_a_wait_for_a_write_may_be_given_up_before_it_has_begun() -> None:
    scene = Scene(delay=1.0)
    node = scene.node("in", by_input=False)
    node.add(None, [IN[0]])
    written = node.written()
    assert written is not None
    assert not asyncio.iscoroutine(written)
    waiting = scene.tasks.spawn(_await(written), "wait")
    waiting.cancel()
    await scene.tasks.ended()
    # What is never awaited would be a warning here, which fails the test.
    del written, waiting
    gc.collect()


async def _await(written: Any) -> None:
    await written
