"""Runs that begin in the middle of their graph, with what was recorded of an earlier one.

`YUKTA_TEST_EXAMPLES=50000` looks at as many graphs.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.test_against_interpreter import ENDS_WELL, EXAMPLES, graphs
from tests.engine.test_against_interpreter import Scene as Example
from yukta_rx.config.settings import Settings
from yukta_rx.durability.archive import ExecutionArchive
from yukta_rx.durability.memory.archive import MemoryExecutionArchiveStore
from yukta_rx.durability.memory.checkpoints import MemoryNodeCheckpointStore
from yukta_rx.durability.restart_plan import plan_restart
from yukta_rx.engine.replay import Replay
from yukta_rx.engine.run import Run
from yukta_rx.errors import ConflictError
from yukta_rx.metrics import Meters
from yukta_rx.plugins.contract import processor, terminal, trigger
from yukta_rx.streams.circuit import StopMode
from yukta_rx.streams.pool import BlockingPool
from yukta_rx.testing.clock import run_virtual, virtual_time

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.feature("CTL-04", "DUR-02")


class Recorded:
    """Runs with a store of what their nodes emitted."""

    def __init__(self, **restart: Any) -> None:
        self.settings = Settings(restart=restart)
        self.pool = BlockingPool(2)
        self.checkpoints = MemoryNodeCheckpointStore(self.settings.restart, self.pool.call)
        self.archive = ExecutionArchive(
            MemoryExecutionArchiveStore(), self.checkpoints, self.settings, Meters()
        )

    async def restarted(self, old: Run, node_id: str, events: list, results: list) -> Run:
        """A run of a node of an old run, and all behind it."""
        plan = plan_restart(
            old.definition, node_id, await self.checkpoints.states(old.execution_id)
        )
        outputs = {name: self.archive.reader(old.execution_id, name) for name in plan.replayed}
        run_id = f"{old.execution_id}-again"
        return Run(
            old.prepared,
            settings=self.settings,
            emit=events.append,
            publish=results.append,
            execution_id=run_id,
            lineage=old.lineage,
            timeout=None,
            recorder=self.archive.recorder(run_id),
            replay=Replay(outputs, plan.alone),
        )


class Scene:
    """A workflow that is run, recorded, and run again."""

    def __init__(self, world: Any, nodes: dict[str, Any], edges: str, *plugins: Any, **options):
        self.recorded = Recorded(**options)
        self.world = world
        self.old = world.run(
            nodes,
            edges,
            *plugins,
            settings=self.recorded.settings,
            recorder=self.recorded.archive.recorder("old"),
            execution_id="old",
        )
        self.events: list[Any] = []
        self.results: list[Any] = []

    async def run(self) -> None:
        await self.recorded.checkpoints.start()
        await self.old.execute()

    async def again(self, node_id: str) -> Any:
        run = await self.recorded.restarted(self.old, node_id, self.events, self.results)
        return await run.execute()

    async def states(self) -> dict[str, Any]:
        return dict(await self.recorded.checkpoints.states("old"))


def shown(results: list[Any], node_id: str | None = None) -> list[tuple[Any, Any, Any]]:
    return [
        (item.node_id, item.message_id, item.payload)
        for item in results
        if item.type == "RESULT" and node_id in (None, item.node_id)
    ]


@trigger("THREE", blocking=False, pure=True)
def three(cfg, ctx):
    """Emit three messages, each of a list."""
    return ([n] for n in range(3))


LINE = {"in": "THREE", "mid": "PASS", "out": "COLLECT_TERMINAL"}


# --- what is recorded ----------------------------------------------------------------------------


@virtual_time
async def test_what_nodes_emit_is_recorded_and_marked_but_not_what_ends_in_terminals(world) -> None:
    scene = Scene(world, LINE, "in>mid>out", three)
    await scene.run()

    states = await scene.states()
    assert {name: (one.complete, one.messages) for name, one in states.items()} == {
        "in": (True, 3),
        "mid": (True, 3),
    }


@virtual_time
async def test_a_node_is_marked_before_its_children_end(world) -> None:
    complete = {}

    scene = Scene(world, LINE, "in>mid>out", three)

    def emit(event: Any) -> None:
        if event.type == "node.status" and event.data["status"] == "SUCCESS":
            outputs = scene.recorded.checkpoints._runs.get("old", {})
            complete[event.node_id] = {name for name, one in outputs.items() if one.complete}

    scene.old._voice._emit = emit
    await scene.run()

    assert complete == {"in": set(), "mid": {"in"}, "out": {"in", "mid"}}


@virtual_time
async def test_a_node_that_failed_or_was_cut_short_is_not_marked(world) -> None:
    @trigger("SLOW")
    async def slow(cfg, ctx):
        """Count slowly."""
        for n in range(100):
            yield n
            await asyncio.sleep(1)

    scene = Scene(world, LINE | {"in": "SLOW"}, "in>mid>out", slow)
    running = asyncio.ensure_future(scene.run())
    await asyncio.sleep(3.5)
    scene.old.stop(StopMode.DRAIN)
    await running

    assert not any(one.complete for one in (await scene.states()).values())


@virtual_time
async def test_what_is_recorded_is_as_it_was_whatever_plugins_do_to_it(world) -> None:
    @processor("SPOIL", blocking=False)
    def spoil(msg, cfg, ctx):
        """Change what came in."""
        msg.payload.append("spoilt")
        return len(msg.payload)

    for middle in ({"mid": "SPOIL"}, {"mid": "PASS", "late": "SPOIL"}):
        world.results.clear()
        nodes = {"in": "THREE", **middle, "out": "COLLECT_TERMINAL"}
        scene = Scene(world, nodes, ">".join(nodes), spoil, three)
        await scene.run()
        outcome = await scene.again(next(iter(middle)))
        twice = await scene.again(next(iter(middle)))

        assert (outcome.status, twice.status) == ("SUCCESS", "SUCCESS")
        assert shown(scene.results) == shown(world.results) * 2
        assert [payload for *_, payload in shown(world.results)] == [2, 2, 2]


@virtual_time
async def test_a_node_whose_output_is_over_the_cap_is_as_fast_as_before(world) -> None:
    taps: list[list[Any]] = []

    @terminal("LOOK", blocking=False)
    def look(msg, cfg, ctx):
        """See who listens to the nodes."""
        taps.append([node.stage.tap for node in scene.old.nodes.values()])

    scene = Scene(
        world,
        {"in": ("SEQUENCE_TRIGGER", {"count": 1000}), "mid": "PASS", "out": "LOOK"},
        "in>mid>out",
        look,
        messages_per_node=50,
    )
    await scene.run()

    assert {name: one.reason for name, one in (await scene.states()).items()} == {
        "in": "output_over_cap",
        "mid": "output_over_cap",
    }
    assert None not in taps[0][:2], "the trigger and the node behind it are recorded at first"
    assert taps[-1][:2] == [None, None]
    assert scene.recorded.checkpoints.bytes == 0


@virtual_time
async def test_a_slow_disk_holds_nodes_back_and_nothing_is_lost(
    world, tmp_path: Path, monkeypatch
) -> None:
    from yukta_rx.durability.memory import checkpoints as module

    monkeypatch.setattr(module, "QUEUE", 20_000)
    scene = Scene(
        world,
        {"in": ("SEQUENCE_TRIGGER", {"count": 5000}), "mid": "PASS", "out": "COLLECT_TERMINAL"},
        "in>mid>out",
        spill_dir=tmp_path / "spill",
    )
    store = scene.recorded.checkpoints
    quick, queued = store._offload, []

    async def slow(fn, *args):
        queued.append(store._queued)
        await asyncio.sleep(0.5)
        return await quick(fn, *args)

    store._offload = slow
    await scene.run()
    outcome = await scene.again("out")

    assert outcome.status == "SUCCESS"
    assert len(shown(scene.results)) == 5000
    assert shown(scene.results) == shown(world.results)
    # Each node may add the row that it was gathering when it was held back.
    assert max(queued) < 100_000
    assert {node.status for node in scene.old.nodes.values()} == {"SUCCESS"}


# --- what is replayed ----------------------------------------------------------------------------


@virtual_time
async def test_ports_are_replayed_dead_letters_and_what_a_buffer_dropped_too(world) -> None:
    from yukta_rx.plugins.contract import to_port

    @processor("SORT", ports=["odd"], blocking=False, pure=True)
    def sort(msg, cfg, ctx):
        """Send odd ones elsewhere, fail at one."""
        if msg.payload["n"] == 4:
            raise LookupError("four")
        return to_port("odd", msg) if msg.payload["n"] % 2 else msg

    @processor("SLOWLY")
    async def slowly(msg, cfg, ctx):
        """Take a second."""
        await asyncio.sleep(1)
        return msg

    scene = Scene(
        world,
        {
            "in": ("SEQUENCE_TRIGGER", {"count": 40}),
            "sort": ("SORT", {"engine": {"onError": "ROUTE"}}),
            "slow": ("SLOWLY", {"engine": {"edgeBuffer": {"size": 5}}}),
            "even": "COLLECT_TERMINAL",
            "odd": "COLLECT_TERMINAL",
            "dead": "COLLECT_TERMINAL",
            "lost": "COLLECT_TERMINAL",
            "kept": "COLLECT_TERMINAL",
        },
        "in>sort>even, sort.odd>odd, sort.error>dead, in>slow>kept, slow.dropped>lost",
        sort,
        slowly,
    )
    await scene.run()
    assert all(shown(world.results, name) for name in ("even", "odd", "dead", "lost", "kept"))
    for name in ("even", "odd", "dead", "lost", "kept"):
        scene.results.clear()
        outcome = await scene.again(name)

        assert outcome.status == "SUCCESS"
        assert shown(scene.results) == shown(world.results, name)
        states = {node: state["status"] for node, state in outcome.nodes.items()}
        parent = "slow" if name in ("lost", "kept") else "sort"
        assert states.pop(parent) == states.pop(name) == "SUCCESS"
        assert set(states.values()) == {"SKIPPED"}


@virtual_time
async def test_a_terminal_that_is_left_alone_is_said_to_have_ended_without_a_result(world) -> None:
    scene = Scene(
        world,
        {"in": "THREE", "a": "COLLECT_TERMINAL", "b": "COLLECT_TERMINAL"},
        "in>a,in>b",
        three,
    )
    await scene.run()
    await scene.again("a")

    ends = {item.node_id: item.status for item in scene.results if item.type == "NODE_END"}
    assert ends == {"a": "SUCCESS", "b": "SKIPPED"}
    assert {item.node_id for item in scene.results if item.type == "RESULT"} == {"a"}


@virtual_time
async def test_plugins_of_nodes_that_do_not_run_are_not_even_opened(world) -> None:
    opened = []

    def opening(cfg, ctx):
        opened.append(ctx.node_id)

    @processor("OPENS", blocking=False, pure=True, open=opening)
    def opens(msg, cfg, ctx):
        """Pass on."""
        return msg

    nodes = {"in": "THREE", "a": "OPENS", "b": "OPENS", "c": "OPENS", "x": "OPENS"}
    ends = {"out": "NULL_TERMINAL", "end": "NULL_TERMINAL"}
    scene = Scene(world, nodes | ends, "in>a>b>c>out,a>x>end", opens, three)
    await scene.run()
    opened.clear()
    await scene.again("b")

    assert opened == ["b", "c"]


@virtual_time
async def test_a_replay_that_cannot_be_read_fails_its_node_and_says_why(world) -> None:
    scene = Scene(world, {"in": "THREE", "out": "NULL_TERMINAL"}, "in>out", three)
    await scene.run()
    run = await scene.recorded.restarted(scene.old, "out", scene.events, scene.results)

    async def broken():
        raise OSError("gone")
        yield

    run._replay.outputs["in"] = broken
    outcome = await run.execute()

    assert outcome.status == "ERROR"
    assert outcome.nodes["in"]["status"] == "ERROR"
    assert "gone" in outcome.nodes["in"]["error"]["detail"]


@virtual_time
async def test_an_output_that_was_forgotten_meanwhile_is_no_empty_one(
    world,
) -> None:
    scene = Scene(world, {"in": "THREE", "out": "COLLECT_TERMINAL"}, "in>out", three)
    await scene.run()
    run = await scene.recorded.restarted(scene.old, "out", scene.events, scene.results)
    await scene.recorded.checkpoints.clear("old")
    outcome = await run.execute()

    assert outcome.status == "ERROR"
    assert "not kept any more" in outcome.error["detail"]


@virtual_time
async def test_a_replay_is_paused_stepped_and_stopped_like_any_run(world) -> None:
    scene = Scene(world, {"in": "THREE", "out": "COLLECT_TERMINAL"}, "in>out", three)
    await scene.run()
    run = await scene.recorded.restarted(scene.old, "out", scene.events, scene.results)
    running = asyncio.ensure_future(run.execute())
    run.pause()
    await asyncio.sleep(1)
    before = len(shown(scene.results))
    run.step(2)
    await asyncio.sleep(1)
    after = len(shown(scene.results))
    run.stop(StopMode.CANCEL)
    outcome = await running

    assert (before, after) == (0, 2)
    assert outcome.status == "CANCELLED"


# --- any graph -----------------------------------------------------------------------------------


class RecordedExample(Example):
    """A run of a random graph, recorded."""

    def __init__(self, specs: Any, recorded: Recorded) -> None:
        super().__init__(specs)
        old = self.run
        self.run = Run(
            old.prepared,
            settings=recorded.settings,
            emit=self.events.append,
            publish=self.results.append,
            execution_id="old",
            timeout=None,
            recorder=recorded.archive.recorder("old"),
        )
        for spec in specs:
            if spec.skipped:
                self.run.node(spec.name).skip(True)


async def play(specs: Any, place: int, recorded: Recorded) -> None:
    scene = RecordedExample(specs, recorded)
    before = await scene.run.execute()
    begin = specs[place % len(specs)].name
    events: list[Any] = []
    results: list[Any] = []
    try:
        run = await recorded.restarted(scene.run, begin, events, results)
    except ConflictError as refused:
        missing = refused.members["nodes"]
    else:
        missing = []
    assert {before.nodes[name]["status"] for name in missing}.isdisjoint(ENDS_WELL)
    if missing:
        return
    again = plan_restart(
        scene.run.definition, begin, await recorded.checkpoints.states("old")
    ).again
    for spec in specs:
        if spec.skipped and spec.name in again:
            run.node(spec.name).skip(True)
    after = await run.execute()
    for name, node in after.nodes.items():
        if run._replay.replaces(name) and name not in run._replay.outputs:
            assert (node["status"], node["in"], node["out"]) == ("SKIPPED", 0, 0)
    # Failures and drops depend on timing; whatever has none of them comes out the same.
    if all(node["status"] in ENDS_WELL for node in before.nodes.values()) and calm(specs):
        for name in again:
            assert after.nodes[name]["status"] == before.nodes[name]["status"]
            old, new = (Counter(map(str, shown(said, name))) for said in (scene.results, results))
            assert old == new
            EQUAL[sum(new.values()) > 0] += 1


def calm(specs: Any) -> bool:
    """Whether nothing in a graph fails or is dropped."""
    return not any(spec.work.fails or spec.buffer for spec in specs)


def calmed(specs: Any) -> Any:
    """The graph without what depends on timing."""
    return [
        replace(spec, work=replace(spec.work, fails=0), buffer=None, timed=False) for spec in specs
    ]


EQUAL: Counter[bool] = Counter()
"""How many nodes were compared, with messages and without."""


@pytest.mark.slow
@pytest.mark.timeout(7200)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    print_blob=True,
)
@given(specs=graphs() | graphs().map(calmed), place=st.integers(0, 20), spills=st.booleans())
def test_any_graph_gives_the_same_again_from_any_node(specs, place, spills, tmp_path) -> None:
    async def recorded_play() -> None:
        # What finds no room in memory goes to files, or all of it has room.
        spilled = {"messages_per_node": 5, "spill_dir": tmp_path / "spill"}
        caps = spilled if spills else {"messages_per_node": 100_000}
        recorded = Recorded(**caps)
        await recorded.checkpoints.start()
        try:
            await play(specs, place, recorded)
        finally:
            await recorded.checkpoints.close()
            recorded.pool.close()

    run_virtual(recorded_play())


@pytest.mark.slow
def test_graphs_were_compared() -> None:
    assert EQUAL[True] > EXAMPLES / 5
