"""The tracker's queue: bounded by bytes, nothing of it lost, those who fill it held back."""

from __future__ import annotations

import asyncio
import logging

import pytest

from yukta_rx.control import explain
from yukta_rx.control.run_view import live_view
from yukta_rx.observe.backlog import ENVELOPE
from yukta_rx.plugins.contract import processor
from yukta_rx.streams.circuit import StopMode
from yukta_rx.testing.clock import virtual_time

LIMIT = 64 * 1024
COUNT = 5000
BEHIND = "is held back until what runs have said is handed on to the event feed"


@processor("BREAKS", blocking=False, pure=True)
def breaks(_msg, _cfg, _ctx):
    """Give a fact for each message, and nothing else."""
    raise ValueError("x" * 200)


@processor("TALKS", blocking=False, pure=True)
def talks(msg, _cfg, ctx):
    """Write a large line per message."""
    ctx.log("y" * 2000)
    return msg


@processor("TALKS_ON", blocking=False, pure=True)
def talks_on(msg, _cfg, ctx):
    """Write more in one call than may wait."""
    for number in range(1000):
        ctx.log(f"{number} " + "y" * 2000)
    return msg


PLUGINS = (breaks, talks, talks_on)
EDGES = "t > p > out"


def line(kind, count=COUNT, **engine):
    return {
        "t": ("SEQUENCE_TRIGGER", {"count": count}),
        "p": (kind, {"engine": engine} if engine else {}),
        "out": "NULL_TERMINAL",
    }


FAILING = line("BREAKS", onError="CONTINUE")


def stalled_scene(new_scene, **settings):
    """A scene whose tracker takes everything and hands on nothing until it is started."""
    scene = new_scene(tracker__queue_max_bytes=LIMIT, **settings)
    scene.stalled = True
    return scene


def bytes_of(scene):
    return scene.count("yukta.tracker.queue.bytes")


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_a_run_that_says_more_than_may_wait_is_held_and_goes_on_when_it_is_handed_on(
    new_scene,
) -> None:
    async with stalled_scene(new_scene) as scene, asyncio.TaskGroup() as group:
        run = scene.run(FAILING, EDGES, *PLUGINS)
        execution = group.create_task(run.execute())
        await asyncio.sleep(10)
        waiting = bytes_of(scene)
        # What its nodes had in hand was still said, and then nothing.
        assert LIMIT < waiting < 3 * LIMIT
        assert scene.count("yukta.tracker.held") == 1
        assert scene.count("yukta.tracker.holds") == 1
        await asyncio.sleep(1000)
        assert bytes_of(scene) == waiting
        assert not execution.done()

        await scene.tracker.start()
        outcome = await execution
        await scene.tracker.drained()

        assert str(outcome.status) == "SUCCESS"
        told = scene.feed.read(scene.wanted("node.message_failed"), None, 2 * COUNT).items
        messages = [one["data"]["messageId"] for one in told]
        assert len(messages) == len(set(messages)) == COUNT
        assert bytes_of(scene) == 0
        assert scene.count("yukta.tracker.held") == 0


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_a_reader_of_the_feed_sees_every_fact_once_while_the_run_is_held_and_let_go(
    new_scene,
) -> None:
    async with stalled_scene(new_scene) as scene, asyncio.TaskGroup() as group:
        most = 0.0
        ids: list[int] = []
        with scene.feed.subscribe() as stream:
            run = scene.run(FAILING, EDGES, *PLUGINS)
            group.create_task(run.execute())
            await asyncio.sleep(10)
            assert scene.count("yukta.tracker.held") == 1
            await scene.tracker.start()
            last = ""
            while last != "execution.finished":
                frames = await stream.frames()
                most = max(most, bytes_of(scene))
                ids += [int(frame.id.partition(":")[2]) for frame in frames if frame.id]
                last = frames[-1].type

        assert ids == list(range(len(ids)))
        assert len(ids) > COUNT
        assert most < 3 * LIMIT
        assert stream.dropped == 0


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_a_run_that_says_little_goes_on_beside_one_that_is_held(new_scene) -> None:
    async with stalled_scene(new_scene) as scene, asyncio.TaskGroup() as group:
        quiet = scene.run(
            line("PASS", 3) | {"t": ("SEQUENCE_TRIGGER", {"count": 300, "intervalMs": 1000})},
            EDGES,
        )
        loud = scene.run(FAILING, EDGES, *PLUGINS)
        ending = group.create_task(quiet.execute())
        await asyncio.sleep(5)
        held = group.create_task(loud.execute())
        await asyncio.sleep(100)
        assert scene.count("yukta.tracker.held") == 1
        assert quiet.nodes["out"].counters["in"] >= 100
        assert loud.nodes["p"].counters["in"] < COUNT

        await scene.tracker.start()
        await ending
        await held


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_a_run_that_is_held_says_what_it_waits_for(new_scene) -> None:
    async with stalled_scene(new_scene) as scene, asyncio.TaskGroup() as group:
        run = scene.run(FAILING, EDGES, *PLUGINS)
        execution = group.create_task(run.execute())
        await asyncio.sleep(10)

        view = live_view(run, scene.clock.wall(), ())
        waits = explain.waiting_on(view)
        assert [(one.kind, one.detail) for one in waits] == [("BACK_PRESSURE", BEHIND)] * len(waits)
        assert "p" in {one.node_id for one in waits}
        assert BEHIND in {one.detail for one in explain.why(view, "p")}

        await scene.tracker.start()
        await execution


@pytest.mark.feature("OBS-01")
@virtual_time
@pytest.mark.parametrize("mode", [StopMode.CANCEL, StopMode.KILL])
async def test_a_run_that_is_held_can_be_stopped(new_scene, mode) -> None:
    async with stalled_scene(new_scene) as scene, asyncio.TaskGroup() as group:
        run = scene.run(FAILING, EDGES, *PLUGINS)
        execution = group.create_task(run.execute())
        await asyncio.sleep(10)
        run.stop(mode)

        assert str((await execution).status) == "CANCELLED"
        assert str(scene.tracker.state(run.execution_id).status) == "CANCELLED"
        # A read applied its end, and nothing is left to be let go.
        assert scene.count("yukta.tracker.held") == 0


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_a_run_that_begins_while_too_much_waits_is_held_from_its_start_on(new_scene) -> None:
    async with stalled_scene(new_scene) as scene, asyncio.TaskGroup() as group:
        scene.start("other")
        for number in range(LIMIT // ENVELOPE):
            scene.emit("node.retry", "n", "other", n=number)
        run = scene.run(line("PASS", 1000), EDGES)
        execution = group.create_task(run.execute())
        await asyncio.sleep(10)
        assert run.nodes["out"].counters["in"] == 0

        await scene.tracker.start()
        assert str((await execution).status) == "SUCCESS"
        assert run.nodes["out"].counters["in"] == 1000


@pytest.mark.feature("OBS-02")
@virtual_time
async def test_lines_that_one_call_writes_beyond_the_bound_are_dropped_and_counted(
    new_scene,
) -> None:
    async with stalled_scene(new_scene) as scene, asyncio.TaskGroup() as group:
        run = scene.run(line("TALKS_ON", 3), EDGES, *PLUGINS)
        execution = group.create_task(run.execute())
        await asyncio.sleep(10)
        assert bytes_of(scene) < 3 * LIMIT

        await scene.tracker.start()
        await execution
        await scene.tracker.drained()

        lost = scene.count("yukta.tracker.dropped", type="log", kind="overflow")
        items = scene.logs.get(run.execution_id).read(None, 10_000).items
        written = [one for one in items if one["stream"] == "stdout"]
        said = [one["line"] for one in items if one["stream"] == "engine"]
        assert sum(int(line.split()[0]) for line in said) == lost
        assert len(written) + lost == 3000


@pytest.mark.feature("OBS-02")
@virtual_time
async def test_lines_of_one_per_message_hold_the_run_and_none_is_dropped(new_scene) -> None:
    settings = {"logs__store__max_lines": 2 * COUNT, "execution__prefetch": 16}
    async with stalled_scene(new_scene, **settings) as scene, asyncio.TaskGroup() as group:
        run = scene.run(line("TALKS", 1000), EDGES, *PLUGINS)
        execution = group.create_task(run.execute())
        await asyncio.sleep(10)
        assert not execution.done()

        await scene.tracker.start()
        await execution
        await scene.tracker.drained()

        assert len(scene.logs.get(run.execution_id).read(None, COUNT).items) == 1000
        assert scene.count("yukta.tracker.dropped", type="log", kind="overflow") == 0


@virtual_time
async def test_a_fact_without_a_size_waits_like_any_other(new_scene, caplog) -> None:
    class Weightless:
        def __sizeof__(self) -> int:
            raise RuntimeError("no size")

    async with stalled_scene(new_scene) as scene:
        with caplog.at_level(logging.CRITICAL):
            scene.start()
            before = bytes_of(scene)
            scene.emit("node.retry", "n", what=Weightless())
            assert bytes_of(scene) == before + ENVELOPE
            await scene.tracker.start()
            await scene.tracker.drained()
        assert bytes_of(scene) == 0
