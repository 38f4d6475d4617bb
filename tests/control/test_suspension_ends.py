"""The end of a server, and runs that are held back, where runs are suspended."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.control.crash import engine_on
from tests.control.suspended import AFTER, LONG, PLUGINS, asking, asleep, engine_of, line
from yukta_rx.control.approvals import answer_to
from yukta_rx.control.commands import Recover
from yukta_rx.errors import ConflictError
from yukta_rx.plugins.contract import processor
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.streams import StopMode
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from yukta_rx.app import Engine

pytestmark = pytest.mark.feature("CTL-05")

GIVE = {
    "signal": lambda run: run.node("ask").signal("go"),
    "pause": lambda run: run.pause(),
    "skip": lambda run: run.node("ask").skip(),
}


async def given(what: str, run: Any) -> str | None:
    """Give a command to a run that it takes up to end: its answer, None for a signal too late.

    Which of these a signal gets depends on how far the call that it is for gets in its turn.
    """
    try:
        return (await GIVE[what](run)).answer
    except ConflictError as error:
        if (what, error.code) != ("signal", "signal_not_registered"):
            raise
        return None


MANY = 230
"""More than are taken up at the same time."""


def of(kind: str, folder: Any, **settings: Any) -> Engine:
    """An engine that suspends, with stores of some kind."""
    if kind == "memory":
        return engine_of(**settings)
    registry = PluginRegistry.load(None, extra=PLUGINS)
    given = {"execution.suspend-after": f"{AFTER}s", **settings}
    return engine_on(folder, registry, **given)


@pytest.mark.parametrize("what", GIVE)
@pytest.mark.parametrize("kind", ["memory", "file"])
@virtual_time
async def test_a_run_that_a_command_takes_up_during_the_shutdown_ends_like_the_others(
    tmp_path: Any, kind: str, what: str
) -> None:
    engine = of(kind, tmp_path / "data", **{"execution.max-concurrent": MANY})
    async with engine:
        first = await engine.start("s", asking(2))
        runs = [first, *[await engine.start("s", "w") for _ in range(MANY - 1)]]
        await asyncio.sleep(LONG)
        assert asleep(engine) == MANY
        loop = asyncio.get_running_loop()
        began = loop.time()
        closing = asyncio.ensure_future(engine.close())
        while asleep(engine) == MANY:
            await asyncio.sleep(0)
        late = next(run for run in runs if run.execution_id in engine._starter.live.suspended)
        assert await given(what, late) != "QUEUED"
        await closing
        assert loop.time() - began < 1
        assert not engine._starter.live.every()
        ends = {str(engine.tracker.state(run.execution_id).status) for run in runs}
        assert ends == ({"CANCELLED"} if kind == "memory" else {"ABORTED"})


# --- another server takes over -------------------------------------------------------------------


@pytest.mark.parametrize("what", [None, *GIVE])
@virtual_time
async def test_a_server_that_steps_down_leaves_suspended_runs_to_the_other_one(
    tmp_path: Any, what: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"execution.max-concurrent": MANY}
    async with of("file", tmp_path / "data", **settings) as engine:
        runs = [await engine.start("s", asking(2))]
        runs += [await engine.start("s", "w") for _ in range(MANY - 1)]
        await runs[0].node("ask").signal("go")
        await asyncio.sleep(LONG)
        asked = {one["approvalId"] for one in engine.approvals.page(lambda _: True, 1000)[0]}
        assert (asleep(engine), len(asked)) == (MANY, 2 * MANY - 1)
        engine.stores.leading.passed("two")
        answer = None
        if what is not None:
            while asleep(engine) == MANY:
                await asyncio.sleep(0)
            held = engine._starter.live.suspended
            late = next(run for run in runs if run.execution_id in held)
            answer = await given(what, late)
        await asyncio.sleep(1)
        assert not engine._starter.live.every()
        for run in runs:
            shown = engine.tracker.state(run.execution_id).as_dict()
            error = shown["error"]
            assert (shown["status"], error["code"]) == ("ABORTED", "aborted")
            assert error["detail"] == "another server took over while it ran"
        assert not [one for one in caplog.records if one.levelname == "WARNING"]
        # A signal is taken, or refused; the other server would not find one that is kept.
        found = Counter([str((await engine.approvals.find(name)).state) for name in asked])
        taken = 1 if what == "signal" and answer == "ACCEPTED" else 0
        assert found == Counter(OPEN=len(asked) - taken, ANSWERED=taken)

    async with of("file", tmp_path / "data", **settings) as other:
        result = await other.gateway.command(Recover(runs[0].execution_id), actor="ann", via="REST")
        again = result.started.execution_id
        await asyncio.sleep(LONG)
        assert asleep(other) == 1
        [left] = other.approvals.page(lambda _: True, 10)[0]
        assert left["approvalId"] in asked
        request = await other.approvals.find(left["approvalId"])
        await other.gateway.command(answer_to(request, "yes"), actor="ann", via="REST")
        assert await other.gateway.end_of(again, 10) == "SUCCESS"


# --- held back -----------------------------------------------------------------------------------


def behind(engine: Engine, on: bool) -> None:
    """Those who take down what runs say are behind, or have room again."""
    engine.tracker._backlog.behind(on)


def came(engine: Engine, run: Any) -> int:
    """Messages that came to the terminal."""
    nodes = {node["nodeId"]: node for node in engine.gateway.nodes(run.execution_id)}
    return int(nodes["out"]["in"])


def held(engine: Engine) -> tuple[int, int]:
    """How many runs are held now, and how often one was."""
    said = {
        one.name: int(one.value)
        for family in engine.meters.collect()
        for one in family.samples
        if one.name.startswith("yukta_tracker_h") and not one.name.endswith("_created")
    }
    return said["yukta_tracker_held"], said["yukta_tracker_holds_total"]


async def close_later(cfg: Any, ctx: Any) -> None:
    """Say something after the run was put aside."""
    await asyncio.sleep(3)
    ctx.log("closed")


@processor("TALKS", open=lambda cfg, ctx: None, close=close_later)
async def talks(msg, cfg, ctx):
    """Send on what came."""
    return msg


def talking(count: int) -> dict[str, Any]:
    """Numbers that wait, and a plugin that says something when it is closed."""
    return line(
        ("in", "SEQUENCE_TRIGGER", {"count": count, "intervalMs": 7}),
        ("ask", "WAIT_FOR_SIGNAL", {"signal": "go"}),
        ("work", "TALKS", {}),
        ("out", "COLLECT_TERMINAL", {}),
    )


async def put_aside(engine: Engine) -> None:
    while not asleep(engine):
        await asyncio.sleep(0.5)


@virtual_time
async def test_a_run_that_is_held_while_it_is_suspended_is_held_when_it_is_taken_up() -> None:
    async with engine_of(plugins=[talks]) as engine:
        run = await engine.start("s", talking(3))
        await put_aside(engine)
        behind(engine, True)
        assert held(engine) == (0, 0)
        await asyncio.sleep(5)
        assert (asleep(engine), held(engine)) == (1, (1, 1))

        await run.node("ask").signal("go")
        await asyncio.sleep(3 * LONG)
        assert (asleep(engine), came(engine, run), held(engine)) == (0, 0, (1, 1))
        behind(engine, False)
        await asyncio.sleep(1)
        assert (came(engine, run), held(engine)) == (1, (0, 1))

        for _ in range(2):
            await run.node("ask").signal("go")
        assert await run.wait(10) == "SUCCESS"
        assert came(engine, run) == 3


@virtual_time
async def test_a_run_that_is_let_go_while_it_is_suspended_goes_on_freely() -> None:
    async with engine_of(plugins=[talks]) as engine:
        run = await engine.start("s", talking(2))
        await put_aside(engine)
        behind(engine, True)
        await asyncio.sleep(5)
        behind(engine, False)
        assert (asleep(engine), held(engine)) == (1, (0, 1))
        await run.node("ask").signal("go")
        await asyncio.sleep(1)
        assert came(engine, run) == 1
        await run.node("ask").signal("go")
        assert await run.wait(10) == "SUCCESS"


@virtual_time
async def test_a_run_that_is_taken_up_while_others_are_behind_is_held_from_then_on() -> None:
    async with engine_of() as engine:
        run = await engine.start("s", asking(3))
        await asyncio.sleep(LONG)
        behind(engine, True)
        await run.node("ask").signal("go")
        await asyncio.sleep(3 * LONG)
        assert (asleep(engine), came(engine, run), held(engine)) == (0, 0, (1, 1))
        assert "suspended" not in run.detail

        # However often that happens, whoever held it lets go of it.
        for n in range(1, 3):
            behind(engine, False)
            await asyncio.sleep(LONG)
            assert (asleep(engine), came(engine, run), held(engine)) == (1, n, (0, n))
            behind(engine, True)
            await run.node("ask").signal("go")
            await asyncio.sleep(1)
        behind(engine, False)
        assert await run.wait(10) == "SUCCESS"


@pytest.mark.parametrize("mode", [StopMode.CANCEL, StopMode.KILL])
@pytest.mark.parametrize("taken_up", [False, True])
@virtual_time
async def test_a_run_that_is_held_can_end(mode: StopMode, taken_up: bool) -> None:
    async with engine_of(plugins=[talks]) as engine:
        run = await engine.start("s", talking(2))
        await put_aside(engine)
        behind(engine, True)
        await asyncio.sleep(5)
        if taken_up:
            await run.node("ask").signal("go")
            await asyncio.sleep(1)
        await run.stop(mode)
        assert await run.wait(10) == "CANCELLED"
        assert held(engine) == (0, 1)
        assert not engine._starter.live.every()
