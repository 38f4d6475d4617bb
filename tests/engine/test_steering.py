"""Steering a live run: pause, resume, step, and the three strengths of stop."""

import asyncio
import threading

import pytest

from yukta_rx.errors import NotFoundError
from yukta_rx.model.status import TaskStatus
from yukta_rx.plugins.contract import processor
from yukta_rx.streams import StopMode
from yukta_rx.testing.clock import virtual_time

FAST = ("SEQUENCE_TRIGGER", {"count": 10_000})
PACED = ("SEQUENCE_TRIGGER", {"count": 10, "intervalMs": 1000})


async def settle():
    """Let everything happen that needs no time to pass."""
    await asyncio.sleep(1e-6)


@pytest.mark.feature("CTL-02")
@virtual_time
async def test_case_20_a_paused_node_loses_nothing_and_paces_its_producer(world):
    run = world.run({"in": FAST, "mid": "PASS", "out": "COLLECT_TERMINAL"}, "in > mid > out")
    run.pause("mid")
    task = asyncio.ensure_future(run.execute())
    await settle()

    held = run.snapshot()
    run.resume("mid")
    outcome = await task

    states = {node["nodeId"]: node for node in held["nodes"]}
    assert states["in"]["out"] == 64, "the producer stops when the edge is full"
    assert states["mid"]["in"] == 0
    assert states["mid"]["paused"] is True
    assert held["edges"][0]["waiting"] == 64
    assert [payload["n"] for payload in world.payloads()] == list(range(10_000))
    assert outcome.totals["dropped"] == 0


@pytest.mark.feature("CTL-02")
@virtual_time
async def test_step_lets_exactly_n_messages_through_one_node(world):
    run = world.run({"in": FAST, "mid": "PASS", "out": "COLLECT_TERMINAL"}, "in > mid > out")
    run.pause("mid")
    task = asyncio.ensure_future(run.execute())
    await settle()
    seen = []

    for n in (1, 2, 30):
        run.step(n, "mid")
        await settle()
        seen.append(len(world.payloads()))
    run.resume("mid")
    await task

    assert seen == [1, 3, 33]


@pytest.mark.feature("CTL-02")
@virtual_time
async def test_a_run_in_step_mode_moves_only_when_stepped(world):
    run = world.run(
        {"in": FAST, "mid": "PASS", "out": "COLLECT_TERMINAL"}, "in > mid > out", step_mode=True
    )
    task = asyncio.ensure_future(run.execute())
    await settle()
    before = len(world.payloads())

    run.step(2)
    await settle()
    after = len(world.payloads())
    run.resume()
    await task

    assert (before, after) == (0, 2)
    assert len(world.payloads()) == 10_000


@pytest.mark.feature("CTL-02")
@virtual_time
async def test_case_18_a_message_inside_a_paused_node_finishes_once_and_the_run_never_fails(world):
    calls = []

    @processor("SLOW")
    async def slow(msg, cfg, ctx):
        calls.append(msg.payload["n"])
        await asyncio.sleep(5)
        return msg

    run = world.run(
        {"in": ("SEQUENCE_TRIGGER", {"count": 3}), "mid": "SLOW", "out": "COLLECT_TERMINAL"},
        "in > mid > out",
        slow,
    )
    task = asyncio.ensure_future(run.execute())
    await asyncio.sleep(2)
    run.pause("mid")
    await asyncio.sleep(100)
    during = (list(calls), len(world.payloads()))
    run.resume("mid")
    outcome = await task

    assert during == ([0], 1), "the message in the plugin finished, no other went in"
    assert calls == [0, 1, 2]
    assert outcome.status is TaskStatus.SUCCESS


@pytest.mark.feature("CTL-02")
@virtual_time
async def test_a_pause_holds_back_what_a_slow_trigger_gives_meanwhile(world):
    run = world.run({"in": PACED, "out": "COLLECT_TERMINAL"}, "in > out")
    task = asyncio.ensure_future(run.execute())
    await asyncio.sleep(2.5)
    run.pause()
    assert run.pause() is False, "it is paused already"
    await asyncio.sleep(600)
    held = len(world.payloads())
    assert run.resume() is True
    await task

    assert held == 3
    assert len(world.payloads()) == 10
    assert run.nodes["in"].rate() < 1


@pytest.mark.feature("CTL-02")
@virtual_time
async def test_resuming_a_run_resumes_nodes_that_were_paused_alone(world):
    run = world.run({"in": FAST, "mid": "PASS", "out": "COLLECT_TERMINAL"}, "in > mid > out")
    run.pause("mid")
    task = asyncio.ensure_future(run.execute())
    await settle()

    assert run.resume() is True

    assert (await task).status is TaskStatus.SUCCESS


@pytest.mark.feature("CTL-02")
@virtual_time
async def test_a_command_for_an_unknown_node_is_refused(world):
    run = world.run({"in": FAST, "out": "COLLECT_TERMINAL"}, "in > out")

    with pytest.raises(NotFoundError, match="has no node nowhere") as caught:
        run.pause("nowhere")

    assert caught.value.code == "node_not_found"
    await run.execute()


@pytest.mark.feature("CTL-03")
@virtual_time
async def test_drain_stops_the_triggers_and_lets_what_was_emitted_arrive(world):
    @processor("SLOW")
    async def slow(msg, cfg, ctx):
        await asyncio.sleep(0.1)
        return msg

    run = world.run({"in": FAST, "mid": "SLOW", "out": "COLLECT_TERMINAL"}, "in > mid > out", slow)
    asyncio.get_running_loop().call_later(1.05, run.stop)

    outcome = await run.execute()

    assert outcome.status is TaskStatus.STOPPED
    assert outcome.error is None
    assert {node["status"] for node in outcome.nodes.values()} == {"STOPPED"}
    assert outcome.totals["in"] == outcome.totals["out"] == len(world.payloads())
    assert outcome.totals["dropped"] == 0


@pytest.mark.feature("CTL-03")
@virtual_time
async def test_a_drain_resumes_what_was_paused(world):
    run = world.run({"in": FAST, "mid": "PASS", "out": "COLLECT_TERMINAL"}, "in > mid > out")
    run.pause("mid")
    task = asyncio.ensure_future(run.execute())
    await settle()

    run.stop(StopMode.DRAIN)
    outcome = await task

    assert outcome.status is TaskStatus.STOPPED
    assert len(world.payloads()) == 64


@pytest.mark.feature("CTL-03")
@virtual_time
async def test_a_drain_that_takes_too_long_is_cut_off(world):
    @processor("STUCK", default_timeout=None)
    async def stuck(msg, cfg, ctx):
        await asyncio.Event().wait()

    run = world.run(
        {"in": FAST, "mid": "STUCK", "out": "COLLECT_TERMINAL"}, "in > mid > out", stuck
    )
    asyncio.get_running_loop().call_later(1, run.stop)

    outcome = await run.execute()

    assert outcome.status is TaskStatus.STOPPED
    assert outcome.nodes["mid"]["status"] == "CANCELLED"
    assert outcome.seconds == pytest.approx(31)
    assert outcome.totals["dropped"] == 64, "what was under way is counted"


@pytest.mark.feature("CTL-03")
@virtual_time
async def test_a_run_that_finishes_by_itself_during_a_drain_keeps_its_own_end(world):
    run = world.run(
        {"in": ("SEQUENCE_TRIGGER", {"count": 3}), "mid": "BOOM", "out": "COLLECT_TERMINAL"},
        "in > mid > out",
    )
    run.pause("mid")
    task = asyncio.ensure_future(run.execute())
    await settle()

    run.stop(StopMode.DRAIN)
    outcome = await task

    assert outcome.status is TaskStatus.FAILURE


@pytest.mark.feature("CTL-03")
@virtual_time
async def test_cancel_cancels_the_calls_and_counts_what_is_dropped(world):
    cancelled = []

    @processor("SLOW")
    async def slow(msg, cfg, ctx):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(ctx.cancelled)
            raise

    run = world.run({"in": FAST, "mid": "SLOW", "out": "COLLECT_TERMINAL"}, "in > mid > out", slow)
    asyncio.get_running_loop().call_later(1, run.stop, StopMode.CANCEL)

    outcome = await run.execute()

    assert outcome.status is TaskStatus.CANCELLED
    assert cancelled == [True]
    assert outcome.seconds == pytest.approx(1)
    assert {node["status"] for node in outcome.nodes.values()} == {"CANCELLED"}
    assert outcome.totals["dropped"] > 0


@pytest.mark.feature("CTL-03")
@virtual_time
async def test_a_plugin_that_ignores_cancellation_is_left_behind_after_its_grace(world, caplog):
    release = asyncio.Event()

    @processor("DEAF")
    async def deaf(msg, cfg, ctx):
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    run = world.run({"in": FAST, "mid": "DEAF", "out": "COLLECT_TERMINAL"}, "in > mid > out", deaf)
    asyncio.get_running_loop().call_later(1, run.stop, StopMode.CANCEL)

    outcome = await run.execute()

    assert outcome.status is TaskStatus.CANCELLED
    assert outcome.seconds == pytest.approx(6)
    assert "ends without yukta node mid" in caplog.text
    release.set()
    await settle()


@pytest.mark.feature("CTL-03")
@virtual_time
async def test_kill_ends_the_run_at_once(world):
    run = world.run({"in": PACED, "out": "COLLECT_TERMINAL"}, "in > out")
    asyncio.get_running_loop().call_later(2.5, run.stop, StopMode.KILL)

    outcome = await run.execute()

    assert outcome.status is TaskStatus.CANCELLED
    assert outcome.seconds == pytest.approx(2.5)


@pytest.mark.feature("CTL-03")
@virtual_time
async def test_a_run_can_be_stopped_while_its_plugins_are_opened(world):
    async def long(cfg, ctx):
        await asyncio.sleep(1000)

    @processor("LATE", open=long, blocking=False)
    def late(msg, cfg, ctx):
        return msg

    run = world.run({"in": FAST, "mid": "LATE", "out": "COLLECT_TERMINAL"}, "in > mid > out", late)
    asyncio.get_running_loop().call_later(1, run.stop, StopMode.CANCEL)

    outcome = await run.execute()

    assert outcome.status is TaskStatus.CANCELLED
    assert outcome.seconds == pytest.approx(1)
    assert {node["status"] for node in outcome.nodes.values()} == {"CANCELLED"}


@pytest.mark.feature("CTL-03")
@virtual_time
async def test_a_blocking_call_does_not_hold_up_a_cancel(world):
    release = threading.Event()
    entered = asyncio.Event()
    loop = asyncio.get_running_loop()

    @processor("BLOCKS")
    def blocks(msg, cfg, ctx):
        loop.call_soon_threadsafe(entered.set)
        release.wait(20)

    run = world.run(
        {"in": FAST, "mid": "BLOCKS", "out": "COLLECT_TERMINAL"}, "in > mid > out", blocks
    )
    task = asyncio.ensure_future(run.execute())
    await entered.wait()

    run.stop(StopMode.CANCEL)
    outcome = await task
    release.set()

    assert outcome.status is TaskStatus.CANCELLED
    assert outcome.nodes["mid"]["status"] == "CANCELLED"


@pytest.mark.feature("CTL-03")
@virtual_time
async def test_a_drained_node_works_off_what_waits_and_the_run_goes_on(world):
    @processor("SLOW")
    async def slow(msg, cfg, ctx):
        await asyncio.sleep(0.1)
        return msg

    run = world.run(
        {"in": FAST, "slow": "SLOW", "a": "COLLECT_TERMINAL", "b": "COLLECT_TERMINAL"},
        "in > slow > a, in > b",
        slow,
    )
    asyncio.get_running_loop().call_later(1.05, run.stop_node, "slow")

    outcome = await run.execute()

    assert outcome.status is TaskStatus.SUCCESS
    assert outcome.nodes["slow"]["status"] == "STOPPED"
    assert outcome.nodes["a"]["status"] == "SUCCESS", "it saw a normal end"
    assert outcome.nodes["slow"]["in"] == len(world.payloads("a")) < 200
    assert len(world.payloads("b")) == 10_000
    assert outcome.totals["dropped"] == 0


@pytest.mark.feature("CTL-03")
@virtual_time
async def test_a_cancelled_node_shows_its_children_a_normal_end(world):
    @processor("STUCK", default_timeout=None)
    async def stuck(msg, cfg, ctx):
        await asyncio.Event().wait()

    run = world.run(
        {"in": FAST, "mid": "STUCK", "out": "COLLECT_TERMINAL"}, "in > mid > out", stuck
    )
    asyncio.get_running_loop().call_later(1, run.stop_node, "mid", StopMode.CANCEL)

    outcome = await run.execute()

    assert outcome.nodes["mid"]["status"] == "CANCELLED"
    assert outcome.nodes["out"]["status"] == "SUCCESS"
    assert outcome.status is TaskStatus.SUCCESS
    assert run.stop_node("mid") is False


@pytest.mark.feature("CTL-03")
@virtual_time
async def test_an_open_that_ignores_cancellation_is_left_behind_and_closed_later(world, caplog):
    release = asyncio.Event()
    said = []

    async def deaf(cfg, ctx):
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    @processor("DEAF", open=deaf, close=lambda cfg, ctx: said.append("closed"), blocking=False)
    def plugin(msg, cfg, ctx):
        return msg

    @processor("NEXT", open=lambda cfg, ctx: said.append("next opened"), blocking=False)
    def following(msg, cfg, ctx):
        return msg

    run = world.run(
        {"in": FAST, "mid": "DEAF", "next": "NEXT", "out": "COLLECT_TERMINAL"},
        "in > mid > next > out",
        plugin,
        following,
    )
    asyncio.get_running_loop().call_later(1, run.stop, StopMode.CANCEL)

    outcome = await run.execute()

    assert outcome.status is TaskStatus.CANCELLED
    assert outcome.seconds == pytest.approx(6)
    assert "the `open` of node mid" in caplog.text
    assert world.events[-1].type == "execution.finished"
    assert said == []
    release.set()
    await settle()
    assert said == ["closed"]


@virtual_time
@pytest.mark.parametrize("node_id", [None, "mid"])
async def test_a_step_of_no_messages_is_refused_and_changes_nothing(world, node_id):
    run = world.run({"in": FAST, "mid": "PASS", "out": "COLLECT_TERMINAL"}, "in > mid > out")

    with pytest.raises(ValueError, match="1 message or more, not 0"):
        run.step(0, node_id)

    assert not run.paused
    assert not any(node.paused for node in run.nodes.values())
