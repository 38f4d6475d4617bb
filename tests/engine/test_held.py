"""The message that a breakpoint holds: looked at, let go, dropped, edited, never left behind."""

import asyncio

import pytest

from yukta_rx.engine import held
from yukta_rx.engine.breakpoints import Breakpoint
from yukta_rx.errors import ConflictError, UnserialisablePayloadError
from yukta_rx.model.status import TaskStatus
from yukta_rx.plugins.contract import processor
from yukta_rx.streams.circuit import StopMode
from yukta_rx.testing.clock import virtual_time

pytestmark = pytest.mark.feature("CTL-02")

NODES = {"in": ("SEQUENCE_TRIGGER", {"count": 30}), "mid": "PASS", "out": "COLLECT_TERMINAL"}
CASE_17 = {"in": NODES["in"], "a": "PASS", "b": "PASS", "out": "COLLECT_TERMINAL"}


async def settle():
    """Let everything happen that needs no time to pass."""
    await asyncio.sleep(1e-6)


def numbers(world, node_id=None):
    return [payload["n"] for payload in world.payloads(node_id)]


async def at_breakpoint(world, *whens, node_id="mid", nodes=NODES, edges="in > mid > out"):
    """A run whose node `node_id` holds a message; the run, its node, and its end."""
    run = world.run(nodes, edges)
    for when in whens:
        run.node(node_id).set_breakpoint(Breakpoint(when=when))
    task = asyncio.ensure_future(run.execute())
    await settle()
    assert run.node(node_id).valve.holds
    return run, run.node(node_id), task


@pytest.mark.parametrize("node_id", ["mid", "out"])
@virtual_time
async def test_what_is_held_can_be_looked_at(node_id, world):
    run, node, task = await at_breakpoint(world, "payload.n == 7", node_id=node_id)

    shown = held.held_message(node)
    run.resume()
    await task

    assert shown["payload"] == {"n": 7}
    assert shown["headers"] == {}
    assert len(shown["id"]) == 32
    assert shown["since"].endswith("Z")
    assert held.held_message(node) is None


@virtual_time
async def test_a_node_that_only_its_breakpoint_paused_goes_on_and_holds_the_next(world):
    _, node, task = await at_breakpoint(world, "payload.n % 10 == 5")

    seen = []
    for _ in range(3):
        seen.append((numbers(world), node.paused))
        held.release(node)
        assert not node.paused
        await settle()
    await task

    assert seen == [(list(range(n)), True) for n in (5, 15, 25)]
    assert numbers(world) == list(range(30))


@pytest.mark.parametrize("how", ["node", "run", "step"])
@virtual_time
async def test_a_node_that_is_paused_besides_lets_one_message_go_and_stays_paused(how, world):
    run, node, task = await at_breakpoint(world, "payload.n == 5", "payload.n == 8")
    taken = 6
    if how == "node":
        # It was paused by its breakpoint; from now on by the command too.
        assert (run.pause("mid"), run.pause("mid")) == (True, False)
    elif how == "run":
        run.pause()
    else:
        # It comes to the next match while it is stepped.
        run.step(5, "mid")
        await settle()
        taken = 9
    held.release(node)
    await settle()
    after = node.counters["in"], node.paused, node.valve.holds
    run.resume()
    await settle()
    if node.valve.holds:
        held.release(node)
    await task

    assert after == (taken, True, False)
    assert numbers(world) == list(range(30))


@virtual_time
async def test_a_dropped_message_is_counted_and_told_and_the_node_goes_on(world):
    run, node, task = await at_breakpoint(world, "payload.n == 5")
    message_id = held.held_message(node)["id"]

    held.drop(node)
    await settle()
    outcome = await task

    assert numbers(world) == [n for n in range(30) if n != 5]
    assert outcome.status is TaskStatus.SUCCESS
    assert (outcome.nodes["mid"]["dropped"], outcome.nodes["mid"]["in"]) == (1, 29)
    assert outcome.totals["dropped"] == 1
    [told] = [event for event in world.events if event.type == "edge.dropped"]
    assert told.node_id == "mid"
    assert told.data == {"count": 1, "sample": [message_id], "overflow": "DROP_HELD"}
    assert run.node("mid").breakpoints[0].hits == 1


@virtual_time
async def test_dropping_every_message_of_a_run_lets_it_end(world):
    run, node, task = await at_breakpoint(world, "true")

    for _ in range(30):
        held.drop(node)
        await settle()
    outcome = await task

    assert (numbers(world), outcome.status) == ([], TaskStatus.SUCCESS)
    assert run.totals()["dropped"] == 30


@virtual_time
async def test_a_dropped_message_of_a_paused_node_leaves_it_paused(world):
    run, node, task = await at_breakpoint(world, "payload.n == 5")
    run.pause("mid")

    held.drop(node)
    await settle()
    after = node.paused, numbers(world)
    run.resume("mid")
    await task

    assert after == (True, list(range(5)))


@virtual_time
async def test_an_edited_message_keeps_its_id_and_is_still_held(world):
    nodes = {**NODES, "witness": "COLLECT_TERMINAL"}
    run, node, task = await at_breakpoint(
        world, "payload.n == 5", nodes=nodes, edges="in > mid > out, in > witness"
    )
    before = held.held_message(node)
    payload = {"n": 50, "more": [1, 2.0, None]}

    held.edit(node, payload)
    payload["more"].append("later")
    after = held.held_message(node)
    state = node.state()
    held.release(node)
    await task

    assert after == {**before, "payload": {"n": 50, "more": [1, 2.0, None]}}
    assert state["held"]["messageId"] == before["id"]
    assert world.payloads("out")[5] == {"n": 50, "more": [1, 2.0, None]}
    assert numbers(world, "witness") == list(range(30))
    edited = sorted(item.message_id for item in world.results if item.type == "RESULT")
    world.results.clear()
    await world.run(nodes, "in > mid > out, in > witness", lineage=run.execution_id).execute()
    assert edited == sorted(item.message_id for item in world.results if item.type == "RESULT")


@virtual_time
async def test_a_payload_without_an_exact_form_is_refused_and_changes_nothing(world):
    run, node, task = await at_breakpoint(world, "payload.n == 5")
    before = held.held_message(node)

    with pytest.raises(UnserialisablePayloadError):
        held.edit(node, {"a": object()})
    after = held.held_message(node)
    run.resume()
    await task

    assert after == before


@pytest.mark.parametrize("act", [held.release, held.drop, lambda node: held.edit(node, 1)])
@virtual_time
async def test_without_a_held_message_there_is_a_conflict(act, world):
    run = world.run(NODES, "in > mid > out")
    task = asyncio.ensure_future(run.execute())
    run.pause("mid")

    with pytest.raises(ConflictError) as paused:
        act(run.node("mid"))
    run.resume()
    await task
    with pytest.raises(ConflictError) as ended:
        act(run.node("mid"))

    assert {paused.value.code, ended.value.code} == {"not_paused"}


@pytest.mark.parametrize("end", ["cancel", "kill", "node", "parent"])
@virtual_time
async def test_a_node_that_ends_holds_nothing_any_more(end, world):
    @processor("FRAGILE", blocking=False)
    def fragile(msg, cfg, ctx):
        """Fail at 20."""
        if msg.payload["n"] == 20:
            raise LookupError("20")
        return msg

    run = world.run(
        {
            "in": ("SEQUENCE_TRIGGER", {"count": 30, "intervalMs": 1000}),
            "first": "FRAGILE",
            "mid": "PASS",
            "out": "COLLECT_TERMINAL",
        },
        "in > first > mid > out",
        fragile,
    )
    node = run.node("mid")
    node.set_breakpoint(Breakpoint(when="payload.n == 5"))
    task = asyncio.ensure_future(run.execute())
    await asyncio.sleep(7)
    assert node.valve.holds
    if end == "node":
        run.stop_node("mid", StopMode.CANCEL)
    elif end != "parent":
        run.stop(StopMode[end.upper()])
    outcome = await task

    assert held.held_message(node) is None
    assert "held" not in outcome.nodes["mid"]
    assert outcome.nodes["mid"]["paused"] is False
    assert outcome.nodes["mid"]["dropped"] >= 1


@virtual_time
async def test_a_drained_node_is_held_no_more(world):
    run, _, task = await at_breakpoint(world, "payload.n >= 5")

    run.stop_node("mid", StopMode.DRAIN)
    await settle()
    outcome = await task

    assert outcome.nodes["mid"]["status"] == "STOPPED"
    assert outcome.nodes["mid"]["dropped"] == 0


@pytest.mark.feature("CTL-03")
@virtual_time
async def test_a_drain_is_held_up_by_no_breakpoint(world):
    nodes = {**NODES, "in": ("SEQUENCE_TRIGGER", {"count": 0, "intervalMs": 10})}
    run = world.run(nodes, "in > mid > out")
    run.node("mid").set_breakpoint(Breakpoint())
    task = asyncio.ensure_future(run.execute())
    await asyncio.sleep(0.2)

    run.stop(StopMode.DRAIN)
    outcome = await asyncio.wait_for(task, 1)

    assert outcome.status is TaskStatus.STOPPED
    assert outcome.totals["in"] == outcome.totals["out"] > 10
    assert outcome.totals["dropped"] == 0


@virtual_time
async def test_case_17_a_paused_node_and_one_at_a_breakpoint_both_go_on(world):
    run = world.run(CASE_17, "in > a > out, in > b > out")
    run.node("b").set_breakpoint(Breakpoint("payload.n", op="in", value=[3, 9]))
    task = asyncio.ensure_future(run.execute())
    await settle()
    run.pause("a")
    await settle()

    changed = run.resume()
    between = [node.id for node in run.nodes.values() if node.paused]
    await settle()
    # The next match is held again, and said so.
    second = run.node("b").state()["held"]
    run.resume()
    outcome = await task

    assert changed is True
    assert between == []
    assert second["reason"] == "breakpoint"
    hits = [
        event.data["messageId"] for event in world.events if event.type == "node.breakpoint_hit"
    ]
    assert hits[1] == second["messageId"]
    assert outcome.status is TaskStatus.SUCCESS
    assert sorted(numbers(world)) == sorted([*range(30), *range(30)])


@virtual_time
async def test_case_20_what_comes_while_a_node_holds_is_neither_lost_nor_taken_without_bound(world):
    nodes = {**NODES, "in": ("SEQUENCE_TRIGGER", {"count": 10_000})}
    run, node, task = await at_breakpoint(world, "payload.n == 5", nodes=nodes)

    waiting = sum(edge.waiting for edge in node.stage.ins)
    held.release(node)
    outcome = await task

    assert waiting <= 64
    assert run.node("in").counters["out"] == 10_000
    assert numbers(world) == list(range(10_000))
    assert outcome.nodes["mid"]["in"] == 10_000
