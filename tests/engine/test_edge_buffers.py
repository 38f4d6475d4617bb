"""Buffers in front of a node that is slower than its parents."""

import asyncio

import pytest

from yukta_rx.config.load import load_settings
from yukta_rx.model.status import TaskStatus
from yukta_rx.plugins.contract import processor
from yukta_rx.testing.clock import virtual_time

pytestmark = pytest.mark.feature("ENG-01")

COUNT = 500


def graph(overflow, size, edges="in > slow > out, in > fast"):
    """A trigger with a fast branch and a slow one that has a buffer in front of it."""
    buffer = {"size": size} if overflow is None else {"size": size, "overflow": overflow}
    nodes = {
        "in": ("SEQUENCE_TRIGGER", {"count": COUNT}),
        "slow": ("PASS", {"engine": {"edgeBuffer": buffer}}),
        "out": "COLLECT_TERMINAL",
        "fast": "COLLECT_TERMINAL",
    }
    if ".dropped" in edges:
        nodes["lost"] = "COLLECT_TERMINAL"
    return nodes, edges


@pytest.fixture
def spill_dir(tmp_path):
    """A folder in which nothing may be left."""
    yield tmp_path
    assert list(tmp_path.iterdir()) == []


def numbers(world, node_id):
    return [payload["n"] for payload in world.payloads(node_id)]


async def paused_at_the_end(run, node_id):
    """Run while one node is paused, until nothing moves; then let it go on to the end."""
    run.pause(node_id)
    task = asyncio.ensure_future(run.execute())
    await asyncio.sleep(1)
    held = run.snapshot()
    run.resume(node_id)
    return held, await task


@pytest.mark.parametrize("size", [1, 2, 63, 64, 65, 499, 500, 501])
@pytest.mark.parametrize("overflow", [None, "DROP_OLDEST", "DROP_NEWEST"])
@virtual_time
async def test_a_full_buffer_drops_as_its_rule_says_and_paces_nobody(overflow, size, world):
    run = world.run(*graph(overflow, size))

    held, outcome = await paused_at_the_end(run, "slow")

    kept = range(COUNT)[:size] if overflow == "DROP_NEWEST" else range(COUNT)[-size:]
    assert outcome.status is TaskStatus.SUCCESS
    assert numbers(world, "fast") == list(range(COUNT)), "the other branch got everything"
    assert numbers(world, "out") == list(kept)
    dropped = max(0, COUNT - size)
    assert outcome.nodes["slow"]["dropped"] == dropped
    assert outcome.totals["dropped"] == dropped
    edge = next(edge for edge in held["edges"] if edge["target"] == "slow")
    assert (edge["waiting"], edge["dropped"]) == (min(size, COUNT), dropped)
    assert len(held["edges"]) == 3, "the edge inside the node is nobody's business"


@virtual_time
async def test_drops_are_told_with_a_count_and_a_sample_of_ids(world):
    run = world.run(*graph("DROP_OLDEST", 100))

    await paused_at_the_end(run, "slow")

    told = [event for event in world.events if event.type == "edge.dropped"]
    assert sum(event.data["count"] for event in told) == COUNT - 100
    assert {event.node_id for event in told} == {"slow"}
    assert all(0 < len(event.data["sample"]) <= 10 for event in told)
    assert len(told) < 10, "they are told a few times per second, not one by one"


@virtual_time
async def test_what_is_dropped_leaves_by_the_port_dropped(world):
    edges = "in > slow > out, in > fast, slow.dropped > lost"
    run = world.run(*graph("DROP_OLDEST", 10, edges))

    _, outcome = await paused_at_the_end(run, "slow")

    assert numbers(world, "lost") == list(range(COUNT - 10))
    assert numbers(world, "out") == list(range(COUNT - 10, COUNT))
    ids = {item.message_id for item in world.results if item.node_id == "lost"}
    seen = {item.message_id for item in world.results if item.node_id == "fast"}
    assert ids <= seen, "they are the messages themselves"
    assert outcome.status is TaskStatus.SUCCESS


@pytest.mark.parametrize("size", [1, 64, 499, 501])
@virtual_time
async def test_spill_keeps_everything_in_order_and_paces_nobody(size, world, spill_dir):
    world.settings = load_settings(
        environ={}, overrides={"yukta.execution.spill-dir": str(spill_dir)}
    )
    run = world.run(*graph("SPILL", size))

    held, outcome = await paused_at_the_end(run, "slow")

    assert outcome.status is TaskStatus.SUCCESS
    assert numbers(world, "out") == numbers(world, "fast") == list(range(COUNT))
    edge = next(edge for edge in held["edges"] if edge["target"] == "slow")
    assert edge["waiting"] == COUNT, "in memory and on disk"
    assert edge["passed"] == COUNT
    assert outcome.totals["dropped"] == 0


@virtual_time
async def test_ids_and_causes_survive_the_disk(world):
    run = world.run(*graph("SPILL", 1))

    await paused_at_the_end(run, "slow")

    spilled = [item.message_id for item in world.results if item.node_id == "out"]
    world.results.clear()
    other = world.run(*graph("BLOCK", 1), lineage=run.execution_id)
    await other.execute()
    assert spilled == [item.message_id for item in world.results if item.node_id == "out"]


@virtual_time
async def test_a_disk_that_cannot_be_written_ends_the_run_with_an_error_of_the_engine(
    world, tmp_path
):
    gone = tmp_path / "gone"
    world.settings = load_settings(environ={}, overrides={"yukta.execution.spill-dir": str(gone)})
    run = world.run(*graph("SPILL", 1))

    _, outcome = await paused_at_the_end(run, "slow")

    assert outcome.status is TaskStatus.ERROR
    assert outcome.nodes["slow"]["status"] == "ERROR"
    assert "slow" in outcome.error["detail"]
    assert "No such file" in outcome.error["detail"]


@virtual_time
async def test_a_message_that_cannot_be_written_is_bad_input(world):
    @processor("LOCKED", blocking=False, pure=True)
    def locked(msg, cfg, ctx):
        """Give what only lives in this process."""
        return {"n": msg.payload["n"], "lock": lambda: None}

    nodes, _ = graph("SPILL", 1)
    nodes["mid"] = "LOCKED"
    run = world.run(nodes, "in > mid > slow > out, in > fast", locked)

    _, outcome = await paused_at_the_end(run, "slow")

    assert outcome.nodes["slow"]["status"] == "FAILURE"
    assert outcome.error["code"] == "bad_input"


@virtual_time
async def test_block_paces_the_parents_as_deep_as_it_says(world):
    nodes, _ = graph("BLOCK", 7)
    del nodes["fast"]
    run = world.run(nodes, "in > slow > out")

    held, outcome = await paused_at_the_end(run, "slow")

    assert held["edges"][0]["waiting"] == 7
    assert numbers(world, "out") == list(range(COUNT))
    assert outcome.totals["dropped"] == 0


@virtual_time
async def test_a_drained_node_works_off_its_buffer(world):
    nodes, edges = graph("DROP_NEWEST", 20)
    nodes["in"] = ("SEQUENCE_TRIGGER", {"count": 0, "intervalMs": 10})
    nodes["slow"] = ("DELAY", {"ms": 100, "engine": {"edgeBuffer": {"size": 20}}})
    run = world.run(nodes, edges)
    task = asyncio.ensure_future(run.execute())
    await asyncio.sleep(0.155)

    run.stop_node("slow")
    await asyncio.sleep(10)
    run.stop()
    outcome = await task

    assert outcome.nodes["slow"]["status"] == "STOPPED"
    assert outcome.nodes["out"]["status"] == "SUCCESS"
    assert numbers(world, "out") == list(range(16))


@virtual_time
async def test_a_parent_that_fails_fails_the_node_behind_the_buffer_at_once(world):
    nodes, _ = graph("DROP_OLDEST", 400)
    nodes["bad"] = "BOOM"
    run = world.run(nodes, "in > slow > out, in > fast, in > bad > slow")
    run.pause("slow")

    outcome = await asyncio.wait_for(run.execute(), 5)

    assert outcome.nodes["slow"]["status"] == "UPSTREAM_FAILED"
    assert outcome.nodes["bad"]["status"] == "FAILURE"
    assert outcome.error["nodeId"] == "bad"


@virtual_time
async def test_a_join_that_carries_on_keeps_what_a_failed_parent_sent(world):
    nodes, _ = graph("DROP_OLDEST", 2000)
    nodes["slow"][1]["engine"]["trigger"] = "ALL_DONE"
    nodes["bad"] = "BOOM"
    run = world.run(nodes, "in > slow > out, in > fast, in > bad > slow")

    outcome = await run.execute()

    assert outcome.nodes["slow"]["status"] == "SUCCESS"
    assert numbers(world, "out") == list(range(COUNT))
