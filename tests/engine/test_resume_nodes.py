"""What single kinds of nodes do when their run goes on after a crash."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.logged import LoggedCheckpointStore
from tests.engine.test_resume import Crashes, crash_everywhere, listed
from yukta_rx.durability.stores.checkpoints import counting_rows
from yukta_rx.plugins.contract import Message, processor, terminal, to_port, trigger
from yukta_rx.streams.circuit import StopMode
from yukta_rx.testing.clock import run_virtual, virtual_time

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.feature("DUR-02", "DUR-03")

calls: list[Any] = []


@trigger("NUMBERS", blocking=False, pure=True, replayable=True)
def numbers(cfg: Any, ctx: Any) -> Iterator[int]:
    """Twenty of them."""
    return iter(range(20))


@processor("DOUBLE", blocking=False)
def double(msg: Message, cfg: Any, ctx: Any) -> Any:
    """Twice as much."""
    calls.append((ctx.node_id, msg.id))
    return msg.payload * 2


@processor("FAN", blocking=False)
def fan(msg: Message, cfg: Any, ctx: Any) -> Iterator[Any]:
    """Many for some, none for others."""
    calls.append((ctx.node_id, msg.id))
    for n in range((msg.payload % 3) * 9):
        yield to_port("side", n) if n % 5 == 4 else n


FAN = processor("FAN", blocking=False, ports=["side"])(fan)


@processor("SLOW_ONCE")
async def slow_once(msg: Message, cfg: Any, ctx: Any) -> Any:
    """Take a while, each another."""
    await asyncio.sleep(0.01 * (msg.payload * 7 % 5))
    return {"slow": msg.payload}


@processor("TWICE", blocking=False)
def twice(msg: Message, cfg: Any, ctx: Any) -> Any:
    """The items twice."""
    calls.append((ctx.node_id, msg.id))
    return {"items": msg.payload["items"] * 2}


@terminal("SLOW_END", blocking=False)
async def slow_end(msg: Message, cfg: Any, ctx: Any) -> None:
    """Take a while, each another."""
    calls.append((ctx.node_id, msg.id))
    await asyncio.sleep(0.01 * (len(calls) * 7 % 5))


@terminal("THREAD_END")
def thread_end(msg: Message, cfg: Any, ctx: Any) -> None:
    """In a thread."""
    calls.append((ctx.node_id, msg.id))


PLUGINS = (numbers, double, FAN, slow_once, twice, slow_end, thread_end)


def crashes_of(world: Any, nodes: dict[str, Any], edges: str, *more: Any, **options: Any) -> Any:
    calls.clear()
    return Crashes(world.run(nodes, edges, *PLUGINS, *more).prepared, **options)


@pytest.mark.parametrize("delay", [None, 0.02])
@virtual_time
async def test_terminals_of_every_kind_publish_all_and_do_nothing_again(
    world: Any, delay: Any
) -> None:
    several = {"engine": {"concurrency": {"max": 3, "ordered": False}}}
    crashes = crashes_of(
        world,
        {
            "in": "NUMBERS",
            "a": ("SLOW_END", several),
            "b": "THREAD_END",
            "c": "SLOW_END",
            "d": "COLLECT_TERMINAL",
        },
        "in>a, in>b, in>c, in>d",
        delay=delay,
    )
    assert await crash_everywhere(crashes, calls) > 10


@virtual_time
async def test_batches_and_what_was_seen_before_are_the_same_again(world: Any) -> None:
    crashes = crashes_of(
        world,
        {
            "in": "NUMBERS",
            "double": "DOUBLE",
            "seen": ("DEDUPLICATE", {"key": "${payload:json}", "window": 50}),
            "batch": ("BATCH", {"size": 3}),
            "out": "COLLECT_TERMINAL",
        },
        "in>double>seen>batch>out",
        row=3,
    )
    assert await crash_everywhere(crashes, calls) > 10


@virtual_time
async def test_a_small_window_is_what_it_would_have_been(world: Any) -> None:
    @processor("LETTER", blocking=False, pure=True)
    def letter(msg: Message, cfg: Any, ctx: Any) -> Any:
        """One of a few, again and again."""
        return "abacabdbcadab"[msg.payload % 13]

    crashes = crashes_of(
        world,
        {
            "in": "NUMBERS",
            "letter": "LETTER",
            "seen": ("DEDUPLICATE", {"key": "${payload}", "window": 2}),
            "double": "DOUBLE",
            "out": "COLLECT_TERMINAL",
        },
        "in>letter>seen>double>out",
        letter,
        row=2,
    )
    assert await crash_everywhere(crashes, calls) > 10


async def let_through(store: LoggedCheckpointStore, run: str) -> dict[Any, str]:
    """What is recorded of the choices of node `seen`: key to the id of the message."""
    found: dict[Any, str] = {}
    async for row in counting_rows(lambda: store.read(run, "seen")):
        for _, msg in row.messages:
            assert msg.payload not in found
            found[msg.payload] = msg.id
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@virtual_time
async def test_what_was_chosen_of_several_parents_stays_chosen_in_any_order(
    world: Any, seed: int
) -> None:
    chance = random.Random(seed)

    @processor("JITTER")
    async def jitter(msg: Message, cfg: Any, ctx: Any) -> Any:
        """Take a while, each time another."""
        await asyncio.sleep(chance.random() * 0.1)
        return msg.payload

    several = {"engine": {"concurrency": {"max": 6, "ordered": False}}}
    crashes = crashes_of(
        world,
        {
            **dict.fromkeys("abc", "NUMBERS"),
            **{f"{name}2": ("JITTER", several) for name in "abc"},
            "seen": ("DEDUPLICATE", {"key": "${payload:json}"}),
            "double": "DOUBLE",
            "out": "COLLECT_TERMINAL",
        },
        "a>a2>seen, b>b2>seen, c>c2>seen, seen>double>out",
        jitter,
        row=3,
    )
    store = LoggedCheckpointStore()
    await crashes.run(store, "run")
    log = list(store.log)
    for place in range(0, len(log) + 1, 2):
        left, old = LoggedCheckpointStore(log[:place]), "run"
        for new in ("again", "third"):
            chosen, done = await let_through(left, old), await listed(left, old)
            calls.clear()
            _, outcome = await crashes.resume(left, old, new)
            assert outcome.status == "SUCCESS"
            results = sorted(item.payload for item in crashes.results if item.type == "RESULT")
            assert results == [2 * n for n in range(20)]
            assert not done & Counter(calls)
            after = await let_through(left, new)
            assert after.items() >= chosen.items()
            # And another crash, somewhere in what was written behind the first.
            begins = next(n for n, line in enumerate(left.log) if line[1] == new) + 1
            cut = begins + chance.randrange(len(left.log) + 1 - begins)
            left, old = LoggedCheckpointStore(left.log[:cut]), new


@virtual_time
async def test_batches_of_several_parents_and_of_time_are_not_made_twice(world: Any) -> None:
    crashes = crashes_of(
        world,
        {
            "a": "NUMBERS",
            "b": ("SEQUENCE_TRIGGER", {"count": 20, "intervalMs": 7}),
            "slow": ("SLOW_ONCE", {"engine": {"concurrency": {"max": 4, "ordered": False}}}),
            "batch": ("BATCH", {"size": 4, "maxWaitMs": 30}),
            "post": "TWICE",
            "out": "COLLECT_TERMINAL",
        },
        "a>slow>batch, b>batch, batch>post>out",
        row=3,
    )
    store = LoggedCheckpointStore()
    await crashes.run(store, "run")
    every = items_of(crashes)
    assert len(every) == 40
    for place in range(len(store.log) + 1):
        left = LoggedCheckpointStore(store.log[:place])
        done = await listed(left, "run")
        calls.clear()
        _, outcome = await crashes.resume(left, "run", "again")
        assert outcome.status == "SUCCESS"
        assert items_of(crashes) == every
        assert not done & Counter(calls)


def items_of(crashes: Crashes) -> Counter[str]:
    """What was in the batches that reached the end, each twice."""
    found: Counter[str] = Counter()
    for item in crashes.results:
        if item.type == "RESULT":
            items = item.payload["items"]
            found.update(map(str, items[: len(items) // 2]))
    return found


@pytest.mark.parametrize("row", [3, 10])
@virtual_time
async def test_an_input_with_very_many_outputs_fills_several_rows(world: Any, row: int) -> None:
    crashes = crashes_of(
        world,
        {"in": "NUMBERS", "fan": "FAN", "out": "SLOW_END", "side": "COLLECT_TERMINAL"},
        "in>fan>out, fan.side>side",
        row=row,
    )
    store = LoggedCheckpointStore()
    await crashes.run(store, "run")
    rows = [one async for one in store.read("run", "fan")]
    assert any(one.group for one in rows)
    assert max(map(len, rows)) < row + 64

    await crash_everywhere(crashes, calls)


@virtual_time
async def test_what_a_buffer_dropped_is_finished_and_neither_lost_nor_doubled(world: Any) -> None:
    nodes = {
        "in": "NUMBERS",
        "slow": ("SLOW_PASS", {"engine": {"edgeBuffer": {"size": 2, "overflow": "DROP_OLDEST"}}}),
        "kept": "COLLECT_TERMINAL",
        "lost": "SLOW_END",
    }

    @processor("SLOW_PASS")
    async def slow_pass(msg: Message, cfg: Any, ctx: Any) -> Any:
        """Take a while."""
        calls.append((ctx.node_id, msg.id))
        await asyncio.sleep(0.05)
        return msg.payload

    crashes = crashes_of(world, nodes, "in>slow>kept, slow.dropped>lost", slow_pass, row=3)
    store = LoggedCheckpointStore()
    await crashes.run(store, "run")
    log = list(store.log)
    assert {node for node, *_ in crashes.shown()} == {"kept", "lost"}
    for place in range(len(log) + 1):
        store = LoggedCheckpointStore(log[:place])
        done = await listed(store, "run")
        calls.clear()
        _, outcome = await crashes.resume(store, "run", "again")
        assert outcome.status == "SUCCESS"
        came = Counter(payload for _, _, payload in crashes.shown().elements())
        assert came == Counter(map(str, range(20)))
        assert not done & Counter(calls)


@virtual_time
async def test_a_terminal_that_commits_in_the_end_gets_everything(world: Any) -> None:
    books: list[list[Any]] = []

    def begin(cfg: Any, ctx: Any) -> None:
        ctx.state = []

    def commit(cfg: Any, ctx: Any) -> None:
        books.append(ctx.state)

    @terminal("BOOK", blocking=False, open=begin, finish=commit)
    def book(msg: Message, cfg: Any, ctx: Any) -> None:
        """Write it down."""
        ctx.state.append(msg.payload)

    crashes = crashes_of(world, {"in": "NUMBERS", "out": "BOOK"}, "in>out", book, row=3)
    store = LoggedCheckpointStore()
    await crashes.run(store, "run")
    for place in range(len(store.log) + 1):
        left = LoggedCheckpointStore(store.log[:place])
        done = (await left.states("run")).get("out")
        books.clear()
        await crashes.resume(left, "run", "again")
        assert books == ([] if done is not None and done.complete else [list(range(20))])


# --- steering ------------------------------------------------------------------------------------


async def crashed_half_way(world: Any, made: list[Any]) -> tuple[Any, LoggedCheckpointStore]:
    nodes = {"in": "NUMBERS", "double": "DOUBLE", "out": "SLOW_END"}
    crashes = crashes_of(world, nodes, "in>double>out", row=3, before=made.append)
    store = LoggedCheckpointStore()
    await crashes.run(store, "run")
    # All of the trigger's rows, four of each other node, no mark.
    counts: Counter[str] = Counter()
    log = []
    for line in store.log:
        counts[line[2]] += 1
        if line[0] == "row" and (line[2] == "in" or counts[line[2]] <= 4):
            log.append(line)
    made.clear()
    return crashes, LoggedCheckpointStore(log)


@virtual_time
async def test_what_was_recorded_waits_for_a_paused_run_and_is_stepped(world: Any) -> None:
    made: list[Any] = []
    crashes, store = await crashed_half_way(world, made)
    going_on = asyncio.ensure_future(crashes.resume(store, "run", "again"))
    while not made:
        await asyncio.sleep(0)
    [run] = made
    run.pause()
    await asyncio.sleep(1)
    paused = sum(node.counters["out"] for node in run.nodes.values()), len(crashes.results)
    run.step(2, "in")
    await asyncio.sleep(1)
    stepped = run.nodes["in"].counters["out"]
    run.resume()
    await going_on

    assert (paused, stepped) == ((0, 0), 2)
    assert sum(crashes.shown().values()) == 20


@virtual_time
async def test_a_drain_lets_out_what_was_recorded(world: Any) -> None:
    made: list[Any] = []
    crashes, store = await crashed_half_way(world, made)
    known = store.known["run"]["in"].messages
    going_on = asyncio.ensure_future(crashes.resume(store, "run", "again"))
    while not made:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    made[0].stop(StopMode.DRAIN)
    _, outcome = await going_on

    assert outcome.status == "STOPPED"
    assert sum(crashes.shown().values()) == known
    assert {node["status"] for node in outcome.nodes.values()} == {"STOPPED"}


@virtual_time
async def test_a_cancel_ends_it_at_once(world: Any) -> None:
    made: list[Any] = []
    crashes, store = await crashed_half_way(world, made)
    going_on = asyncio.ensure_future(crashes.resume(store, "run", "again"))
    while not made:
        await asyncio.sleep(0)
    await asyncio.sleep(0.001)
    made[0].stop(StopMode.CANCEL)
    _, outcome = await going_on

    assert outcome.status == "CANCELLED"


@virtual_time
async def test_nodes_that_went_on_look_like_any_others(world: Any) -> None:
    made: list[Any] = []
    crashes, store = await crashed_half_way(world, made)
    going_on = asyncio.ensure_future(crashes.resume(store, "run", "again"))
    plain: set[str] = set()
    while not going_on.done():
        await asyncio.sleep(0.001)
        for node in made[0].nodes.values():
            if node.stage is not None and node.stage.gate is node.valve:
                plain.add(node.id)
    _, outcome = await going_on

    told = {
        name: (node["status"], node["in"], node["out"], node["dropped"])
        for name, node in outcome.nodes.items()
    }
    assert told == {
        "in": ("SUCCESS", 0, 20, 0),
        "double": ("SUCCESS", 20, 20, 0),
        "out": ("SUCCESS", 20, 0, 0),
    }
    assert [edge["passed"] for edge in made[0].snapshot()["edges"]] == [20, 20]
    assert plain == {"in", "double", "out"}, "what they were resumed with is out of the way"


@virtual_time
async def test_a_record_that_cannot_be_read_fails_the_node_and_says_why(world: Any) -> None:
    crashes, store = await crashed_half_way(world, [])
    store.rows["run"]["double"][1] = b"{"
    _, outcome = await crashes.resume(store, "run", "again")

    assert outcome.status == "ERROR"
    assert "cannot be read" in outcome.nodes["double"]["error"]["detail"]


def test_the_rows_of_a_second_attempt_do_not_mix_with_what_the_first_left() -> None:
    async def run(world: Any) -> None:
        nodes = {"in": "NUMBERS", "fan": "FAN", "out": "COLLECT_TERMINAL"}
        crashes = crashes_of(world, nodes, "in>fan>out", row=10)
        store = LoggedCheckpointStore()
        await crashes.run(store, "run")
        wanted = crashes.shown()
        # The crash comes when the first rows of an input are there, and the last is not.
        cut = next(
            place
            for place, line in enumerate(store.log)
            if line[2] == "fan" and line[0] == "row" and b'"group"' in line[3]
        )
        again = LoggedCheckpointStore(store.log[: cut + 1])
        await crashes.resume(again, "run", "again")
        assert crashes.shown() == wanted
        counting = counting_rows(lambda: again.read("again", "fan"))
        recorded = Counter([msg.id async for row in counting for _, msg in row.messages])
        rows = again.read("again", "fan")
        every = Counter([msg.id async for row in rows for _, msg in row.messages])
        assert max(recorded.values()) == 1
        assert max(every.values()) == 2

    from tests.engine.conftest import World

    run_virtual(run(World()))
