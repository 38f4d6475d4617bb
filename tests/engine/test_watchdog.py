"""The watchdog: a held event loop is noticed while it is held, and the node named that holds it.

These tests run on a real loop, in real time: a plugin holds the loop until the watchdog has said
so, so none depends on how quick the machine is.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from typing import Any

import pytest

from yukta_rx.app import Engine
from yukta_rx.config.load import load_settings
from yukta_rx.engine.watchdog import WINDOW, Watchdog, _Lag
from yukta_rx.model.status import TaskStatus
from yukta_rx.plugins.contract import processor
from yukta_rx.streams.circuit import Circuit
from yukta_rx.streams.flow import from_iterable
from yukta_rx.testing.clock import virtual_time

pytestmark = pytest.mark.feature("EXT-01")

LIMIT = 0.05
AMPLE = 0.4
"""A limit that a busy machine does not reach by itself."""

PATIENCE = 20.0
"""Seconds that a plugin holds the loop at most, if nobody notices."""


class Heard(logging.Handler):
    """What the watchdog said, and whether it has said that the loop is held."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def holds(self, who: str = "") -> list[str]:
        """What was said while the loop was held; a slow machine may hold it elsewhere too."""
        return [line for line in self.lines if line.startswith(who) and " holds the e" in line]

    def held(self, who: str = "") -> list[str]:
        """What was said afterwards."""
        return [line for line in self.lines if line.startswith(who) and " held the e" in line]


@pytest.fixture
def heard(blockbuster):
    # A plugin of these tests sleeps on the loop on purpose.
    blockbuster.functions["time.sleep"].deactivate()
    handler = Heard()
    logger = logging.getLogger("yukta_rx.engine.watchdog")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
    blockbuster.functions["time.sleep"].activate()


def hold(heard: Heard) -> None:
    """Hold whatever thread this is until the watchdog has noticed once more."""
    before, end = len(heard.holds()), time.monotonic() + PATIENCE
    while True:
        if len(heard.holds()) > before or time.monotonic() > end:
            return
        time.sleep(0.005)


def plugins(heard: Heard) -> list[Any]:
    @processor("ASYNC_HOG")
    async def async_hog(msg, cfg, ctx):
        """Hold the loop in a coroutine, after it has been suspended."""
        await asyncio.sleep(0)
        hold(heard)
        return msg

    @processor("SYNC_HOG", blocking=False, pure=True)
    def sync_hog(msg, cfg, ctx):
        """Hold the loop in a plain function."""
        hold(heard)
        return msg

    @processor("TASK_HOG")
    async def task_hog(msg, cfg, ctx):
        """Hold the loop in a task beside the node."""

        async def work() -> None:
            hold(heard)

        await asyncio.wait((ctx.spawn(work(), "helper"),))
        return msg

    async def hold_at_open(cfg, ctx):
        hold(heard)

    @processor("OPEN_HOG", blocking=False, pure=True, open=hold_at_open)
    def open_hog(msg, cfg, ctx):
        """Hold the loop before the first message."""
        return msg

    @processor("THREAD_HOG")
    def thread_hog(msg, cfg, ctx):
        """Take long where it harms nobody."""
        time.sleep(2 * AMPLE)
        return msg

    return [async_hog, sync_hog, task_hog, open_hog, thread_hog]


def document(kind: str, workflow_id: str = "w", count: int = 1, **config: Any) -> dict[str, Any]:
    return {
        "workflowId": workflow_id,
        "nodes": [
            {"nodeId": "in", "type": "SEQUENCE_TRIGGER", "config": {"count": count}},
            {"nodeId": "hog", "type": kind, "config": config},
            {"nodeId": "out", "type": "COLLECT_TERMINAL"},
        ],
        "edges": [{"source": "in", "target": "hog"}, {"source": "hog", "target": "out"}],
    }


@pytest.fixture
def engine_of(heard):
    def make(limit: str = f"{LIMIT * 1000:.0f}ms") -> Engine:
        overrides = {"yukta.watchdog.limit": limit}
        return Engine(load_settings(environ={}, overrides=overrides), plugins=plugins(heard))

    return make


def watchers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "yukta watchdog"]


async def until(condition) -> None:
    """Wait for what another thread, or a later turn of the loop, brings about."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("kind", ["ASYNC_HOG", "SYNC_HOG", "TASK_HOG", "OPEN_HOG"])
async def test_case_47_the_watchdog_names_the_node_that_blocked_the_loop(engine_of, heard, kind):
    async with engine_of() as engine:
        run = await engine.start("s", document(kind))
        status = await run.wait(timeout=PATIENCE)
        name = f"node hog of run {run.execution_id} "
        await until(lambda: heard.held(name))

    [while_it_held] = heard.holds(name)
    assert status is TaskStatus.SUCCESS
    assert "at test_watchdog.py:" in while_it_held
    assert " in hold" in while_it_held
    assert len(heard.held(name)) == 1


async def test_the_line_that_holds_the_loop_is_named(engine_of, heard):
    async with engine_of() as engine:
        run = await engine.start("s", document("ASYNC_HOG"))
        await run.wait(timeout=PATIENCE)

    source, first = inspect.getsourcelines(hold)
    loop = range(first + source.index("    while True:\n"), first + len(source))
    assert any(f"test_watchdog.py:{line} in hold" in heard.holds("node hog")[0] for line in loop)


async def test_a_block_is_a_line_of_the_nodes_log(engine_of, heard):
    async with engine_of() as engine:
        run = await engine.start("s", document("SYNC_HOG"))
        await run.wait(timeout=PATIENCE)
        page = engine.logs.get(run.execution_id).read()

    [line] = [item for item in page.items if item["stream"] == "engine"]
    assert (line["nodeId"], line["level"]) == ("hog", "WARNING")
    assert line["line"].startswith("held the event loop for ")
    assert "at test_watchdog.py:" in line["line"]


async def test_every_block_is_told_once(engine_of, heard):
    async with engine_of() as engine:
        run = await engine.start("s", document("ASYNC_HOG", count=3))
        await run.wait(timeout=PATIENCE)
        await until(lambda: len(heard.held("node hog")) == 3)
        count = engine.meters.registry.get_sample_value(
            "yukta_loop_blocked_total", {"module": "ASYNC_HOG"}
        )
        lag = engine.meters.registry.get_sample_value("yukta_loop_lag")

    assert len(heard.holds("node hog")) == 3
    assert count == 3
    assert LIMIT <= lag < PATIENCE


async def test_a_run_beside_it_goes_on_unharmed(engine_of, heard):
    async with engine_of() as engine:
        beside = await engine.start("s", document("THREAD_HOG", "beside"))
        run = await engine.start("s", document("SYNC_HOG"))
        ended = [await run.wait(timeout=PATIENCE), await beside.wait(timeout=PATIENCE)]

    assert ended == [TaskStatus.SUCCESS] * 2
    assert {line.split(" holds")[0] for line in heard.holds("node")} == {
        f"node hog of run {run.execution_id}"
    }


async def test_a_node_of_a_run_below_another_is_named_with_its_own_run(engine_of, heard):
    async with engine_of() as engine:
        await engine.definitions.apply_session(
            {"sessionId": "s", "workflows": [document("ASYNC_HOG", "child")]}
        )
        run = await engine.start("s", document("SUB_WORKFLOW", workflowId="child"))
        await run.wait(timeout=PATIENCE)
        [child] = engine.gateway.detail(run.execution_id, ("children",))["children"]

    assert [line.split()[4] for line in heard.holds("node")] == [child]


async def test_what_is_no_node_is_named_by_its_task(heard):
    async def work() -> None:
        hold(heard)

    async with Watchdog(LIMIT, lambda: ()):
        async with asyncio.TaskGroup() as group:
            group.create_task(work(), name="some work")
        await until(lambda: heard.held("the task `some work`"))

    assert len(heard.holds("the task `some work`")) == 1


async def test_what_is_no_task_is_called_a_callback(heard):
    async with Watchdog(LIMIT, lambda: ()):
        asyncio.get_running_loop().call_soon(hold, heard)
        await until(lambda: heard.held("a callback"))

    assert len(heard.holds("a callback")) == 1


async def test_a_stage_of_no_run_is_named_too(heard):
    def steps():
        hold(heard)
        yield 1

    async with Watchdog(LIMIT, lambda: ()):
        circuit = Circuit([from_iterable(steps(), name="steps")])
        circuit.start()
        await circuit.done
        await until(lambda: heard.held("the stage `steps`"))

    assert len(heard.holds("the stage `steps`")) == 1


async def test_an_idle_loop_raises_no_alarm(heard):
    async with Watchdog(AMPLE, lambda: ()) as watchdog:
        answers = set()
        await until(lambda: answers.add(watchdog._answered) or len(answers) > 10)

    assert heard.lines == []
    assert 0 < watchdog.lag < AMPLE


async def test_a_pool_thread_that_takes_long_raises_no_alarm(engine_of, heard):
    async with engine_of(f"{AMPLE * 1000:.0f}ms") as engine:
        run = await engine.start("s", document("THREAD_HOG"))
        await run.wait(timeout=PATIENCE)

    assert heard.holds("node") == []


async def test_no_thread_is_left(engine_of):
    async with engine_of():
        during = watchers()
    for thread in during:
        await asyncio.to_thread(thread.join, PATIENCE)

    assert len(during) == 1
    assert watchers() == []


async def test_a_limit_of_zero_watches_nothing(engine_of, heard):
    async with engine_of("0") as engine:
        run = await engine.start("s", document("THREAD_HOG"))
        await run.wait(timeout=PATIENCE)
        lag = engine.meters.registry.get_sample_value("yukta_loop_lag")
        found = watchers()

    assert found == []
    assert lag is None


@virtual_time
async def test_a_loop_in_virtual_time_is_not_watched():
    async with Engine():
        found = watchers()

    assert found == []


def test_a_loop_that_is_closed_under_it_ends_the_thread():
    watchdog = Watchdog(LIMIT, lambda: ())
    loop = asyncio.new_event_loop()
    loop.run_until_complete(watchdog.__aenter__())
    [thread] = watchers()
    loop.close()
    thread.join(PATIENCE)

    assert not thread.is_alive()


def test_the_lag_that_is_shown_is_that_of_the_last_windows():
    lag = _Lag()
    lag.add(100.0, 2.0)
    lag.add(101.0, 0.1)

    assert lag.read(101.0 + WINDOW / 2) == 2.0
    lag.add(101.0 + WINDOW, 0.3)
    assert lag.read(102.0 + WINDOW) == 2.0
    assert lag.read(102.0 + 2 * WINDOW) == 0.3
    assert lag.read(102.0 + 9 * WINDOW) == 0.0
