"""Tracker: one queue, one consumer; what it lets through, what it drops, and what it knows."""

from __future__ import annotations

import asyncio
import logging

import pytest

from yukta_rx.errors import EngineError
from yukta_rx.model.status import TaskStatus
from yukta_rx.testing.clock import virtual_time


def kinds(frames) -> list[str]:
    return [frame.type for frame in frames if not frame.type.startswith("stream.")]


# -- order and reads


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_emitting_only_appends_and_the_consumer_hands_on_in_order(
    new_scene, now, numbers
) -> None:
    async with new_scene() as scene:
        with scene.feed.subscribe() as stream:
            scene.start()
            for number in range(1, 101):
                scene.emit("node.retry", "n", n=number)
            assert scene.feed.head_seq == 0
            assert scene.count("yukta.tracker.queue.depth") == 102

            frames = await now(stream)
            assert kinds(frames) == ["execution.started", "execution.status", *["node.retry"] * 100]
            assert scene.count("yukta.tracker.queue.depth") == 0


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_a_read_shows_what_was_emitted_before_it(new_scene) -> None:
    async with new_scene() as scene:
        scene.start("r1")
        assert scene.tracker.state("r1").status is TaskStatus.RUNNING
        scene.emit("node.status", "n", status="RUNNING")
        assert scene.tracker.state("r1").counts() == {"RUNNING": 1}
        scene.finish("r1")
        assert scene.tracker.state("r1").status == "SUCCESS"
        assert scene.tracker.snapshot("r1")["execution"]["status"] == "SUCCESS"
        scene.start("r2")

        assert [state.execution_id for state in scene.tracker.runs()] == ["r2", "r1"]
        assert scene.tracker.state("r3") is None
        assert scene.tracker.state("r3") is None
        assert scene.tracker.snapshot("r3") is None


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_drained_means_that_the_feed_has_it(new_scene) -> None:
    async with new_scene() as scene:
        scene.start()
        await scene.tracker.drained()

        assert scene.feed.head_seq == 2
        await scene.tracker.drained()


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_who_keeps_up_loses_nothing_in_a_storm(new_scene, now) -> None:
    async with new_scene() as scene:
        with scene.feed.subscribe() as stream:

            async def read() -> None:
                while frames := await stream.frames():
                    found.extend(frame.id for frame in frames)

            found: list[str] = []
            async with asyncio.TaskGroup() as group:
                group.create_task(read())
                scene.start()
                for number in range(5000):
                    scene.emit("node.retry", "n", n=number)
                # A read in between applies all at once, and must not flood the subscriber.
                assert scene.tracker.state("r1") is not None
                await scene.tracker.drained()
                await asyncio.sleep(1)
                stream.close()

            assert found[1:] == [f"e:{seq}" for seq in range(1, 5003)]
            assert stream.dropped == 0


# -- late events


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_case_22_what_a_run_says_after_its_end_is_dropped_and_counted(new_scene, now) -> None:
    async with new_scene() as scene:
        with scene.feed.subscribe() as stream:
            scene.start()
            scene.finish(status="STOPPED")
            scene.emit("node.status", "n", status="SUCCESS", previous="RUNNING")
            scene.finish(status="FAILURE")
            scene.line("late")
            scene.emit("control.rejected", command="PauseWorkflow")
            frames = await now(stream)

        assert kinds(frames)[2:] == ["execution.finished", "control.rejected"]
        assert scene.tracker.state("r1").status is TaskStatus.STOPPED
        assert scene.count("yukta.tracker.dropped", type="state", kind="late") == 2
        assert scene.count("yukta.tracker.dropped", type="log", kind="late") == 1


@virtual_time
async def test_case_23_a_delayed_running_after_success_reaches_nobody(new_scene, now, data) -> None:
    async with new_scene() as scene:
        with scene.feed.subscribe() as stream:
            scene.start()
            scene.emit("node.status", "n", status="SUCCESS", previous="RUNNING")
            scene.emit("node.status", "n", status="RUNNING", previous="PENDING")
            frames = await now(stream)

        said = [data(f)["data"]["status"] for f in frames if f.type == "node.status"]
        assert said == ["SUCCESS"]


@virtual_time
async def test_an_event_of_no_known_run_is_late_unless_it_is_about_something_else(
    new_scene, now
) -> None:
    async with new_scene() as scene:
        with scene.feed.subscribe() as stream:
            scene.emit("node.status", "n", "gone", status="RUNNING")
            scene.line("x", run="gone")
            scene.emit("control.rejected", None, "gone")
            scene.emit("definition.saved", None, "")

            assert kinds(await now(stream)) == ["control.rejected", "definition.saved"]
        assert scene.tracker.state("gone") is None


@virtual_time
async def test_an_event_that_cannot_be_applied_is_counted_and_holds_up_nothing(
    new_scene, now, caplog
) -> None:
    async with new_scene() as scene:
        with scene.feed.subscribe() as stream, caplog.at_level(logging.CRITICAL):
            scene.start()
            scene.emit("node.status", "n", status="NONSENSE")
            scene.finish()

            assert kinds(await now(stream))[-1] == "execution.finished"
        assert scene.count("yukta.tracker.dropped", type="state", kind="defect") == 1


# -- log lines


@pytest.mark.feature("OBS-02")
@virtual_time
async def test_a_line_in_the_feed_is_the_line_in_the_log(new_scene, now, data) -> None:
    async with new_scene() as scene:
        with scene.feed.subscribe() as stream:
            scene.start()
            scene.line("a\rdata: b\u2028c")
            *_, frame = await now(stream)

        [item] = scene.logs.get("r1").read().items
        assert data(frame)["data"] == item
        assert item["line"] == "a\rdata: b\u2028c"


@pytest.mark.feature("OBS-02")
@virtual_time
async def test_beyond_ten_thousand_waiting_lines_are_dropped_and_a_line_says_so(
    new_scene,
) -> None:
    async with new_scene(logs__store__max_lines=50_000) as scene:
        scene.start()
        for number in range(10_005):
            scene.line(str(number))
        scene.emit("node.status", "n", status="RUNNING", previous="PENDING")
        await scene.tracker.drained()
        scene.line("after")
        await scene.tracker.drained()

        items = scene.logs.get("r1").read(None, 20_000).items
        assert [item["line"] for item in items[9_998:]] == [
            "9998",
            "9999",
            "5 lines dropped here",
            "after",
        ]
        assert items[10_000]["stream"] == "engine"
        assert items[10_000]["nodeId"] == "n"
        assert scene.count("yukta.tracker.dropped", type="log", kind="overflow") == 5
        # State is never dropped.
        assert scene.tracker.state("r1").counts() == {"RUNNING": 1}


@pytest.mark.feature("OBS-02")
@virtual_time
async def test_a_node_that_writes_without_end_costs_another_no_line_that_waits(new_scene) -> None:
    async with new_scene(logs__store__max_lines=50_000) as scene:
        scene.start()
        for number in range(20_000):
            scene.line(str(number), "chatty")
            if number % 10 == 0:
                scene.line(str(number), "quiet")
        await scene.tracker.drained()

        items = scene.logs.get("r1").read(None, 50_000).items
        quiet = [item["line"] for item in items if item["nodeId"] == "quiet"]
        assert quiet == [str(number) for number in range(0, 20_000, 10)]
        assert scene.logs.budget.used > 0


@pytest.mark.feature("OBS-02")
@virtual_time
async def test_the_end_of_a_run_says_how_many_of_its_lines_were_dropped(
    new_scene, now, data
) -> None:
    async with new_scene() as scene:
        for run in ("r1", "r2"):
            scene.start(run)
        for number in range(10_005):
            scene.line(str(number))
        with scene.feed.subscribe() as stream:
            await scene.tracker.drained()
            await now(stream)
            scene.finish("r1")
            scene.finish("r2")
            frames = await now(stream)

        ends = [data(frame) for frame in frames if frame.type == "execution.finished"]
        assert {end["executionId"]: end["data"].get("droppedLines") for end in ends} == {
            "r1": 5,
            "r2": None,
        }


@virtual_time
async def test_lines_that_came_late_take_no_place_of_others(new_scene) -> None:
    async with new_scene() as scene:
        scene.start("r1")
        scene.finish("r1")
        for number in range(10_000):
            scene.line(str(number), run="r1")
        await scene.tracker.drained()
        scene.start("r2")
        scene.line("heard", run="r2")
        await scene.tracker.drained()

        assert [item["line"] for item in scene.logs.get("r2").read().items] == ["heard"]
        assert scene.count("yukta.tracker.dropped", type="log", kind="overflow") == 0


# -- what is kept, and for how long


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_a_run_is_forgotten_ten_minutes_after_its_end(new_scene) -> None:
    async with new_scene() as scene:
        scene.start("r1")
        scene.start("r2")
        scene.finish("r1")
        await asyncio.sleep(599)
        assert scene.tracker.state("r1") is not None
        await asyncio.sleep(2)

        assert scene.tracker.state("r1") is None
        assert scene.tracker.state("r2") is not None


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_beyond_max_sessions_the_oldest_without_a_live_run_is_forgotten(new_scene) -> None:
    async with new_scene(tracker__max_sessions=2) as scene:
        for run, session in (("r1", "a"), ("r2", "b"), ("r3", "c")):
            scene.start(run, session)
            scene.results.channel(run, session)
        assert [state.execution_id for state in scene.tracker.runs()] == ["r3", "r2", "r1"]
        scene.finish("r2", "b")
        await scene.tracker.drained()

        assert [state.execution_id for state in scene.tracker.runs()] == ["r3", "r1"]
        assert scene.logs.get("r2") is None
        assert scene.results.get("r2") is None
        assert scene.results.get("r1") is not None


@virtual_time
async def test_beyond_max_executions_the_run_that_ended_first_is_forgotten(new_scene) -> None:
    async with new_scene(tracker__max_executions=2) as scene:
        for run in ("r1", "r2", "r3"):
            scene.start(run)
            scene.finish(run)

        assert [state.execution_id for state in scene.tracker.runs()] == ["r3", "r2"]


# -- waiting


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_waiting_ends_with_the_run(new_scene) -> None:
    async with new_scene() as scene:
        scene.start()

        async def end_later() -> None:
            await asyncio.sleep(3)
            scene.finish()

        async with asyncio.TaskGroup() as group:
            group.create_task(end_later())
            assert not await scene.tracker.wait("r1", 1)
            assert await scene.tracker.wait("r1", None)
            assert scene.clock.now() == pytest.approx(3)
        assert await scene.tracker.wait("r1", float("inf"))
        assert not await scene.tracker.wait("gone", 1)


@virtual_time
async def test_a_run_that_will_not_end_by_itself_is_ended(new_scene, now) -> None:
    async with new_scene() as scene:
        channel = scene.results.channel("r1", "s")
        scene.start()
        scene.tracker.dismiss("r1", TaskStatus.ERROR, EngineError("a defect"))
        scene.tracker.dismiss("r1", TaskStatus.ERROR, EngineError("again"))
        scene.tracker.dismiss("gone", TaskStatus.ERROR, EngineError("never was"))

        assert await scene.tracker.wait("r1", 1)
        assert scene.tracker.state("r1").error == {"code": "engine", "detail": "a defect"}
        assert [item.status async for item in channel.follow()] == [TaskStatus.ERROR]


# -- meters and the end


@pytest.mark.feature("OBS-04")
@virtual_time
async def test_nodes_and_runs_are_counted_when_they_end(new_scene) -> None:
    async with new_scene() as scene:
        scene.emit("execution.queued", position=1, reason="limit")
        await scene.clock.sleep(2)
        scene.start()
        scene.emit("node.status", "n", status="RUNNING", previous="PENDING")
        await scene.clock.sleep(3)
        scene.emit("node.status", "n", status="FAILURE", previous="RUNNING")
        scene.finish(status="FAILURE")
        await scene.tracker.drained()

        labels = {"module": "unknown", "status": "FAILURE"}
        assert scene.count("yukta.node.executions", **labels) == 1
        assert scene.count("yukta.node.duration.seconds.sum", module="unknown") == 3
        assert scene.count("yukta.execution.duration.seconds.sum", status="FAILURE") == 3
        assert scene.count("yukta.execution.queue.wait.seconds.sum") == 2


@pytest.mark.feature("OBS-02")
@virtual_time
async def test_stopping_hands_on_what_waits_and_counts_what_comes_afterwards(new_scene) -> None:
    async with new_scene() as scene:
        before = len(asyncio.all_tasks()) - 2
        scene.start()
        scene.line("x")
        await scene.tracker.stop()
        assert scene.feed.head_seq == 3
        scene.finish()
        scene.line("y")
        await asyncio.sleep(0)

        assert scene.count("yukta.tracker.dropped", type="state", kind="ended") == 1
        assert scene.count("yukta.tracker.dropped", type="log", kind="ended") == 1
        assert len(asyncio.all_tasks()) == before
        await scene.tracker.drained()


class Weightless:
    """Something in an event that fails when the feed wants to know its size."""

    def __sizeof__(self) -> int:
        raise RuntimeError("no size")


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_an_event_that_the_feed_cannot_take_is_counted_and_holds_up_nothing(
    new_scene, now, caplog
) -> None:
    async with new_scene() as scene:
        with scene.feed.subscribe() as stream, caplog.at_level(logging.CRITICAL):
            scene.start()
            scene.emit("node.retry", "n", what=Weightless())
            scene.finish()

            assert kinds(await now(stream))[-1] == "execution.finished"
        assert scene.count("yukta.tracker.dropped", type="state", kind="defect") == 1
