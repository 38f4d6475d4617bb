"""Several messages in an async plugin at once."""

import asyncio
import random

import pytest

from yukta_rx.model.status import TaskStatus
from yukta_rx.plugins.contract import processor, terminal
from yukta_rx.testing.clock import virtual_time

pytestmark = pytest.mark.feature("ENG-02")

TWENTY = ("SEQUENCE_TRIGGER", {"count": 20})


class Crowd:
    """An async plugin that counts how many calls are inside it."""

    def __init__(self, *, fails=(), generator=False):
        self.inside = self.most = 0
        self.fails = fails
        delays = random.Random(7)
        self.delays = [delays.uniform(0.1, 1) for _ in range(1000)]

        async def work(msg):
            self.inside += 1
            self.most = max(self.most, self.inside)
            try:
                await asyncio.sleep(self.delays[msg.payload["n"]])
            finally:
                self.inside -= 1
            if msg.payload["n"] in self.fails and msg.attempt == 1:
                raise LookupError(msg.payload["n"])
            return msg.payload

        if generator:

            @processor("CROWD")
            async def crowd(msg, cfg, ctx):
                """Take a while, give two."""
                assert ctx.attempt == msg.attempt
                payload = await work(msg)
                yield payload
                yield payload
        else:

            @processor("CROWD")
            async def crowd(msg, cfg, ctx):
                """Take a while."""
                assert ctx.attempt == msg.attempt
                return await work(msg)

        self.plugin = crowd


def graph(trigger=TWENTY, **engine):
    return {"in": trigger, "mid": ("CROWD", {"engine": engine}), "out": "COLLECT_TERMINAL"}


LINE = "in > mid > out"


def numbers(world):
    return [payload["n"] for payload in world.payloads()]


@pytest.mark.parametrize("most", [1, 2, 5, 20, 30])
@virtual_time
async def test_outputs_keep_the_order_of_their_inputs(most, world):
    crowd = Crowd()
    run = world.run(graph(concurrency={"max": most}), LINE, crowd.plugin)

    outcome = await run.execute()

    assert outcome.status is TaskStatus.SUCCESS
    assert numbers(world) == list(range(20))
    assert crowd.most == min(most, 20)
    if most == 20:
        assert outcome.seconds == pytest.approx(max(crowd.delays[:20]))


@virtual_time
async def test_unordered_outputs_leave_as_they_come(world):
    crowd = Crowd()
    run = world.run(graph(concurrency={"max": 20, "ordered": False}), LINE, crowd.plugin)

    await run.execute()

    assert numbers(world) == sorted(range(20), key=lambda n: crowd.delays[n])


@pytest.mark.parametrize("ordered", [True, False])
@virtual_time
async def test_all_outputs_of_one_message_leave_together(ordered, world):
    crowd = Crowd(generator=True)
    policy = {"max": 4, "ordered": ordered}
    run = world.run(graph(concurrency=policy), LINE, crowd.plugin)

    await run.execute()

    seen = numbers(world)
    assert sorted(seen) == sorted([*range(20), *range(20)])
    assert seen[::2] == seen[1::2]


@pytest.mark.parametrize("ordered", [True, False])
@virtual_time
async def test_each_message_has_attempts_of_its_own(ordered, world):
    crowd = Crowd(fails=range(0, 20, 3))
    run = world.run(
        graph(
            concurrency={"max": 6, "ordered": ordered},
            retry={"maxAttempts": 2, "backoffMs": 100},
        ),
        LINE,
        crowd.plugin,
    )

    outcome = await run.execute()

    assert sorted(numbers(world)) == list(range(20))
    assert outcome.nodes["mid"]["retried"] == 7
    if ordered:
        assert numbers(world) == list(range(20))


@virtual_time
async def test_a_failure_leaves_in_its_turn_and_cancels_what_came_after_it(world):
    crowd = Crowd(fails=[7])
    run = world.run(graph(concurrency={"max": 5}), LINE, crowd.plugin)

    outcome = await run.execute()

    assert outcome.status is TaskStatus.FAILURE
    assert numbers(world) == list(range(7))
    assert crowd.inside == 0, "every call was cancelled"
    mid = outcome.nodes["mid"]
    assert mid["failed"] == 1
    assert mid["in"] == mid["out"] + mid["failed"] + mid["dropped"] - outcome_left(mid)


def outcome_left(mid):
    """Messages that waited on the edge when the node failed are dropped, and were never taken."""
    return mid["dropped"] - (mid["in"] - mid["out"] - 1)


@virtual_time
async def test_a_pause_lets_those_inside_finish_and_no_more_in(world):
    crowd = Crowd()
    run = world.run(graph(concurrency={"max": 5}), LINE, crowd.plugin)
    task = asyncio.ensure_future(run.execute())
    await asyncio.sleep(0.01)

    run.pause("mid")
    await asyncio.sleep(100)
    held = run.snapshot()["nodes"]
    run.resume("mid")
    await task

    mid = next(node for node in held if node["nodeId"] == "mid")
    assert (mid["in"], mid["out"]) == (5, 5)
    assert numbers(world) == list(range(20))


@virtual_time
async def test_a_slow_child_paces_the_calls(world):
    crowd = Crowd()

    @terminal("STUCK")
    async def stuck(msg, cfg, ctx):
        """Take one message and never return."""
        await asyncio.sleep(1e9)

    nodes = graph(("SEQUENCE_TRIGGER", {"count": 1000}), concurrency={"max": 5})
    nodes["out"] = ("STUCK", {}, 0)
    run = world.run(nodes, LINE, crowd.plugin, stuck, timeout=None)
    task = asyncio.ensure_future(run.execute())
    await asyncio.sleep(10_000)

    shown = {node["nodeId"]: node for node in run.snapshot()["nodes"]}
    run.stop("CANCEL")
    await task

    assert shown["mid"]["out"] == 64
    assert shown["mid"]["in"] <= 64 + 5


@virtual_time
async def test_a_cancelled_run_cancels_every_call(world):
    crowd = Crowd()
    run = world.run(graph(concurrency={"max": 5}), LINE, crowd.plugin)
    task = asyncio.ensure_future(run.execute())
    await asyncio.sleep(0.05)

    run.stop("CANCEL")
    outcome = await task

    assert outcome.status is TaskStatus.CANCELLED
    assert crowd.inside == 0


@virtual_time
async def test_a_silent_call_among_others_ends_the_node_when_all_are_silent(world):
    @processor("HANG")
    async def hang(msg, cfg, ctx):
        """Hang for ever."""
        await asyncio.sleep(1e9)

    nodes = {
        "in": TWENTY,
        "mid": ("HANG", {"engine": {"concurrency": {"max": 3}}}, 10),
        "out": "COLLECT_TERMINAL",
    }

    outcome = await world.run(nodes, LINE, hang).execute()

    assert outcome.nodes["mid"]["status"] == "TIMED_OUT"
    assert 10 <= outcome.seconds <= 12.6


@virtual_time
async def test_an_element_timeout_ends_only_the_call_that_takes_too_long(world):
    crowd = Crowd()
    crowd.delays[3] = crowd.delays[11] = 3600
    run = world.run(
        graph(concurrency={"max": 4}, elementTimeoutMs=2000, onError="CONTINUE"),
        LINE,
        crowd.plugin,
    )

    outcome = await run.execute()

    assert numbers(world) == [n for n in range(20) if n not in (3, 11)]
    assert outcome.nodes["mid"]["failed"] == 2
