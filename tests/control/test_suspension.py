"""Runs that only wait are put aside, and nobody sees it."""

from __future__ import annotations

import asyncio
import gc
import random
import tracemalloc
import weakref
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from tests.control.crash import engine_on, image
from tests.control.suspended import (
    AFTER,
    LONG,
    PLUGINS,
    World,
    asking,
    asleep,
    both,
    counts_of,
    engine_of,
    line,
)
from yukta_rx.control.approvals import answer_to
from yukta_rx.control.commands import Recover, StopWorkflow
from yukta_rx.control.suspensions import LOOKS
from yukta_rx.errors import ConflictError
from yukta_rx.plugins.contract import processor
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.streams import StopMode
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from yukta_rx.app import Engine

pytestmark = pytest.mark.feature("CTL-05")


# --- the same in both worlds ---------------------------------------------------------------------


def test_answers_that_come_late_are_given_to_a_run_as_it_was() -> None:
    async def script(world: World) -> None:
        world.look()
        for n in range(7):
            await world.sleep(LONG)
            world.look()
            await world.told(world.run.node("ask").signal("go", "yes", {"n": n}))
            world.look()

    world = both(asking(7, maxWaiting=3, prompt="${payload.n}?"), script)
    assert world.slept == 7


def test_messages_that_wait_in_front_of_the_node_keep_their_place() -> None:
    async def script(world: World) -> None:
        for n in (40, 50, 20):
            await world.sleep(LONG)
            world.look()
            for _ in range(n):
                await world.run.node("ask").signal("go")
                await asyncio.sleep(0.1)

    assert both(asking(110, maxWaiting=50), script).slept == 3


def test_a_time_that_is_up_is_up_for_a_suspended_run_too() -> None:
    async def script(world: World) -> None:
        await world.sleep(LONG)
        await world.told(world.run.node("ask").signal("go"))
        await world.sleep(939.5)
        world.look()
        await world.sleep(0.75)
        world.look()

    assert both(asking(4, maxWaiting=2, timeoutSeconds=1000, onTimeout="CONTINUE"), script).seen


def test_an_answer_that_is_a_no_fails_the_run() -> None:
    async def script(world: World) -> None:
        await world.sleep(LONG)
        await world.told(world.run.node("ask").signal("go", "reject"))

    assert both(asking(2), script).seen


def test_the_end_of_the_time_fails_the_run() -> None:
    async def script(world: World) -> None:
        await world.sleep(LONG)
        world.look()

    assert both(asking(2, timeoutSeconds=1000), script).seen


def test_the_deadline_of_a_run_ends_it_in_time() -> None:
    async def script(world: World) -> None:
        await world.sleep(3599.5)
        world.look()
        await asyncio.sleep(1)
        world.look()

    assert both(asking(2, timeoutSeconds=100_000), script).seen


def test_pauses_move_the_end_of_the_time_and_the_deadline() -> None:
    async def script(world: World) -> None:
        await asyncio.sleep(3)
        await world.told(world.run.pause())
        await asyncio.sleep(5000.25)
        await world.told(world.run.resume())
        await world.sleep(LONG)
        world.look()
        await world.told(world.run.pause())
        await world.sleep(777)
        world.look()
        await world.told(world.run.resume())
        await world.sleep(LONG)
        world.look()
        await world.sleep(3000)
        world.look()

    world = both(asking(2, timeoutSeconds=3000, onTimeout="CONTINUE"), script)
    assert world.slept == 2


COMMANDS: dict[str, Any] = {
    "pause": lambda run: run.pause(),
    "resume": lambda run: run.resume(),
    "pause node": lambda run: run.node("ask").pause(),
    "pause ended": lambda run: run.node("in").pause(),
    "step": lambda run: run.step(2),
    "step node": lambda run: run.node("out").step(),
    "skip": lambda run: run.node("ask").skip(),
    "skip ended": lambda run: run.node("in").skip(),
    "break": lambda run: run.node("out").set_breakpoint(),
    "stop": lambda run: run.stop(),
    "cancel": lambda run: run.stop(StopMode.CANCEL),
    "kill": lambda run: run.stop(StopMode.KILL),
    "stop node": lambda run: run.node("ask").stop(),
    "cancel node": lambda run: run.node("ask").stop(StopMode.CANCEL),
    "reject": lambda run: run.node("ask").signal("go", "reject"),
    "early": lambda run: run.node("ask").signal("later"),
    "wrong": lambda run: run.node("out").signal("go"),
    "restart": lambda run: run.restart(),
    "restart node": lambda run: run.node("ask").restart(),
    "retry": lambda run: run.node("ask").retry(),
    "nobody": lambda run: run.node("nobody").pause(),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_finds_a_suspended_run_as_it_was(name: str) -> None:
    async def script(world: World) -> None:
        await world.sleep(LONG)
        await world.told(_call(COMMANDS[name], world.run))
        world.look()
        await asyncio.sleep(1)
        world.look()
        await world.told(world.run.node("ask").signal("go", "yes"))
        await world.sleep(LONG)
        world.look()
        await world.told(world.run.resume())
        for _ in range(5):
            await world.told(world.run.node("ask").signal("go", "yes"))
            await world.sleep(LONG)

    assert both(asking(4, maxWaiting=2), script).seen


async def _call(command: Any, run: Any) -> Any:
    return await command(run)


def test_two_nodes_that_ask_at_the_same_time() -> None:
    document = asking(3)
    document["nodes"] += [
        {"nodeId": "also", "type": "WAIT_FOR_SIGNAL", "config": {"signal": "too", "maxWaiting": 1}},
        {"nodeId": "end", "type": "COLLECT_TERMINAL"},
    ]
    document["edges"] += [
        {"source": "in", "target": "also"},
        {"source": "also", "target": "end"},
        {"source": "ask", "target": "end"},
    ]

    async def script(world: World) -> None:
        for node, signal in [("ask", "go"), ("also", "too")] * 3:
            await world.sleep(LONG)
            world.look()
            await world.told(world.run.node(node).signal(signal))

    assert both(document, script).slept == 6


KINDS = ("KEEP", "TWICE", "LATER", "DELAY", "PASS", "WAIT_FOR_SIGNAL")


def graph(rng: random.Random) -> tuple[dict[str, Any], list[str]]:
    """A graph of a few layers in which nodes wait; and the ids of those."""
    config: dict[str, Any] = {"count": rng.randint(1, 6), "intervalMs": 11}
    nodes = [{"nodeId": "in", "type": "SEQUENCE_TRIGGER", "config": config}]
    edges: list[dict[str, Any]] = []
    asking: list[str] = []
    free = [node["nodeId"] for node in nodes]
    known = list(free)
    for k in range(rng.randint(2, 7)):
        kind = "WAIT_FOR_SIGNAL" if k == 0 else rng.choice(KINDS)
        name, config = f"n{k}", {}
        if kind == "WAIT_FOR_SIGNAL":
            asking.append(name)
            config = {
                "signal": "go",
                "maxWaiting": rng.choice([1, 2, 100]),
                # No two end at the same time, so that there is one order in which they do.
                "timeoutSeconds": rng.choice([500, 5000, 50_000]) + k,
                "onTimeout": rng.choice(["DROP", "CONTINUE"]),
                # One that fails by an answer which came early races with the others of its moment.
                "onReject": rng.choice(["DROP", "CONTINUE"]),
                "engine": {"concurrency": {"ordered": rng.random() < 0.5}},
            }
        elif kind == "DELAY":
            config = {"ms": 70 + 3 * k}
        elif kind == "PASS":
            kind = "KEEP"
            config = {"every": 1}
        elif kind != "KEEP":
            config = {"seconds": 0.5 + 0.017 * k}
        if kind != "WAIT_FOR_SIGNAL" and rng.random() < 0.3:
            config["engine"] = {"trigger": rng.choice(["ALL_DONE", "ONE_SUCCESS"])}
        nodes.append({"nodeId": name, "type": kind, "config": config})
        parents = (
            {rng.choice(free or known), rng.choice(known)}
            if rng.random() < 0.4
            else {rng.choice(free or known)}
        )
        for parent in sorted(parents):
            edges.append({"source": parent, "target": name})
            if parent in free:
                free.remove(parent)
        free.append(name)
        known.append(name)
    for k, name in enumerate(sorted(free)):
        nodes.append({"nodeId": f"out{k}", "type": "COLLECT_TERMINAL"})
        edges.append({"source": name, "target": f"out{k}"})
    return {"workflowId": "w", "nodes": nodes, "edges": edges}, asking


@pytest.mark.parametrize("seed", range(40))
def test_any_graph_in_any_hands(seed: int) -> None:
    rng = random.Random(seed)
    document, nodes = graph(rng)
    processors = [node["nodeId"] for node in document["nodes"] if node["nodeId"][0] == "n"]
    steps = [
        (
            rng.choice(["signal"] * 6 + ["look", "look", "pause", "node", "skip", "step", "wait"]),
            rng.choice(nodes),
            rng.choice(processors),
            rng.choice(["yes", "yes", "yes", "reject"]),
            rng.choice([0, 0.05, 3, AFTER, LONG, LONG, 400.5]),
        )
        for _ in range(30)
    ]

    async def script(world: World) -> None:
        await world.sleep(LONG)
        world.look()
        for what, asked, other, word, seconds in steps:
            run = world.run
            if what == "signal":
                await world.told(run.node(asked).signal("go", word))
            elif what == "look":
                world.look()
            elif what == "pause":
                await world.told(run.pause())
                await asyncio.sleep(seconds)
                await world.told(run.resume())
            elif what == "node":
                await world.told(run.node(other).pause())
                await asyncio.sleep(seconds)
                await world.told(run.node(other).resume())
            elif what == "skip":
                await world.told(run.node(other).skip())
                await asyncio.sleep(seconds)
                await world.told(run.node(other).unskip())
            elif what == "step":
                await world.told(run.step(1))
                await asyncio.sleep(seconds)
                await world.told(run.resume())
            await world.sleep(seconds)
        world.look()

    assert both(
        document, script, sleeps=False, **{"execution.prefetch": 4 if seed % 2 else 64}
    ).seen


# --- plugins that are opened ---------------------------------------------------------------------


def opened(calls: list[str], seconds: float = 0.0) -> Any:
    """A plugin that is opened and closed, and says so; and how it is opened."""

    async def open_(cfg: Any, ctx: Any) -> None:
        await asyncio.sleep(seconds)
        assert ctx.state is None
        ctx.state = calls.append
        calls.append("open")

    def close(cfg: Any, ctx: Any) -> None:
        calls.append("close")

    @processor("OPENED", open=open_, close=close)
    async def plugin(msg, cfg, ctx):
        """Note the message."""
        ctx.state(str(msg.payload["n"]))
        return msg

    return plugin


def behind(kind: str, count: int = 1, **config: Any) -> dict[str, Any]:
    """Numbers that wait, and then go through a node."""
    document = asking(count, **config)
    document["nodes"].insert(2, {"nodeId": "work", "type": kind})
    document["edges"] = [
        {"source": "in", "target": "ask"},
        {"source": "ask", "target": "work"},
        {"source": "work", "target": "out"},
    ]
    return document


@pytest.mark.parametrize("seconds", [0, 20])
@virtual_time
async def test_a_plugin_that_had_no_message_is_opened_again_before_its_first(
    seconds: float,
) -> None:
    calls: list[str] = []
    async with engine_of(plugins=[opened(calls, seconds)]) as engine:
        run = await engine.start("s", behind("OPENED"))
        await asyncio.sleep(LONG + 20)
        assert (asleep(engine), calls) == (1, ["open", "close"])

        await run.node("ask").signal("go")
        assert await run.wait(100) == "SUCCESS"
        assert calls == ["open", "close", "open", "0", "close"]


@virtual_time
async def test_a_plugin_that_is_not_closed_yet_is_not_opened_again() -> None:
    calls: list[str] = []
    closing = asyncio.Event()

    async def close(cfg: Any, ctx: Any) -> None:
        calls.append("closing")
        await closing.wait()
        calls.append("closed")

    @processor("SLOW", open=lambda cfg, ctx: calls.append("open"), close=close)
    async def slow(msg, cfg, ctx):
        """Note the message."""
        calls.append("call")
        return msg

    async with engine_of(plugins=[slow]) as engine:
        run = await engine.start("s", behind("SLOW"))
        while not asleep(engine):
            await asyncio.sleep(0.5)
        await run.node("ask").signal("go")
        await asyncio.sleep(1)
        assert calls == ["open", "closing"]
        closing.set()
        assert await run.wait(100) == "SUCCESS"
        assert calls == ["open", "closing", "closed", "open", "call", "closing", "closed"]


def closing(calls: list[Any], **hooks: Any) -> Any:
    """A plugin that notes its messages, and says something when it is closed."""

    def close(cfg: Any, ctx: Any) -> None:
        calls.append("closed")
        ctx.count("closed")

    @processor("CLOSES", close=close, **hooks)
    async def plugin(msg, cfg, ctx):
        """Note what came."""
        calls.append(msg.payload["n"])
        return msg

    return plugin


def test_a_plugin_that_only_closes_does_so_once_and_after_its_last_message() -> None:
    calls: list[Any] = []

    async def script(world: World) -> None:
        calls.clear()
        for _ in range(3):
            await world.sleep(LONG)
            await world.told(world.run.node("ask").signal("go"))

    # It is put aside before the first message, and not after it.
    assert both(behind("CLOSES", 3), script, plugins=[closing(calls)]).slept == 1
    assert calls == [0, 1, 2, "closed"]


@virtual_time
async def test_what_a_plugin_counts_as_it_is_closed_is_counted_each_time() -> None:
    calls: list[Any] = []
    opens = closing(calls, open=lambda cfg, ctx: calls.append("open"))
    async with engine_of(plugins=[opens]) as engine:
        run = await engine.start("s", behind("CLOSES"))
        await asyncio.sleep(LONG)
        assert asleep(engine) == 1
        await run.node("ask").signal("go")
        assert await run.wait(10) == "SUCCESS"
        await asyncio.sleep(1)
        assert calls == ["open", "closed", "open", 0, "closed"]
        [counted] = [one for one in counts_of(engine) if "'closed'" in one]
        assert counted.endswith(" 2")


@virtual_time
async def test_a_plugin_that_cannot_be_opened_again_fails_its_node() -> None:
    times = 0

    def open_(cfg: Any, ctx: Any) -> None:
        nonlocal times
        times += 1
        if times > 1:
            raise LookupError("not twice")

    plugin = processor("ONCE", open=open_)(_passed)
    async with engine_of(plugins=[plugin]) as engine:
        run = await engine.start("s", behind("ONCE"))
        await asyncio.sleep(LONG)
        assert asleep(engine) == 1
        # It has failed before the call that the signal is for is there again.
        with pytest.raises(ConflictError) as caught:
            await run.node("ask").signal("go")
        assert caught.value.code == "signal_not_registered"
        assert await run.wait(100) == "FAILURE"
        assert run.detail["error"]["detail"] == "not twice"


async def _passed(msg, cfg, ctx):
    """Send on what came."""
    return msg


# --- what stays as it is -------------------------------------------------------------------------


async def counting(msg, cfg, ctx):
    """Number the messages."""
    ctx.state = (ctx.state or 0) + 1
    return {**msg.payload, "number": ctx.state}


async def spawning(msg, cfg, ctx):
    """Go on beside the run."""
    ctx.spawn(asyncio.sleep(10_000))
    return msg


async def hanging(msg, cfg, ctx):
    """Never come back."""
    await asyncio.sleep(50_000)


STAY = {
    "state in the context": (behind("A", 2), {"A": counting}),
    "declared state": (behind("B", 2), {"B": _passed}),
    "a task beside": (behind("C", 2), {"C": spawning}),
    "opened and used": (behind("D", 2), {"D": _passed}),
    "used, and is closed": (behind("F", 2), {"F": _passed}),
    "a call is out": (
        {
            **behind("E", 2),
            "edges": [
                {"source": "in", "target": "ask"},
                {"source": "in", "target": "work"},
                {"source": "ask", "target": "out"},
                {"source": "work", "target": "out"},
            ],
        },
        {"E": hanging},
    ),
    "a trigger goes on": (
        line(
            ("in", "SEQUENCE_TRIGGER", {"count": 0, "intervalMs": 20_000}),
            ("ask", "WAIT_FOR_SIGNAL", {"signal": "go", "maxWaiting": 2}),
            ("out", "COLLECT_TERMINAL", {}),
        ),
        {},
    ),
    "a buffer": (asking(2, engine={"edgeBuffer": {"size": 10, "overflow": "DROP_OLDEST"}}), {}),
    "a buffer that dropped some": (
        line(
            ("in", "SEQUENCE_TRIGGER", {"count": 9, "intervalMs": 7}),
            ("slow", "LATER", {"engine": {"edgeBuffer": {"size": 1, "overflow": "DROP_OLDEST"}}}),
            ("ask", "WAIT_FOR_SIGNAL", {"signal": "go"}),
            ("out", "COLLECT_TERMINAL", {}),
        ),
        {},
    ),
    "a deadline": (asking(2, engine={"deadlineMs": 10**8}), {}),
    "a timed attempt": (asking(2, engine={"elementTimeoutMs": 10**8}), {}),
}


@pytest.mark.parametrize("name", STAY)
@virtual_time
async def test_a_run_that_could_lose_something_stays_as_it_is(name: str) -> None:
    document, work = STAY[name]
    more = {
        "declared state": {"stateful": True},
        "opened and used": {"open": lambda cfg, ctx: None},
        "used, and is closed": {"close": lambda cfg, ctx: None},
        "a call is out": {"default_timeout": 100_000},
    }
    plugins = [processor(kind, **more.get(name, {}))(fn) for kind, fn in work.items()]
    async with engine_of(plugins=(*PLUGINS, *plugins)) as engine:
        run = await engine.start("s", document)
        await asyncio.sleep(1)
        if document["nodes"][-2]["nodeId"] == "work" and name != "a call is out":
            # One has gone through.
            await run.node("ask").signal("go")
        for _ in range(10):
            await asyncio.sleep(LONG)
            assert (asleep(engine), run.detail["status"]) == (0, "RUNNING")
        await run.stop(StopMode.KILL)


@pytest.mark.parametrize("what", ["pause", "pause node", "skip", "breakpoint", "step mode"])
@virtual_time
async def test_a_run_that_is_steered_stays_as_it_is(what: str) -> None:
    async with engine_of() as engine:
        run = await engine.start("s", asking(2, maxWaiting=1), step_mode=what == "step mode")
        if what == "step mode":
            await run.step(2)
        await asyncio.sleep(1)
        if what == "pause":
            await run.pause()
        elif what == "pause node":
            await run.node("out").pause()
        elif what == "skip":
            await run.node("ask").skip()
        elif what == "breakpoint":
            await run.node("out").set_breakpoint()
        await asyncio.sleep(10 * LONG)
        assert (asleep(engine), run.detail["status"]) == (0, "RUNNING")

        if what == "skip":
            await run.node("ask").unskip()
        await run.node("out").clear_breakpoint()
        await run.resume()
        await asyncio.sleep(LONG)
        assert asleep(engine) == (what != "step mode")
        await run.stop(StopMode.KILL)


@virtual_time
async def test_breakpoints_of_a_node_that_has_ended_keep_the_run() -> None:
    document = line(
        ("in", "SEQUENCE_TRIGGER", {"count": 2, "intervalMs": 3000}),
        ("pre", "KEEP", {"every": 1}),
        ("ask", "WAIT_FOR_SIGNAL", {"signal": "go"}),
        ("out", "COLLECT_TERMINAL", {}),
    )
    async with engine_of() as engine:
        run = await engine.start("s", document)
        await asyncio.sleep(1)
        await run.node("pre").set_breakpoint("payload.n", "99")
        await asyncio.sleep(10 * LONG)
        assert engine.gateway.nodes(run.execution_id)[1]["status"] == "SUCCESS"
        assert (asleep(engine), len(run.detail["breakpoints"])) == (0, 1)
        await run.node("ask").signal("go")
        assert len(run.detail["breakpoints"]) == 1
        await run.stop(StopMode.KILL)


@virtual_time
async def test_an_edge_that_somebody_looks_into_keeps_the_run() -> None:
    async with engine_of() as engine:
        run = await engine.start("s", asking(2))
        await asyncio.sleep(LONG)
        assert asleep(engine) == 1
        wanted = {"source": "ask", "target": "out", "port": None}
        reader = engine.gateway.tap(run.execution_id, **wanted, max_per_sec=100, max_bytes=10_000)
        await asyncio.sleep(LONG)
        assert asleep(engine) == 0
        await run.node("ask").signal("go")
        await asyncio.sleep(1)
        reader.close()
        await asyncio.sleep(LONG)
        assert asleep(engine) == 1
        await run.stop(StopMode.KILL)


@virtual_time
async def test_a_run_below_another_stays_and_so_does_the_one_above() -> None:
    parent = line(
        ("in", "API_TRIGGER", {}),
        ("sub", "SUB_WORKFLOW", {"workflowId": "w"}),
        ("out", "COLLECT_TERMINAL", {}),
    )
    parent["workflowId"] = "parent"
    async with engine_of() as engine:
        await engine._save("s", asking(1))
        run = await engine.start("s", parent, {})
        await asyncio.sleep(5 * LONG)
        assert (asleep(engine), len(engine._starter.live)) == (0, 2)
        await run.stop(StopMode.KILL)


@virtual_time
async def test_without_the_setting_nothing_is_ever_put_aside() -> None:
    async with engine_of(0) as engine:
        run = await engine.start("s", asking(2))
        await asyncio.sleep(3000)
        assert asleep(engine) == 0
        assert "suspended" not in run.detail
        assert not engine._starter.suspensions._tasks
        await run.stop(StopMode.KILL)


# --- what is told --------------------------------------------------------------------------------


@virtual_time
async def test_a_suspended_run_says_so_and_stays_so_while_it_is_read() -> None:
    async with engine_of() as engine:
        run = await engine.start("s", asking(2))
        await asyncio.sleep(LONG)
        detail = run.detail
        assert detail["suspended"] is True
        assert [fact["kind"] for fact in detail["waitingOn"]] == ["APPROVAL"]
        assert engine.tracker.snapshot(run.execution_id)["execution"]["suspended"] is True
        assert engine.gateway.summary(run.execution_id)["suspended"] is True
        assert engine.gateway.breakpoints(run.execution_id, "ask") == []
        assert engine._starter.in_use("s", "w")
        assert (asleep(engine), suspended(engine)) == (1, 1)

        await run.node("ask").signal("go")
        assert "suspended" not in run.detail
        assert suspended(engine) == 0
        await run.stop(StopMode.KILL)


def suspended(engine: Engine) -> float:
    """What the meter says."""
    samples = [one for family in engine.meters.collect() for one in family.samples]
    return next(one.value for one in samples if one.name == "yukta_executions_suspended")


@virtual_time
async def test_nothing_holds_on_to_a_run_that_was_put_aside() -> None:
    async with engine_of() as engine:
        started = await engine.start("s", behind("TWICE", 3))
        await asyncio.sleep(1)
        run = weakref.ref(engine._starter.live[started.execution_id])
        await asyncio.sleep(LONG)
        assert asleep(engine) == 1
        gc.collect()
        assert run() is None
        await started.stop(StopMode.KILL)


@virtual_time
async def test_times_of_runs_that_were_taken_up_meanwhile_do_not_pile_up() -> None:
    async with engine_of(1) as engine:
        slow = await engine.start("s", asking(1, timeoutSeconds=100_000))
        await engine._save("s", {**asking(1, timeoutSeconds=3000), "workflowId": "quick"})
        quick = await engine.start("s", "quick")
        for _ in range(700):
            await asyncio.sleep(3)
            assert asleep(engine) == 2
            await slow.node("ask").skip()
            await slow.node("ask").unskip()
        await asyncio.sleep(3)
        assert len(engine._starter.suspensions._due._heap) < 200

        await asyncio.sleep(3000 - 2103 - 0.5)
        assert quick.detail["status"] == "RUNNING"
        await asyncio.sleep(1)
        assert quick.detail["status"] == "FAILURE"
        await slow.stop(StopMode.KILL)


@virtual_time
async def test_many_runs_that_are_due_at_the_same_time_leave_others_their_turns() -> None:
    many = 50
    async with engine_of(**{"execution.max-concurrent": many}) as engine:
        await engine._save("s", asking(1, timeoutSeconds=1000, onTimeout="DROP"))
        runs = [await engine.start("s", "w") for _ in range(many)]
        await asyncio.sleep(LONG)
        [due] = {run.due for run in engine._starter.live.suspended.values()}
        loop = asyncio.get_running_loop()
        await asyncio.sleep(due - loop.time())
        left = [many]
        while left[-1]:
            await asyncio.sleep(0)
            left.append(asleep(engine))
        # None of them is taken up later for that.
        assert loop.time() == due
        assert max(one - other for one, other in pairwise(left)) < 4
        assert {str(await run.wait(1)) for run in runs} == {"SUCCESS"}


@virtual_time
async def test_a_run_that_starts_as_the_last_look_is_over_is_put_aside_too() -> None:
    for turns in range(4):
        async with engine_of() as engine:
            first = await engine.start("s", asking(1))
            look = asyncio.get_running_loop().time() + AFTER / LOOKS
            await first.stop(StopMode.KILL)
            assert await first.wait(1) == "CANCELLED"
            await asyncio.sleep(look - asyncio.get_running_loop().time())
            for _ in range(turns):
                await asyncio.sleep(0)
            run = await engine.start("s", "w")
            await asyncio.sleep(LONG)
            assert asleep(engine) == 1
            await run.stop(StopMode.KILL)


@virtual_time
async def test_a_suspended_run_keeps_its_slot() -> None:
    async with engine_of(**{"execution.max-concurrent": 1}) as engine:
        first = await engine.start("s", asking(1))
        second = await engine.start("s", "w", patience=0)
        await asyncio.sleep(LONG)
        assert (asleep(engine), second.detail["status"]) == (1, "QUEUED")
        await first.node("ask").signal("go")
        assert await first.wait(5) == "SUCCESS"
        await asyncio.sleep(1)
        assert second.detail["status"] == "RUNNING"
        await second.stop(StopMode.KILL)


@virtual_time
async def test_all_runs_of_a_workflow_are_stopped_the_suspended_ones_too() -> None:
    async with engine_of() as engine:
        runs = [await engine.start("s", asking(1)), await engine.start("s", "w")]
        await asyncio.sleep(LONG)
        runs.append(await engine.start("s", "w"))
        await asyncio.sleep(1)
        assert asleep(engine) == 2
        await engine.gateway.stop_workflow("s", "w", cancel, actor="ann", via="REST")
        assert [await run.wait(60) for run in runs] == ["CANCELLED"] * 3
        assert [one.state for one in engine.approvals._store._requests.values()] == [
            "CANCELLED"
        ] * 3


def cancel(execution_id: str) -> Any:
    return StopWorkflow(execution_id=execution_id, mode=StopMode.CANCEL)


# --- the end of the server -----------------------------------------------------------------------


def on_files(folder: Any, **settings: Any) -> Engine:
    registry = PluginRegistry.load(None, extra=PLUGINS)
    return engine_on(folder, registry, **{"execution.suspend-after": f"{AFTER}s", **settings})


async def open_requests(engine: Engine) -> list[str]:
    return [one["approvalId"] for one in engine.approvals.page(lambda _: True, 500)[0]]


@pytest.mark.parametrize("resumes", [False, True])
@virtual_time
async def test_a_shutdown_aborts_a_suspended_run_and_the_next_server_goes_on(
    tmp_path: Any, resumes: bool
) -> None:
    async with on_files(tmp_path / "data") as engine:
        run = await engine.start("s", behind("KEEP", 4, maxWaiting=2))
        await asyncio.sleep(1)
        await run.node("ask").signal("go")
        await asyncio.sleep(LONG)
        asked = await open_requests(engine)
        assert (asleep(engine), len(asked)) == (1, 2)

    async with on_files(tmp_path / "data", **{"restart.auto-resume": resumes}) as engine:
        assert engine.gateway.summary(run.execution_id)["status"] == "ABORTED"
        again = run.execution_id
        if not resumes:
            result = await engine.gateway.command(Recover(again), actor="ann", via="REST")
            again = result.started.execution_id
        await asyncio.sleep(LONG)
        again = again if not resumes else next(iter(engine._starter.live.every())).execution_id
        # They are asked no second time, and a run that went on is put aside like any other.
        assert await open_requests(engine) == asked
        assert asleep(engine) == 1
        for _ in range(3):
            [first, *_] = await open_requests(engine)
            request = await engine.approvals.find(first)
            await engine.gateway.command(answer_to(request, "yes"), actor="ann", via="REST")
            await asyncio.sleep(LONG)
        assert await engine.gateway.end_of(again, 100) == "SUCCESS"
        shown = {node["nodeId"]: node for node in engine.gateway.nodes(again)}
        assert (shown["ask"]["out"], shown["out"]["in"]) == (4, 2)


@virtual_time
async def test_a_crash_while_a_run_is_suspended_costs_nothing(tmp_path: Any) -> None:
    async with on_files(tmp_path / "data") as engine:
        run = await engine.start("s", behind("KEEP", 4, maxWaiting=2))
        await asyncio.sleep(1)
        await run.node("ask").signal("go")
        await asyncio.sleep(LONG)
        asked = await open_requests(engine)
        assert (asleep(engine), len(asked)) == (1, 2)
        after = await image(tmp_path / "data", "after")
        await run.stop(StopMode.KILL)

    async with on_files(after) as engine:
        result = await engine.gateway.command(Recover(run.execution_id), actor="ann", via="REST")
        again = result.started.execution_id
        await asyncio.sleep(LONG)
        assert await open_requests(engine) == asked
        for _ in range(3):
            [first, *_] = await open_requests(engine)
            request = await engine.approvals.find(first)
            await engine.gateway.command(answer_to(request, "yes"), actor="ann", via="REST")
            await asyncio.sleep(LONG)
        assert await engine.gateway.end_of(again, 100) == "SUCCESS"
        assert {one["nodeId"]: one["out"] for one in engine.gateway.nodes(again)}["ask"] == 4


@processor("LARGE", blocking=False)
def large(msg, cfg, ctx):
    """Send on a payload that is kept apart from the record."""
    return {**msg.payload, "text": f"{msg.payload['n']:04}" * 4000}


@pytest.mark.parametrize("most", [1, 3])
def test_large_payloads_wait_as_references_and_the_record_is_the_same(
    tmp_path: Any, most: int
) -> None:
    document = line(
        ("in", "SEQUENCE_TRIGGER", {"count": 5, "intervalMs": 7}),
        ("large", "LARGE", {}),
        ("ask", "WAIT_FOR_SIGNAL", {"signal": "go", "maxWaiting": most}),
        ("keep", "KEEP", {"every": 1}),
        ("out", "COLLECT_TERMINAL", {}),
    )
    folders = iter([tmp_path / "plain", tmp_path / "suspended"])

    async def script(world: World) -> None:
        for n in range(5):
            await world.sleep(LONG)
            world.look()
            await world.told(world.run.node("ask").signal("go", "yes", {"n": n}))
        await asyncio.sleep(5)
        for node in ("large", "ask", "keep"):
            found = await world.engine.gateway.outputs(world.run.execution_id, node, 100)
            world.seen.append(found)

    def settings() -> dict[str, Any]:
        folder = next(folders)
        return {"profile": "file", "data.dir": str(folder), "payload.claim-check-bytes": "4KiB"}

    plugins = (*PLUGINS, large)
    assert both(document, script, plugins=plugins, settings_of=settings).slept == 5


@pytest.mark.parametrize("most", [1, 100])
@virtual_time
async def test_large_payloads_wait_as_references_when_the_run_is_there_again(
    tmp_path: Any, most: int
) -> None:
    @processor("MEGABYTE", blocking=False)
    def megabyte(msg, cfg, ctx):
        """Send on a payload of which eight are much."""
        return {**msg.payload, "text": f"{msg.payload['n']:04}" * (1 << 18)}

    document = line(
        ("in", "SEQUENCE_TRIGGER", {"count": 8, "intervalMs": 7}),
        ("large", "MEGABYTE", {}),
        ("ask", "WAIT_FOR_SIGNAL", {"signal": "go", "maxWaiting": most}),
        ("out", "COLLECT_TERMINAL", {}),
    )
    registry = PluginRegistry.load(None, extra=[megabyte])
    settings = {"execution.suspend-after": f"{AFTER}s", "payload.claim-check-bytes": "4KiB"}
    async with engine_on(tmp_path / "data", registry, **settings) as engine:
        tracemalloc.start()
        try:
            run = await engine.start("s", document)
            await asyncio.sleep(LONG)
            assert asleep(engine) == 1
            await run.node("ask").skip()
            await run.node("ask").unskip()
            await asyncio.sleep(10)
            assert asleep(engine) == 0
            gc.collect()
            waiting, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        await run.stop(StopMode.KILL)
    assert waiting < 5 << 20


@virtual_time
async def test_a_shutdown_without_stores_cancels_what_is_suspended() -> None:
    engine = engine_of()
    async with engine:
        runs = [await engine.start("s", asking(1)) for _ in range(3)]
        await asyncio.sleep(LONG)
        assert asleep(engine) == 3
    for run in runs:
        assert engine.tracker.state(run.execution_id).status == "CANCELLED"
    assert asleep(engine) == 0
