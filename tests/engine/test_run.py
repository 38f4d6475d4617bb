"""A run from its start to its end: statuses, verdicts, events, results."""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yukta_rx.errors import RunAbortedError
from yukta_rx.model.status import TaskStatus, advance
from yukta_rx.plugins.contract import processor, terminal, trigger
from yukta_rx.streams import StopMode
from yukta_rx.testing.clock import run_virtual, virtual_time

pytestmark = pytest.mark.feature("ENG-06")

SEQUENCE = ("SEQUENCE_TRIGGER", {"count": 100})


@virtual_time
async def test_a_run_streams_every_message_to_its_terminal(world):
    run = world.run({"in": SEQUENCE, "mid": "PASS", "out": "COLLECT_TERMINAL"}, "in > mid > out")

    outcome = await run.execute()

    assert outcome.status is TaskStatus.SUCCESS
    assert world.payloads("out") == [{"n": n} for n in range(100)]
    assert outcome.totals == {"in": 100, "out": 100, "failed": 0, "dropped": 0}
    assert outcome.error is None


@virtual_time
async def test_a_node_is_running_at_its_first_message_and_not_before(world):
    run = world.run(
        {"in": ("API_TRIGGER", {"splitPath": "items"}), "mid": "PASS", "out": "COLLECT_TERMINAL"},
        "in > mid > out",
        payload={"items": []},
    )

    outcome = await run.execute()

    assert world.statuses("in") == ["RUNNING", "SUCCESS"]
    assert world.statuses("mid") == ["SUCCESS"], "without a message it never ran, and succeeded"
    assert outcome.status is TaskStatus.SUCCESS
    assert "startTime" not in outcome.nodes["mid"]


@virtual_time
async def test_only_the_failing_node_shows_failure(world):
    run = world.run(
        {"in": SEQUENCE, "bad": "BOOM", "after": "PASS", "out": "COLLECT_TERMINAL"},
        "in > bad > after > out",
    )

    outcome = await run.execute()

    assert {name: node["status"] for name, node in outcome.nodes.items()} == {
        "in": "CANCELLED",
        "bad": "FAILURE",
        "after": "UPSTREAM_FAILED",
        "out": "UPSTREAM_FAILED",
    }
    assert outcome.status is TaskStatus.FAILURE
    assert outcome.error == {
        "code": "node_failed",
        "detail": "no luck with {'n': 0}",
        "nodeId": "bad",
    }
    assert outcome.nodes["bad"]["error"]["exception"] == "LookupError"
    assert outcome.nodes["bad"]["error"]["messageId"]


@virtual_time
async def test_the_first_failing_terminal_ends_the_run_and_cancels_the_other_branches(world):
    @terminal("PICKY", blocking=False)
    def picky(msg, cfg, ctx):
        if msg.payload["n"] == 3:
            raise RuntimeError("enough")

    run = world.run(
        {"in": ("SEQUENCE_TRIGGER", {"count": 0}), "a": "PICKY", "b": "COLLECT_TERMINAL"},
        "in > a, in > b",
        picky,
    )

    outcome = await run.execute()

    assert outcome.status is TaskStatus.FAILURE
    assert outcome.nodes["a"]["status"] == "FAILURE"
    assert outcome.nodes["b"]["status"] == "CANCELLED"
    assert outcome.nodes["in"]["status"] == "CANCELLED"


@virtual_time
async def test_a_processor_without_children_that_fails_fails_the_run(world):
    run = world.run(
        {"in": SEQUENCE, "bad": "BOOM", "out": "COLLECT_TERMINAL"}, "in > bad, in > out"
    )

    outcome = await run.execute()

    assert outcome.status is TaskStatus.FAILURE
    assert outcome.error["nodeId"] == "bad"


@virtual_time
async def test_an_aborting_plugin_ends_the_whole_run(world):
    @processor("ABORT", blocking=False)
    def abort(msg, cfg, ctx):
        raise RunAbortedError("budget is used up")

    run = world.run(
        {"in": SEQUENCE, "stop": "ABORT", "out": "COLLECT_TERMINAL"}, "in > stop > out", abort
    )

    outcome = await run.execute()

    assert outcome.status is TaskStatus.FAILURE
    assert outcome.error == {
        "code": "run_aborted",
        "detail": "budget is used up",
        "nodeId": "stop",
    }


@pytest.mark.feature("ENG-05")
@virtual_time
async def test_the_run_deadline_ends_a_run_that_is_active_for_too_long(world):
    run = world.run(
        {"in": ("SEQUENCE_TRIGGER", {"count": 0, "intervalMs": 1000}), "out": "COLLECT_TERMINAL"},
        "in > out",
        timeout=3600,
    )

    outcome = await run.execute()

    assert outcome.status is TaskStatus.TIMED_OUT
    assert outcome.error["code"] == "deadline_exceeded"
    assert "3600 s" in outcome.error["detail"]
    assert outcome.seconds == pytest.approx(3600)


@pytest.mark.feature("ENG-05")
@virtual_time
async def test_a_pause_does_not_use_up_the_run_deadline(world):
    run = world.run(
        {"in": ("SEQUENCE_TRIGGER", {"count": 5, "intervalMs": 1000}), "out": "COLLECT_TERMINAL"},
        "in > out",
        timeout=10,
    )
    loop = asyncio.get_running_loop()
    loop.call_later(2.5, run.pause)
    loop.call_later(1000, run.resume)

    outcome = await run.execute()

    assert outcome.status is TaskStatus.SUCCESS
    assert outcome.seconds == pytest.approx(1000 - 2.5 + 4)


@virtual_time
async def test_a_cancelling_caller_ends_the_run_cancelled(world):
    run = world.run(
        {"in": ("SEQUENCE_TRIGGER", {"count": 0, "intervalMs": 1}), "out": "NULL_TERMINAL"},
        "in > out",
    )
    caller = asyncio.ensure_future(run.execute())
    await asyncio.sleep(0.0105)

    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller

    assert run.status is TaskStatus.CANCELLED
    assert [event.type for event in world.events].count("execution.finished") == 1
    assert all(node.status.terminal for node in run.nodes.values())


@virtual_time
async def test_events_come_in_order_and_end_exactly_once(world):
    run = world.run({"in": SEQUENCE, "out": "COLLECT_TERMINAL"}, "in > out")

    await run.execute()

    kinds = [event.type for event in world.events]
    assert kinds[:2] == ["execution.started", "execution.status"]
    assert kinds[-2:] == ["execution.status", "execution.finished"]
    assert kinds.count("execution.finished") == 1
    assert world.events[0].data == {"definitionVersion": run.definition.version}
    versions = [e.data["version"] for e in world.events if e.type == "execution.status"]
    assert versions == [1, 2]


@pytest.mark.feature("OBS-03")
@virtual_time
async def test_results_end_with_every_terminal_and_then_the_run(world):
    run = world.run(
        {"in": SEQUENCE, "a": "COLLECT_TERMINAL", "b": "NULL_TERMINAL"}, "in > a, in > b"
    )

    await run.execute()

    assert [item.cursor for item in world.results] == list(range(1, len(world.results) + 1))
    assert world.results[-1].type == "EXECUTION_END"
    assert world.results[-1].status is TaskStatus.SUCCESS
    ends = {item.node_id: item.totals for item in world.results if item.type == "NODE_END"}
    assert ends["a"]["in"] == ends["b"]["in"] == 100
    assert world.payloads("b") == [], "NULL_TERMINAL counts and discards"


@virtual_time
async def test_a_run_can_be_executed_once(world):
    run = world.run({"in": SEQUENCE, "out": "COLLECT_TERMINAL"}, "in > out")
    await run.execute()

    with pytest.raises(RuntimeError, match="started before"):
        await run.execute()


@virtual_time
async def test_members_of_the_engine_are_left_out_of_what_a_trigger_emits(world):
    run = world.run(
        {"in": "API_TRIGGER", "out": "COLLECT_TERMINAL"},
        "in > out",
        payload={"a": 1, "yukta.priority": 5},
    )

    await run.execute()

    assert world.payloads() == [{"a": 1}]


@virtual_time
async def test_a_plugin_that_cannot_be_opened_fails_its_node_and_the_others_are_closed(world):
    closed = []

    def refuse(cfg, ctx):
        raise OSError("no such device")

    @processor("SHUT", blocking=False, open=refuse, close=lambda cfg, ctx: closed.append("SHUT"))
    def shut(msg, cfg, ctx):
        return msg

    @processor(
        "OPEN",
        blocking=False,
        open=lambda cfg, ctx: closed.append("opened"),
        close=lambda cfg, ctx: closed.append(ctx.node_id),
    )
    def opened(msg, cfg, ctx):
        return msg

    run = world.run(
        {"in": SEQUENCE, "one": "OPEN", "two": "SHUT", "out": "COLLECT_TERMINAL"},
        "in > one > two > out",
        shut,
        opened,
    )

    outcome = await run.execute()

    assert outcome.nodes["two"]["status"] == "FAILURE"
    assert outcome.error["detail"] == "no such device"
    assert closed == ["opened", "SHUT", "one"]


@virtual_time
async def test_a_plugin_that_hangs_while_closing_holds_the_run_up_only_for_its_grace(world):
    async def never(cfg, ctx):
        await asyncio.Event().wait()

    @processor("CLINGY", blocking=False, close=never)
    def clingy(msg, cfg, ctx):
        return msg

    run = world.run(
        {"in": SEQUENCE, "mid": "CLINGY", "out": "COLLECT_TERMINAL"}, "in > mid > out", clingy
    )

    outcome = await run.execute()

    assert outcome.status is TaskStatus.SUCCESS
    assert outcome.seconds == pytest.approx(5)


@virtual_time
async def test_a_close_that_ignores_cancellation_is_left_behind(world, caplog):
    release = asyncio.Event()
    closed = []

    async def deaf(cfg, ctx):
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    @processor("FIRST", blocking=False, close=lambda cfg, ctx: closed.append("first"))
    def first(msg, cfg, ctx):
        return msg

    @processor("DEAF", blocking=False, close=deaf)
    def plugin(msg, cfg, ctx):
        return msg

    run = world.run(
        {"in": SEQUENCE, "first": "FIRST", "mid": "DEAF", "out": "COLLECT_TERMINAL"},
        "in > first > mid > out",
        first,
        plugin,
    )

    outcome = await run.execute()

    assert outcome.status is TaskStatus.SUCCESS
    assert outcome.seconds == pytest.approx(10)
    assert closed == ["first"]
    assert "node mid is left behind" in caplog.text
    release.set()
    await asyncio.sleep(1)


@virtual_time
async def test_a_run_cancelled_again_while_it_closes_still_says_its_end(world):
    async def never(cfg, ctx):
        await asyncio.Event().wait()

    @processor("CLINGY", blocking=False, close=never)
    def clingy(msg, cfg, ctx):
        return msg

    run = world.run(
        {"in": SEQUENCE, "mid": "CLINGY", "out": "COLLECT_TERMINAL"}, "in > mid > out", clingy
    )
    async with asyncio.TaskGroup() as group:
        execution = group.create_task(run.execute())
        asyncio.get_running_loop().call_later(1, execution.cancel)

    assert execution.cancelled()
    assert run.status.terminal
    assert world.events[-1].type == "execution.finished"


@virtual_time
async def test_a_trigger_that_raises_fails_the_run_after_what_it_emitted(world):
    @trigger("FRAIL", blocking=False)
    def frail(cfg, ctx):
        yield 1
        yield 2
        raise ConnectionError("gone")

    run = world.run({"in": "FRAIL", "out": "COLLECT_TERMINAL"}, "in > out", frail)

    outcome = await run.execute()

    assert outcome.status is TaskStatus.FAILURE
    assert outcome.nodes["in"]["status"] == "FAILURE"
    assert outcome.nodes["in"]["out"] == 2


@virtual_time
async def test_a_snapshot_shows_nodes_and_edges_while_the_run_goes_on(world):
    run = world.run(
        {"in": ("SEQUENCE_TRIGGER", {"count": 3, "intervalMs": 10}), "out": "COLLECT_TERMINAL"},
        "in > out",
    )
    seen = []
    asyncio.get_running_loop().call_later(0.015, lambda: seen.append(run.snapshot()))

    await run.execute()
    last = run.snapshot()

    assert seen[0]["execution"]["status"] == "RUNNING"
    [edge] = seen[0]["edges"]
    assert (edge["source"], edge["target"], edge["passed"], edge["waiting"]) == ("in", "out", 2, 0)
    assert [node["in"] for node in last["nodes"]] == [0, 3]
    assert last["version"] == seen[0]["version"] + 1
    assert last["execution"]["durationMs"] == 20


@given(st.lists(st.sampled_from(list(TaskStatus)), max_size=20))
def test_a_status_only_moves_forward_whatever_the_order_of_events(reports):
    shown = [TaskStatus.PENDING]
    for report in reports:
        shown.append(advance(shown[-1], report))

    ranks = [status.rank for status in shown]
    assert ranks == sorted(ranks)
    terminal_seen = [status for status in shown if status.terminal]
    assert len(set(terminal_seen)) <= 1


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    commands=st.lists(
        st.tuples(
            st.sampled_from(["pause", "resume", "step", "drain", "cancel", "kill"]),
            st.sampled_from([None, "in", "mid", "out"]),
            st.floats(0, 0.3),
        ),
        max_size=12,
    )
)
def test_any_order_of_commands_moves_every_status_forward_and_ends_the_run(new_world, commands):
    world = new_world()

    async def main():
        run = world.run(
            {
                "in": ("SEQUENCE_TRIGGER", {"count": 20, "intervalMs": 10}),
                "mid": "PASS",
                "out": "COLLECT_TERMINAL",
            },
            "in > mid > out",
        )
        loop = asyncio.get_running_loop()
        for name, node, when in commands:
            if name in ("pause", "resume"):
                loop.call_later(when, getattr(run, name), node)
            elif name == "step":
                loop.call_later(when, run.step, 1, node)
            else:
                loop.call_later(when, run.stop, StopMode[name.upper()])
        # Whatever was paused goes on in the end.
        loop.call_later(1, run.resume)
        return await run.execute()

    outcome = run_virtual(main())

    order = {"PENDING": 0, "QUEUED": 1, "RUNNING": 2}
    for node in ("in", "mid", "out"):
        ranks = [order.get(status, 3) for status in world.statuses(node)]
        assert ranks == sorted(set(ranks))
        assert ranks[-1] == 3
    assert outcome.status in (TaskStatus.SUCCESS, TaskStatus.STOPPED, TaskStatus.CANCELLED)
    numbers = [payload["n"] for payload in world.payloads()]
    assert numbers == sorted(numbers)
    if outcome.status is TaskStatus.SUCCESS:
        assert numbers == list(range(20))


@pytest.mark.feature("ENG-03")
@virtual_time
async def test_a_join_fails_as_soon_as_one_parent_fails_and_cancels_the_others(world):
    @processor("SLOW")
    async def slow(msg, cfg, ctx):
        await asyncio.sleep(1)
        return msg

    run = world.run(
        {"in": SEQUENCE, "bad": "BOOM", "slow": "SLOW", "join": "PASS", "out": "COLLECT_TERMINAL"},
        "in > bad > join, in > slow > join > out",
        slow,
    )

    outcome = await run.execute()

    assert outcome.nodes["join"]["status"] == "UPSTREAM_FAILED"
    assert outcome.nodes["slow"]["status"] == "CANCELLED"
    assert outcome.error["nodeId"] == "bad"
    assert outcome.seconds == 0


@virtual_time
async def test_an_edge_says_how_long_it_held_up_its_producer_and_who_paces_it(world):
    @processor("SLOW")
    async def slow(msg, cfg, ctx):
        await asyncio.sleep(1)
        return msg

    run = world.run(
        {"in": SEQUENCE, "slow": "SLOW", "out": "COLLECT_TERMINAL"}, "in > slow > out", slow
    )
    seen = []
    asyncio.get_running_loop().call_later(10.5, lambda: seen.append(run.snapshot()["edges"]))

    await run.execute()
    fast, free = run.snapshot()["edges"]

    assert seen[0][0]["pacedBy"] == "slow"
    assert seen[0][0]["blockedMs"] == 10_500
    assert 10_500 < fast["blockedMs"] < 100_000
    assert free["blockedMs"] == 0


@virtual_time
async def test_with_finish_others_the_other_branches_go_on_and_the_run_fails_at_its_end(world):
    @terminal("PICKY", blocking=False)
    def picky(msg, cfg, ctx):
        if msg.payload["n"] == 3:
            raise RuntimeError("enough")

    run = world.run(
        {"in": SEQUENCE, "a": "PICKY", "b": "COLLECT_TERMINAL"},
        "in > a, in > b",
        picky,
        workflow_options={"onTerminalFailure": "FINISH_OTHERS"},
    )

    outcome = await run.execute()

    assert outcome.nodes["a"]["status"] == "FAILURE"
    assert outcome.nodes["b"]["status"] == "SUCCESS"
    assert len(world.payloads("b")) == 100
    assert outcome.status is TaskStatus.FAILURE
    assert outcome.error == {"code": "node_failed", "detail": "enough", "nodeId": "a"}


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_rates_are_those_of_late_and_not_the_average_of_a_whole_run(world):
    run = world.run(
        {"in": ("SEQUENCE_TRIGGER", {"count": 300, "intervalMs": 100}), "out": "NULL_TERMINAL"},
        "in > out",
    )
    seen = []

    def look():
        shown = run.snapshot()
        seen.append((shown["nodes"][1]["ratePerSec"], shown["edges"][0]["ratePerSec"]))

    loop = asyncio.get_running_loop()
    for when in (4.05, 5.05, 6.05):
        loop.call_later(when, look)
    loop.call_later(6.06, run.pause)
    for when in (106, 107, 108):
        loop.call_later(when, look)
    loop.call_later(109, run.resume)

    outcome = await run.execute()

    assert seen[1] == seen[2] == (10.0, 10.0)
    assert seen[-1] == (0.0, 0.0), "nothing has moved lately"
    assert outcome.nodes["out"]["ratePerSec"] == pytest.approx(300 / outcome.seconds, abs=0.1)
