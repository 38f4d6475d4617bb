"""The observe room on real runs: order in the feed, progress, samples, results and logs."""

from __future__ import annotations

import asyncio
import json

import pytest

from yukta_rx.observe.filters import EventFilter
from yukta_rx.plugins.contract import processor
from yukta_rx.streams.circuit import StopMode
from yukta_rx.testing.clock import virtual_time

LINE = {"t": ("SEQUENCE_TRIGGER", {"count": 5}), "p": "PASS", "c": "CONSOLE_TERMINAL"}
SLOW = LINE | {"t": ("SEQUENCE_TRIGGER", {"count": 30, "intervalMs": 100})}
EDGES = "t > p > c"


def facts(frames, data):
    return [data(frame) for frame in frames if frame.id and not frame.type.startswith("stream.")]


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_the_feed_tells_a_run_in_order_from_started_to_finished(new_scene, now, data) -> None:
    async with new_scene() as scene:
        with scene.feed.subscribe() as stream:
            run = scene.run(LINE, EDGES)
            await run.execute()
            told = facts(await now(stream), data)

        types = [event["type"] for event in told]
        assert types[:2] == ["execution.started", "execution.status"]
        assert types[-2:] == ["execution.status", "execution.finished"]
        assert types.count("execution.finished") == 1
        for node in ("t", "p", "c"):
            statuses = [
                event["data"]["status"]
                for event in told
                if event["type"] == "node.status" and event["nodeId"] == node
            ]
            assert statuses == ["RUNNING", "SUCCESS"]
        ids = [int(event["id"].partition(":")[2]) for event in told]
        assert ids == list(range(1, len(told) + 1))


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_samples_move_while_the_run_does_and_the_last_ones_are_final(new_scene, data) -> None:
    async with new_scene() as scene:
        wanted = EventFilter.parse(type=["node.stats", "edge.stats", "execution.*"])
        with scene.feed.subscribe(wanted, coalesce_ms=500) as stream:
            run = scene.run(SLOW, EDGES)
            frames = []
            async with asyncio.TaskGroup() as group:
                group.create_task(run.execute())
                while not frames or frames[-1].type != "execution.finished":
                    frames += await stream.frames()

        counts = [
            data(frame)["data"]["out"]
            for frame in frames
            if frame.type == "node.stats" and data(frame)["nodeId"] == "p"
        ]
        assert counts == sorted(set(counts))
        assert counts[-1] == 30
        # 3 seconds of run, one sample per key and interval.
        assert 5 <= len(counts) <= 8
        edges = [data(frame)["data"] for frame in frames if frame.type == "edge.stats"]
        assert {(edge["source"], edge["target"]) for edge in edges} == {("t", "p"), ("p", "c")}
        assert edges[-1]["passed"] == 30
        progress = [data(f)["data"] for f in frames if f.type == "execution.progress"]
        assert progress[-1]["counts"] == {"SUCCESS": 3}
        versions = [one["version"] for one in progress]
        assert versions == sorted(set(versions))
        assert frames[-1].type == "execution.finished"


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_a_run_that_nobody_watches_is_not_looked_at(new_scene) -> None:
    async with new_scene() as scene:
        run = scene.run(SLOW, EDGES)
        with scene.feed.subscribe(EventFilter.parse(type=["execution.status"])):
            await run.execute()
            await scene.tracker.drained()

        # One snapshot when it was tracked, one at its end.
        assert [one.version for one in scene.progress.history(run.execution_id)] == [1, 2]


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_a_follower_sees_progress_grow_until_the_end(new_scene) -> None:
    async with new_scene() as scene:
        run = scene.run(SLOW, EDGES)
        async with asyncio.TaskGroup() as group:
            group.create_task(run.execute())
            await asyncio.sleep(1)
            snapshots = [one async for one in scene.progress.follow(run.execution_id)]

        shown = [one.as_dict() for one in snapshots]
        versions = [one["version"] for one in shown]
        assert versions == sorted(set(versions))
        assert [one.terminal for one in snapshots] == [False] * (len(shown) - 1) + [True]
        reached = [one["nodes"][2]["in"] for one in shown]
        assert reached == sorted(reached)
        assert (reached[0], reached[-1]) == (0, 30)
        # Two seconds at four looks per second, what was there before, and the end.
        assert 9 <= len(shown) <= 12
        assert shown[-1]["execution"]["status"] == "SUCCESS"
        assert set(shown[-1]) == {"version", "time", "execution", "nodes"}


@virtual_time
async def test_case_23_a_run_whose_end_waits_in_the_queue_is_not_looked_at(new_scene) -> None:
    async with new_scene() as scene:
        run = scene.run(LINE, EDGES)
        [watched] = scene.tracker._runs.live.values()
        with scene.feed.subscribe(), scene.progress.follow(run.execution_id) as reader:
            await run.execute()

            assert run.status.terminal
            assert watched.run is run
            assert scene.tracker._sampler.look(watched) == []
            assert [one.terminal async for one in reader].count(True) == 1


@virtual_time
async def test_a_paused_run_gives_one_snapshot_not_one_per_look(new_scene, now) -> None:
    async with new_scene() as scene:
        run = scene.run(SLOW, EDGES)
        async with asyncio.TaskGroup() as group:
            group.create_task(run.execute())
            await asyncio.sleep(0.55)
            run.pause()
            with scene.progress.follow(run.execution_id) as reader:
                before = await now(reader)
                await asyncio.sleep(60)
                assert before
                # Its rates have become 0 meanwhile, each node's in its own time; that is all.
                assert len(await now(reader)) <= len(run.nodes)
                await asyncio.sleep(600)
                assert await now(reader) == []
            with scene.feed.subscribe() as late:
                await asyncio.sleep(0.5)
                kinds = {frame.type for frame in await now(late)}
            assert {"node.stats", "edge.stats", "execution.progress"} <= kinds
            run.stop(StopMode.CANCEL)


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_a_snapshot_is_of_now_and_then_of_the_end(new_scene) -> None:
    async with new_scene() as scene:
        run = scene.run(SLOW, EDGES, about={"actor": "key:ci", "labels": {"a": "b"}})
        async with asyncio.TaskGroup() as group:
            group.create_task(run.execute())
            await asyncio.sleep(0.55)
            live = scene.tracker.snapshot(run.execution_id)
            assert scene.tracker.live(run.execution_id) is run
            run.pause()
            assert scene.tracker.snapshot(run.execution_id)["execution"]["paused"]
            run.resume()
        ended = scene.tracker.snapshot(run.execution_id)

        assert live["nodes"][0]["out"] == 6
        assert live["execution"]["status"] == "RUNNING"
        assert live["execution"]["labels"] == {"a": "b"}
        assert live["version"] < ended["version"]
        assert ended["execution"]["actor"] == "key:ci"
        assert ended["execution"]["definitionVersion"] == run.definition.version
        assert [node["status"] for node in ended["nodes"]] == ["SUCCESS"] * 3
        assert [edge["passed"] for edge in ended["edges"]] == [30, 30]
        assert scene.tracker.live(run.execution_id) is None
        assert scene.tracker.snapshot(run.execution_id) == ended


@pytest.mark.feature("OBS-03")
@virtual_time
async def test_case_24_results_end_last_after_every_terminal(new_scene) -> None:
    @processor("SHAKY", blocking=False)
    async def shaky(msg, cfg, ctx):
        await asyncio.sleep(1)
        return msg

    async with new_scene() as scene:
        nodes = LINE | {"p": "SHAKY", "d": "COLLECT_TERMINAL"}
        run = scene.run(nodes, "t > p > c, t > d", shaky)
        async with asyncio.TaskGroup() as group:
            group.create_task(run.execute())
            channel = scene.results.get(run.execution_id)
            items = [item async for item in channel.follow()]

        types = [str(item.type) for item in items]
        assert types.count("RESULT") == 10
        assert types.count("NODE_END") == 2
        assert types[-1] == "EXECUTION_END"
        assert [item.cursor for item in items] == list(range(1, 14))
        assert not any(item.truncated for item in items)


@pytest.mark.feature("OBS-02")
@virtual_time
async def test_log_lines_have_cursors_and_the_log_ends_with_the_run(new_scene) -> None:
    async with new_scene() as scene:
        run = scene.run(LINE, EDGES)
        async with asyncio.TaskGroup() as group:
            group.create_task(run.execute())
            items = [item async for item in scene.logs.get(run.execution_id).follow()]

        assert [item["cursor"] for item in items] == ["1", "2", "3", "4", "5"]
        assert [json.loads(item["line"]) for item in items] == [{"n": n} for n in range(5)]
        assert {(item["nodeId"], item["stream"]) for item in items} == {("c", "stdout")}


@pytest.mark.feature("OBS-04")
@virtual_time
async def test_nodes_are_counted_under_their_type(new_scene) -> None:
    async with new_scene() as scene:
        await scene.run(LINE, EDGES).execute()
        await scene.run(LINE, EDGES).execute()
        await scene.tracker.drained()

        labels = {"module": "SEQUENCE_TRIGGER", "status": "SUCCESS"}
        assert scene.count("yukta.node.executions", **labels) == 2


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_case_26_many_watchers_of_a_run_all_see_all_of_it(new_scene, now, data) -> None:
    async with new_scene() as scene:
        streams = [scene.feed.subscribe() for _ in range(20)]
        run = scene.run(SLOW, EDGES)
        told = [[] for _ in streams]
        async with asyncio.TaskGroup() as group:
            running = group.create_task(run.execute())
            while not running.done():
                for stream, frames in zip(streams, told, strict=True):
                    frames += facts(await now(stream), data)
                await asyncio.sleep(0.05)
        for stream, frames in zip(streams, told, strict=True):
            frames += facts(await now(stream), data)

        assert told[0][-1]["type"] == "execution.finished"
        assert all(frames == told[0] for frames in told)


@virtual_time
async def test_nothing_is_left_when_all_runs_have_ended(new_scene) -> None:
    async with new_scene() as scene:
        tasks = len(asyncio.all_tasks())
        for _ in range(3):
            run = scene.run(LINE, EDGES)
            with scene.progress.follow(run.execution_id), scene.feed.subscribe():
                await run.execute()
        await asyncio.sleep(2 * 3600)

        assert len(asyncio.all_tasks()) == tasks
        assert scene.tracker.runs() == []
        for store in (scene.results, scene.logs, scene.progress):
            assert (len(store), store.budget.used) == (0, 0)


@pytest.mark.feature("ENG-01", "ENG-04", "OBS-04")
@virtual_time
async def test_drops_and_retries_of_a_run_reach_their_meters(new_scene) -> None:
    @processor("SHAKY", blocking=False, pure=True)
    def shaky(msg, cfg, ctx):
        """Fail the first attempt at every message."""
        if msg.attempt == 1:
            raise LookupError
        return msg

    engine = {
        "edgeBuffer": {"size": 10, "overflow": "DROP_NEWEST"},
        "retry": {"maxAttempts": 2, "backoffMs": 0},
    }
    nodes = {
        "t": ("SEQUENCE_TRIGGER", {"count": 200}),
        "p": ("SHAKY", {"engine": engine}),
        "c": "NULL_TERMINAL",
    }
    async with new_scene() as scene:
        run = scene.run(nodes, EDGES, shaky)
        run.pause("p")
        task = asyncio.ensure_future(run.execute())
        await asyncio.sleep(1)
        run.resume("p")
        await task
        await scene.tracker.drained()

        value = scene.meters.registry.get_sample_value
        assert value("yukta_edge_dropped_total", {"type": "DROP_NEWEST"}) == 190
        assert value("yukta_node_retries_total", {"module": "SHAKY"}) == 10


@processor("SAYS_SO", blocking=False, pure=True)
def says_so(msg, _cfg, ctx):
    """Write a line of its own per message."""
    ctx.log("mine")
    return msg


@pytest.mark.feature("OBS-02")
@virtual_time
@pytest.mark.parametrize("echo", [True, False])
async def test_a_node_is_echoed_where_that_is_asked_for_unless_it_writes_itself(
    new_scene, echo
) -> None:
    nodes = {
        "t": ("SEQUENCE_TRIGGER", {"count": 2}),
        "big": ("TRANSFORM", {"set": {"text": "x" * 5000}}),
        "own": "SAYS_SO",
        "out": "NULL_TERMINAL",
    }
    async with new_scene(logs__echo_output=echo) as scene:
        run = scene.run(nodes, "t > big > own > out", says_so)
        await run.execute()
        await scene.tracker.drained()
        items = scene.logs.get(run.execution_id).read(None, 100).items

    said = {node: [one["line"] for one in items if one["nodeId"] == node] for node in nodes}
    assert said["own"] == ["mine", "mine"]
    assert said["t"] == (['{"n":0}', '{"n":1}'] if echo else [])
    assert [len(line) for line in said["big"]] == ([2048, 2048] if echo else [])
    assert {one["stream"] for one in items} == {"stdout"}
