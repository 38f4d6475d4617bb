"""What becomes of a suspended run that cannot be taken up as it was: it ends, and says why."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.control.crash import engine_on
from tests.control.suspended import AFTER, LONG, asking, asleep, engine_of, line
from yukta_rx.control.approvals import answer_to
from yukta_rx.control.commands import StopWorkflow
from yukta_rx.errors import ConflictError
from yukta_rx.observe.filters import EventFilter
from yukta_rx.plugins.contract import processor
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.streams import StopMode
from yukta_rx.streams.pool import BlockingPool
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from pathlib import Path

    from yukta_rx.app import Engine
    from yukta_rx.control.suspended import Suspended

pytestmark = pytest.mark.feature("CTL-05")


def worked(kind: str, count: int = 1, **config: Any) -> dict[str, Any]:
    """Numbers that wait, and then go through a node."""
    return line(
        ("in", "SEQUENCE_TRIGGER", {"count": count, "intervalMs": 7}),
        ("ask", "WAIT_FOR_SIGNAL", {"signal": "go", **config}),
        ("work", kind, {}),
        ("out", "COLLECT_TERMINAL", {}),
    )


def records(caplog: pytest.LogCaptureFixture, told: str) -> list[Any]:
    """Of each log record that says so, the run that it names."""
    found = [one for one in caplog.records if told in one.getMessage()]
    return [getattr(one, "executionId", None) for one in found]


def requests(engine: Engine) -> list[str]:
    """The states of all requests, the oldest first."""
    rows = sorted(engine.approvals._store._requests.values(), key=lambda one: one.request_id)
    return [str(row.state) for row in rows]


def nothing_is_left(engine: Engine, execution_id: str) -> None:
    """No ghost of a run that has ended."""
    assert execution_id not in engine._starter.live
    assert not engine._starter.live.every()
    assert not engine._starter._tasks
    assert engine.approvals.page(lambda _: True, 10) == ([], None)
    assert "OPEN" not in requests(engine)
    assert not engine.approvals.signals.asking()
    assert not engine._starter.archive._recorders
    assert not engine._starter.in_use("s", "w")
    assert sample(engine, "yukta_executions_running") == 0
    names = [task.get_name() for task in asyncio.all_tasks()]
    assert not [name for name in names if name.startswith(("yukta node", "yukta open"))]


def sample(engine: Engine, name: str) -> float:
    """What a meter says."""
    [found] = [
        one.value
        for family in engine.meters.collect()
        for one in family.samples
        if one.name == name
    ]
    return float(found)


# --- a plugin that cannot be opened again --------------------------------------------------------


def opened_once(raised: BaseException, blocking: bool, calls: list[str]) -> Any:
    """A plugin that can be opened once."""

    def open_now(cfg: Any, ctx: Any) -> None:
        calls.append("open")
        if calls.count("open") > 1:
            raise raised

    async def open_soon(cfg: Any, ctx: Any) -> None:
        await asyncio.sleep(1)
        open_now(cfg, ctx)

    async def work(msg, cfg, ctx):
        """Send on what came."""
        return msg

    def work_in_a_thread(msg, cfg, ctx):
        """Send on what came."""
        return msg

    close = lambda cfg, ctx: calls.append("close")  # noqa: E731  (one line of a plugin)
    if blocking:
        return processor("ONCE", open=open_now, close=close)(work_in_a_thread)
    return processor("ONCE", open=open_soon, close=close)(work)


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("raised", [LookupError("not twice"), asyncio.CancelledError("not twice")])
@virtual_time
async def test_a_plugin_that_cannot_be_opened_again_ends_the_run(
    raised: BaseException, blocking: bool, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []
    async with engine_of(plugins=[opened_once(raised, blocking, calls)]) as engine:
        run = await engine.start("s", worked("ONCE", 2))
        await asyncio.sleep(LONG)
        assert asleep(engine) == 1
        answered = await run.node("ask").signal("go")
        assert answered.answer == "ACCEPTED"

        assert await run.wait(10) == "FAILURE"
        error = run.detail["error"]
        assert (error["nodeId"], "not twice" in error["detail"]) == ("work", True)
        told = "node work could not be opened"
        assert records(caplog, told) == [run.execution_id]
        await asyncio.sleep(1)
        nothing_is_left(engine, run.execution_id)
        assert requests(engine) == ["ANSWERED", "CANCELLED"]
        assert calls == ["open", "close", "open", "close"]


# --- an end while plugins are being opened again -------------------------------------------------


def slow(calls: list[str], seconds: float) -> Any:
    """A plugin that is slow to open, and whose `close` needs what that makes."""

    async def open_(cfg: Any, ctx: Any) -> None:
        calls.append("opening")
        await asyncio.sleep(seconds)
        ctx.state = calls
        calls.append("open")

    def close(cfg: Any, ctx: Any) -> None:
        ctx.state.append("close")

    @processor("SLOW", open=open_, close=close)
    async def plugin(msg, cfg, ctx):
        """Send on what came."""
        return msg

    return plugin


@pytest.mark.parametrize("mode", list(StopMode))
@virtual_time
async def test_a_run_that_is_taken_up_to_end_opens_no_plugin(
    mode: StopMode, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []
    async with engine_of(plugins=[slow(calls, 10)]) as engine:
        run = await engine.start("s", worked("SLOW"))
        await asyncio.sleep(LONG + 10)
        assert (asleep(engine), calls) == (1, ["opening", "open", "close"])
        began = asyncio.get_running_loop().time()
        await run.stop(mode)
        if mode is StopMode.DRAIN:
            await run.node("ask").signal("go")
            assert await run.wait(60) in ("STOPPED", "SUCCESS")
            assert calls == ["opening", "open", "close"] * 2
            return
        assert await run.wait(60) == "CANCELLED"
        assert asyncio.get_running_loop().time() - began < 1
        assert calls == ["opening", "open", "close"]
        assert not records(caplog, "could not be")
        nothing_is_left(engine, run.execution_id)


@virtual_time
async def test_an_end_does_not_wait_for_a_plugin_that_is_being_opened_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls: list[str] = []
    async with engine_of(plugins=[slow(calls, 10)]) as engine:
        run = await engine.start("s", worked("SLOW"))
        await asyncio.sleep(LONG + 10)
        await run.node("ask").signal("go")
        await asyncio.sleep(3)
        assert calls == ["opening", "open", "close", "opening"]
        began = asyncio.get_running_loop().time()
        await run.stop(StopMode.CANCEL)
        assert await run.wait(60) == "CANCELLED"
        assert asyncio.get_running_loop().time() - began < 1
        nothing_is_left(engine, run.execution_id)


# --- what is left is not what it was -------------------------------------------------------------


def without_nodes(run: Suspended) -> None:
    run.left = run.left._replace(nodes=())


def without_edges(run: Suspended) -> None:
    run.left = run.left._replace(edges=run.left.edges[:1])


def without_a_place(run: Suspended) -> None:
    *others, ask, work, out = run.left.nodes
    hand = tuple((place + 9 * k, message) for k, (place, message) in enumerate(ask.more.hand))
    ask = ask._replace(more=ask.more._replace(hand=hand))
    run.left = run.left._replace(nodes=(*others, ask, work, out))


DAMAGES = (without_nodes, without_edges, without_a_place)

ASKED = {
    "signal": lambda run: run.node("ask").signal("go"),
    "pause": lambda run: run.pause(),
    "skip": lambda run: run.node("work").skip(),
    "stop": lambda run: run.stop(),
    "kill": lambda run: run.stop(StopMode.KILL),
}


@pytest.mark.parametrize("what", [*ASKED, "time", "shutdown"])
@pytest.mark.parametrize("damage", DAMAGES)
@virtual_time
async def test_a_run_that_cannot_be_taken_up_ends_with_an_error(
    damage: Any, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []
    async with engine_of(plugins=[slow(calls, 1)]) as engine:
        run = await engine.start("s", worked("SLOW", 3, maxWaiting=2, timeoutSeconds=1000))
        await asyncio.sleep(LONG)
        assert asleep(engine) == 1
        waiter = asyncio.ensure_future(run.wait(5000))
        await asyncio.sleep(0)
        last = engine.feed.last_id
        damage(engine._starter.live.suspended[run.execution_id])
        if what in ASKED:
            with pytest.raises(ConflictError, match="has ended ERROR"):
                await ASKED[what](run)
        elif what == "time":
            await asyncio.sleep(1000)
        else:
            await engine.close()

        assert await waiter == "ERROR"
        detail = engine.tracker.state(run.execution_id).as_dict()
        assert (detail["status"], detail["error"]["code"]) == ("ERROR", "engine")
        assert "a defect of the engine: " in detail["error"]["detail"]
        told = f"run {run.execution_id} cannot be taken up again"
        assert records(caplog, told) == [run.execution_id]
        await asyncio.sleep(10)
        nothing_is_left(engine, run.execution_id)
        assert requests(engine) == ["CANCELLED", "CANCELLED"]
        assert calls == ["opening", "open", "close"]
        shown = engine.tracker.snapshot(run.execution_id)
        assert "suspended" not in shown["execution"]
        states = [node["status"] for node in shown["nodes"]]
        assert states == ([] if damage is without_nodes else ["SUCCESS", *["CANCELLED"] * 3])
        results = [one.type async for one in run.results()]
        assert results == ["EXECUTION_END"]
        page = engine.feed.read(EventFilter(), last, 100)
        told = [event["type"] for event in page.items]
        assert [one for one in told if not one.startswith("control.")] == ["execution.finished"]


@virtual_time
async def test_the_nodes_of_a_run_that_cannot_be_taken_up_are_those_that_it_had() -> None:
    async with engine_of() as engine:
        run = await engine.start("s", asking(2))
        await asyncio.sleep(LONG)
        without_edges(engine._starter.live.suspended[run.execution_id])
        with pytest.raises(ConflictError, match="has ended ERROR"):
            await run.node("ask").signal("go")
        await asyncio.sleep(1)
        with pytest.raises(ConflictError) as caught:
            await run.node("ask").retry()
        assert caught.value.code == "node_not_failed"


@virtual_time
async def test_others_go_on_beside_a_run_that_cannot_be_taken_up() -> None:
    async with engine_of(**{"execution.max-concurrent": 2}) as engine:
        broken = await engine.start("s", asking(1, timeoutSeconds=1000))
        whole = await engine.start("s", "w")
        third = await engine.start("s", "w", patience=0)
        await asyncio.sleep(LONG)
        assert (asleep(engine), third.detail["status"]) == (2, "QUEUED")
        without_nodes(engine._starter.live.suspended[broken.execution_id])
        await asyncio.sleep(900)
        await whole.node("ask").signal("go")
        assert await whole.wait(1) == "SUCCESS"
        await asyncio.sleep(1)
        assert third.detail["status"] == "RUNNING"
        await asyncio.sleep(100)
        assert broken.detail["status"] == "ERROR"
        again = await broken.restart()
        await asyncio.sleep(1)
        assert [one["executionId"] for one in engine.approvals.page(lambda _: True, 9)[0]] == [
            third.execution_id,
            again.started.execution_id if hasattr(again, "started") else again.execution_id,
        ]
        await engine.gateway.stop_workflow("s", "w", killed, actor="ann", via="REST")


def killed(execution_id: str) -> Any:
    return StopWorkflow(execution_id=execution_id, mode=StopMode.KILL)


# --- a run that cannot be put aside --------------------------------------------------------------


@virtual_time
async def test_a_run_that_cannot_be_put_aside_goes_on_and_so_do_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls: list[str] = []
    async with engine_of(plugins=[slow(calls, 1)]) as engine:
        broken = await engine.start("s", worked("SLOW", 2))
        engine._starter.live[broken.execution_id].origin = None
        whole = await engine.start("s", "w")
        await asyncio.sleep(20 * LONG)
        assert (asleep(engine), broken.detail["status"]) == (1, "RUNNING")
        assert records(caplog, "cannot be put aside and goes on") == [broken.execution_id]
        for run in (broken, whole):
            await run.node("ask").signal("go")
            await asyncio.sleep(LONG)
            await run.node("ask").signal("go")
            assert await run.wait(10) == "SUCCESS"
        assert (calls.count("open"), calls.count("close")) == (3, 3)


# --- what is asked is not what was asked --------------------------------------------------------


@pytest.mark.parametrize("most", [1, 3])
@virtual_time
async def test_a_message_that_would_ask_something_else_by_now_waits_as_it_was_shown(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setenv("YUKTA_VAR_WORD", "go")
    asked = "${env.YUKTA_VAR_WORD}-${payload.n}"
    async with engine_of(**{"variables.allowed": ["YUKTA_VAR_WORD"]}) as engine:
        run = await engine.start("s", asking(2, maxWaiting=most, signal=asked))
        await asyncio.sleep(LONG)
        assert asleep(engine) == 1
        before = engine.approvals.page(lambda _: True, 9)[0]
        assert before[0]["signal"] == "go-0"
        monkeypatch.setenv("YUKTA_VAR_WORD", "other")
        async with asyncio.timeout(10):
            answered = await run.node("ask").signal("go-0")
        assert (answered.answer, requests(engine)[0]) == ("ACCEPTED", "ANSWERED")
        await asyncio.sleep(1)
        [left] = engine.approvals.page(lambda _: True, 9)[0]
        # One that was not asked before asks anew.
        assert left["signal"] == ("other-1" if most == 1 else "go-1")
        await run.node("ask").signal(left["signal"])
        assert await run.wait(10) == "SUCCESS"
        assert requests(engine) == ["ANSWERED", "ANSWERED"]


# --- a store that has lost something -------------------------------------------------------------


@processor("LARGE", blocking=False)
def large(msg, cfg, ctx):
    """Send on a payload that is kept apart from the record."""
    return {**msg.payload, "text": f"{msg.payload['n']:04}" * 4000}


def lose(folder: Path, n: int) -> None:
    """The payload of a message is gone from the disk."""
    for file in folder.rglob("*blob*/**/*"):
        if file.is_file() and f"{n:04}".encode() * 9 in file.read_bytes():
            file.unlink()


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("action", ["FAIL", "CONTINUE", "ROUTE"])
@virtual_time
async def test_a_message_whose_payload_is_lost_leaves_no_request_that_nobody_stands_behind(
    tmp_path: Path, action: str, most: int, named: bool
) -> None:
    config = {"maxWaiting": most, "prompt": "${payload.n}?", "engine": {"onError": action}}
    document = line(
        ("in", "SEQUENCE_TRIGGER", {"count": 3, "intervalMs": 7}),
        ("large", "LARGE", {}),
        ("ask", "WAIT_FOR_SIGNAL", {"signal": "go", **config}),
        ("out", "COLLECT_TERMINAL", {}),
    )
    settings = {"execution.suspend-after": f"{AFTER}s", "payload.claim-check-bytes": "4KiB"}
    registry = PluginRegistry.load(None, extra=[large])
    async with engine_on(tmp_path / "data", registry, **settings) as engine:
        run = await engine.start("s", document)
        await asyncio.sleep(LONG)
        assert asleep(engine) == 1
        asked = [one["approvalId"] for one in engine.approvals.page(lambda _: True, 9)[0]]
        pool = BlockingPool(1)
        await pool.call(lose, tmp_path / "data", 0)
        pool.close()
        async with asyncio.timeout(10):
            if named:
                command = answer_to(await engine.approvals.find(asked[0]), "yes")
                with pytest.raises(ConflictError) as caught:
                    await engine.gateway.command(command, actor="ann", via="REST")
                assert caught.value.code == "already_answered"
            elif action == "FAIL":
                with pytest.raises(ConflictError, match="node ask ended") as caught:
                    await run.node("ask").signal("go")
                assert caught.value.code == "signal_not_registered"
            else:
                await run.node("ask").signal("go")
        await asyncio.sleep(1)
        assert str((await engine.approvals.find(asked[0])).state) == "CANCELLED"
        if action == "FAIL":
            assert "is missing" in run.detail["error"]["detail"]
            assert await run.wait(1) == "FAILURE"
            return
        # The others go on as if nothing had been.
        while run.detail["status"] == "RUNNING":
            assert len(engine.approvals.page(lambda _: True, 9)[0]) > 0
            await run.node("ask").signal("go")
            await asyncio.sleep(LONG)
        assert run.detail["status"] == "SUCCESS"
        shown = {one["nodeId"]: one for one in engine.gateway.nodes(run.execution_id)}
        assert (shown["out"]["in"], shown["ask"]["failed"]) == (2, 1)


@virtual_time
async def test_a_signal_does_not_wait_for_the_next_attempt_at_a_message_whose_payload_is_lost(
    tmp_path: Path,
) -> None:
    retry = {"maxAttempts": 3, "backoffMs": 3_600_000, "maxBackoffMs": 3_600_000}
    document = line(
        ("in", "SEQUENCE_TRIGGER", {"count": 1, "intervalMs": 7}),
        ("large", "LARGE", {}),
        ("ask", "WAIT_FOR_SIGNAL", {"signal": "go", "engine": {"retry": retry}}),
        ("out", "COLLECT_TERMINAL", {}),
    )
    settings = {"execution.suspend-after": f"{AFTER}s", "payload.claim-check-bytes": "4KiB"}
    registry = PluginRegistry.load(None, extra=[large])
    async with engine_on(tmp_path / "data", registry, **settings) as engine:
        run = await engine.start("s", document)
        await asyncio.sleep(LONG)
        assert asleep(engine) == 1
        pool = BlockingPool(1)
        await pool.call(lose, tmp_path / "data", 0)
        pool.close()
        async with asyncio.timeout(10):
            # The next attempt asks anew, and finds the signal.
            assert (await run.node("ask").signal("go")).answer == "QUEUED"
            assert engine.approvals.page(lambda _: True, 9)[0] == []
            await run.stop(StopMode.KILL)
        assert await run.wait(1) == "CANCELLED"
