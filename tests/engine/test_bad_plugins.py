"""Plugins that raise, hang, return rubbish or leak: each ends its node, never the process."""

import asyncio
import gc
import threading

import pytest
import reactivex
from reactivex import Observable

from yukta_rx.model.status import TaskStatus
from yukta_rx.plugins.contract import ProcessorPlugin, processor, to_port, trigger
from yukta_rx.testing.clock import virtual_time

pytestmark = pytest.mark.feature("EXT-01")

SEQUENCE = ("SEQUENCE_TRIGGER", {"count": 100})


async def run_with(world, plugin, **options):
    """The outcome of a run whose middle node is `plugin`."""
    nodes = {"in": SEQUENCE, "mid": plugin.spec.type, "out": "COLLECT_TERMINAL"}
    return await world.run(nodes, "in > mid > out", plugin, **options).execute()


@processor("RETURNS_COROUTINE", blocking=False)
def returns_coroutine(msg, cfg, ctx):
    """Forgot to await."""
    return asyncio.sleep(0)


@processor("RETURNS_ITERATOR", blocking=False)
def returns_iterator(msg, cfg, ctx):
    """Meant several messages."""
    return iter([1, 2])


@processor("UNKNOWN_PORT", blocking=False)
def unknown_port(msg, cfg, ctx):
    """Sends to a port that it did not declare."""
    return to_port("nowhere", 1)


@processor("EARLY")
class Early(ProcessorPlugin):
    """Emits before it took anything."""

    async def transform(self, stream, cfg, ctx):
        yield 1


@processor("NOT_A_STREAM")
class NotAStream(ProcessorPlugin):
    """Returns a plain number."""

    def transform(self, stream, cfg, ctx):
        return 42


@processor("RETURNS_OBSERVABLE", blocking=False)
def returns_observable(msg, cfg, ctx):
    """Forgot the annotation."""
    return reactivex.of(1)


@processor("LIES", blocking=False)
def lies(msg, cfg, ctx) -> Observable:
    """Says that it returns an Observable."""
    return 42


@pytest.mark.parametrize(
    ("plugin", "words"),
    [
        (returns_observable, "annotate the function's return type"),
        (lies, "returned int, expected an Observable"),
        (returns_coroutine, "declare the function `async def`"),
        (returns_iterator, "write the function as a generator"),
        (unknown_port, "sent to port `nowhere`, but declares none"),
        (Early, "emitted before it took a message"),
        (NotAStream, "returned int, expected an async iterator"),
    ],
    ids=lambda value: value.spec.type if hasattr(value, "spec") else None,
)
@virtual_time
async def test_rubbish_ends_the_node_with_an_error_that_says_what_would_be_right(
    world, plugin, words
):
    outcome = await run_with(world, plugin)

    assert outcome.status is TaskStatus.FAILURE
    assert outcome.error["code"] == "plugin_contract"
    assert outcome.error["nodeId"] == "mid"
    assert words in outcome.error["detail"]


@virtual_time
async def test_a_trigger_that_gives_no_source_fails_its_node(world):
    @trigger("NOTHING", blocking=False)
    def nothing(cfg, ctx):
        return {"not": "a source"}

    run = world.run({"in": "NOTHING", "out": "COLLECT_TERMINAL"}, "in > out", nothing)

    outcome = await run.execute()

    assert outcome.nodes["in"]["status"] == "FAILURE"
    assert "expected an iterator" in outcome.error["detail"]


@pytest.mark.feature("ENG-05")
@virtual_time
async def test_an_async_plugin_that_hangs_times_out_and_is_cancelled(world):
    cancelled = []

    @processor("HANGS")
    async def hangs(msg, cfg, ctx):
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(True)

    outcome = await run_with(world, hangs)

    assert outcome.nodes["mid"]["status"] == "TIMED_OUT"
    assert outcome.status is TaskStatus.FAILURE
    assert outcome.error["code"] == "idle_timeout"
    assert 30 <= outcome.seconds <= 37.5
    assert cancelled == [True]


@pytest.mark.feature("ENG-05")
@virtual_time
async def test_a_blocking_plugin_that_hangs_times_out_while_virtual_time_waits_for_its_thread(
    world,
):
    # The call lasts longer than its limit of virtual seconds, which only pass when it is back.
    @processor("NAPS", default_timeout=None)
    def naps(msg, cfg, ctx):
        return msg

    outcome = await run_with(world, naps)

    assert outcome.status is TaskStatus.SUCCESS


@pytest.mark.feature("ENG-05")
async def test_a_blocking_plugin_that_hangs_is_abandoned_in_real_time(world):
    release = threading.Event()

    @processor("HANGS")
    def hangs(msg, cfg, ctx):
        release.wait(20)

    nodes = {"in": SEQUENCE, "mid": ("HANGS", {}, 0.05), "out": "COLLECT_TERMINAL"}
    outcome = await world.run(nodes, "in > mid > out", hangs).execute()
    release.set()

    assert outcome.nodes["mid"]["status"] == "TIMED_OUT"


@pytest.mark.feature("ENG-05")
@virtual_time
async def test_heartbeats_keep_silent_work_alive(world):
    @processor("WORKS")
    async def works(msg, cfg, ctx):
        for _ in range(10):
            await asyncio.sleep(20)
            ctx.heartbeat()
        return msg

    nodes = {
        "in": ("SEQUENCE_TRIGGER", {"count": 1}),
        "mid": "WORKS",
        "out": "COLLECT_TERMINAL",
    }
    outcome = await world.run(nodes, "in > mid > out", works).execute()

    assert outcome.status is TaskStatus.SUCCESS
    assert outcome.seconds == pytest.approx(200)


@pytest.mark.feature("ENG-05")
@virtual_time
async def test_a_node_that_waits_for_its_parent_or_its_child_is_not_silent(world):
    @processor("QUICK")
    async def quick(msg, cfg, ctx):
        return msg

    @processor("SLOW", default_timeout=None)
    async def slow(msg, cfg, ctx):
        await asyncio.sleep(100)
        return msg

    nodes = {
        "in": ("SEQUENCE_TRIGGER", {"count": 3, "intervalMs": 500_000}),
        "before": "QUICK",
        "slow": "SLOW",
        "after": "QUICK",
        "out": "COLLECT_TERMINAL",
    }
    outcome = await world.run(
        nodes, "in > before > slow > after > out", quick, slow, timeout=None
    ).execute()

    assert outcome.status is TaskStatus.SUCCESS


@pytest.mark.feature("ENG-05")
@virtual_time
async def test_case_19_a_pause_stops_the_idle_clock_too(world):
    @processor("SLOW")
    async def slow(msg, cfg, ctx):
        await ctx.clock.sleep(20)
        return msg

    nodes = {
        "in": ("SEQUENCE_TRIGGER", {"count": 1}),
        "mid": ("SLOW", {}, 25),
        "out": "COLLECT_TERMINAL",
    }
    run = world.run(nodes, "in > mid > out", slow)
    loop = asyncio.get_running_loop()
    loop.call_later(10, run.pause)
    loop.call_later(1000, run.resume)

    outcome = await run.execute()

    assert outcome.status is TaskStatus.SUCCESS
    assert outcome.seconds == pytest.approx(1010)


@pytest.mark.feature("ENG-05")
@virtual_time
async def test_a_timeout_that_is_an_expression_is_known_at_the_first_message(world):
    @processor("HANGS")
    async def hangs(msg, cfg, ctx):
        await asyncio.Event().wait()

    nodes = {
        "in": ("API_TRIGGER", {}),
        "mid": ("HANGS", {}, "${payload.secs:int}"),
        "out": "COLLECT_TERMINAL",
    }
    outcome = await world.run(nodes, "in > mid > out", hangs, payload={"secs": 4}).execute()

    assert outcome.nodes["mid"]["status"] == "TIMED_OUT"
    assert 4 <= outcome.seconds <= 5


@pytest.mark.feature("ENG-05")
@virtual_time
async def test_a_timeout_of_0_means_none(world):
    @processor("HANGS")
    async def hangs(msg, cfg, ctx):
        await asyncio.Event().wait()

    nodes = {"in": SEQUENCE, "mid": ("HANGS", {}, 0), "out": "COLLECT_TERMINAL"}
    outcome = await world.run(nodes, "in > mid > out", hangs).execute()

    assert outcome.status is TaskStatus.TIMED_OUT, "only the run deadline ended it"
    assert outcome.seconds == pytest.approx(3600)


@pytest.mark.feature("ENG-05")
@virtual_time
async def test_a_trigger_with_a_limit_times_out_while_there_is_unmet_demand(world):
    @trigger("SILENT", default_timeout=10)
    async def silent(cfg, ctx):
        yield 1
        await asyncio.Event().wait()

    run = world.run({"in": "SILENT", "out": "COLLECT_TERMINAL"}, "in > out", silent)

    outcome = await run.execute()

    assert outcome.nodes["in"]["status"] == "TIMED_OUT"
    assert 10 <= outcome.seconds <= 12.5


@pytest.mark.parametrize("error", [ValueError, StopIteration, asyncio.CancelledError, SystemError])
@pytest.mark.parametrize("blocking", [True, False])
@virtual_time
async def test_whatever_a_plugin_raises_ends_its_node_only(world, error, blocking):
    @processor("RAISES", blocking=blocking)
    def raises(msg, cfg, ctx):
        if msg.payload["n"] == 5:
            raise error("odd")
        return msg

    outcome = await run_with(world, raises)

    assert outcome.nodes["mid"]["status"] == "FAILURE"
    assert outcome.nodes["mid"]["out"] == 5, "what came before was emitted"
    assert outcome.nodes["mid"]["in"] == 6


@pytest.mark.parametrize("error", [asyncio.CancelledError, StopAsyncIteration, KeyError])
@virtual_time
async def test_whatever_a_coroutine_raises_ends_its_node_only(world, error):
    @processor("RAISES")
    async def raises(msg, cfg, ctx):
        raise error("odd")

    outcome = await run_with(world, raises)

    assert outcome.nodes["mid"]["status"] == "FAILURE"


@virtual_time
async def test_a_task_that_a_plugin_leaks_neither_holds_up_nor_fails_the_run(world):
    leaked = []

    @processor("LEAKS")
    async def leaks(msg, cfg, ctx):
        leaked.append(asyncio.ensure_future(asyncio.sleep(10_000)))
        return msg

    outcome = await run_with(world, leaks)

    assert outcome.status is TaskStatus.SUCCESS
    assert outcome.seconds == 0
    assert len(leaked) == 100
    for task in leaked:
        task.cancel()


@virtual_time
async def test_case_59_collecting_garbage_during_a_run_loses_no_task(world):
    @processor("GC")
    async def collects(msg, cfg, ctx):
        await asyncio.sleep(0)
        if msg.payload["n"] % 10 == 0:
            gc.collect()
        return msg

    outcome = await run_with(world, collects)

    assert outcome.status is TaskStatus.SUCCESS
    assert len(world.payloads()) == 100


@virtual_time
async def test_after_a_run_no_task_of_its_own_is_left(world):
    @processor("SLOW")
    async def slow(msg, cfg, ctx):
        await asyncio.sleep(0.01)
        return msg

    await run_with(world, slow)

    assert asyncio.all_tasks() == {asyncio.current_task()}
