"""Every shape of plugin, and what the engine makes of its outputs."""

import asyncio
import threading
import time
from itertools import pairwise

import pytest
import reactivex
from reactivex import Observable
from reactivex import operators as rx

from yukta_rx.model.message import Message
from yukta_rx.model.status import TaskStatus
from yukta_rx.plugins.contract import (
    PluginConfig,
    ProcessorPlugin,
    processor,
    terminal,
    to_port,
    trigger,
)
from yukta_rx.streams import Flow
from yukta_rx.testing.clock import virtual_time

pytestmark = pytest.mark.feature("ENG-02")

SEQUENCE = ("SEQUENCE_TRIGGER", {"count": 100})


@processor("SYNC")
def sync(msg, cfg, ctx):
    """Blocking by default: runs in a thread."""
    assert threading.current_thread() is not threading.main_thread()
    return msg.payload["n"] * 2


@processor("ON_LOOP", blocking=False)
def on_loop(msg, cfg, ctx):
    """On the loop."""
    assert threading.current_thread() is threading.main_thread()
    return msg.payload["n"] * 2


@processor("ASYNC")
async def coroutine(msg, cfg, ctx):
    """Suspends now and then."""
    if msg.payload["n"] % 10 == 0:
        await asyncio.sleep(0.001)
    return msg.payload["n"] * 2


@processor("GENERATOR")
def generator(msg, cfg, ctx):
    """One output per input, as a generator in a thread."""
    yield msg.payload["n"] * 2


@processor("GENERATOR_ON_LOOP", blocking=False)
def generator_on_loop(msg, cfg, ctx):
    """One output per input, as a generator on the loop."""
    yield msg.payload["n"] * 2


@processor("ASYNC_GENERATOR")
async def async_generator(msg, cfg, ctx):
    """One output per input, as an async generator."""
    await asyncio.sleep(0)
    yield msg.payload["n"] * 2


@processor("OBSERVABLE")
def observable(msg, cfg, ctx) -> Observable:
    """One output per input, as an Observable."""
    return reactivex.of(msg.payload["n"] * 2)


@processor("STREAM")
class Stream(ProcessorPlugin):
    """The whole stream, as an async generator."""

    async def transform(self, stream, cfg, ctx):
        async for msg in stream:
            yield msg.payload["n"] * 2


@processor("RX_STREAM")
class RxStream(ProcessorPlugin):
    """The whole stream, with Rx operators."""

    def transform(self, stream, cfg, ctx):
        return stream.pipe(rx.map(lambda msg: msg.payload["n"] * 2))


SHAPES = [
    sync,
    on_loop,
    coroutine,
    generator,
    generator_on_loop,
    async_generator,
    observable,
    Stream,
    RxStream,
]


@pytest.mark.parametrize("plugin", SHAPES, ids=lambda plugin: plugin.spec.type)
@virtual_time
async def test_a_processor_of_every_shape_gives_its_outputs_in_order(world, plugin):
    run = world.run(
        {"in": SEQUENCE, "mid": plugin.spec.type, "out": "COLLECT_TERMINAL"},
        "in > mid > out",
        plugin,
    )

    outcome = await run.execute()

    assert outcome.status is TaskStatus.SUCCESS
    assert world.payloads() == [2 * n for n in range(100)]
    assert outcome.nodes["mid"]["in"] == outcome.nodes["mid"]["out"] == 100


@pytest.mark.parametrize("plugin", SHAPES, ids=lambda plugin: plugin.spec.type)
@virtual_time
async def test_ids_are_the_same_for_the_same_lineage_and_differ_between_lineages(new_world, plugin):
    ids = []
    for lineage in ("one", "one", "two"):
        world = new_world()
        run = world.run(
            {"in": SEQUENCE, "mid": plugin.spec.type, "out": "COLLECT_TERMINAL"},
            "in > mid > out",
            plugin,
            lineage=lineage,
        )
        await run.execute()
        ids.append([item.message_id for item in world.results if item.type == "RESULT"])

    assert ids[0] == ids[1]
    assert not set(ids[0]) & set(ids[2])
    assert len(set(ids[0])) == 100


@virtual_time
async def test_several_values_are_several_messages_with_ids_of_their_own(world):
    @processor("THRICE", blocking=False)
    def thrice(msg, cfg, ctx):
        for index in range(3):
            yield (msg.payload["n"], index)

    run = world.run(
        {"in": SEQUENCE, "mid": "THRICE", "out": "COLLECT_TERMINAL"}, "in > mid > out", thrice
    )

    await run.execute()

    assert world.payloads() == [(n, index) for n in range(100) for index in range(3)]
    assert len({item.message_id for item in world.results if item.message_id}) == 300


@virtual_time
async def test_none_drops_and_a_list_is_one_payload(world):
    @processor("ODD", blocking=False)
    def odd(msg, cfg, ctx):
        return [msg.payload["n"]] if msg.payload["n"] % 2 else None

    run = world.run(
        {"in": SEQUENCE, "mid": "ODD", "out": "COLLECT_TERMINAL"}, "in > mid > out", odd
    )

    outcome = await run.execute()

    assert world.payloads() == [[n] for n in range(1, 100, 2)]
    assert outcome.totals["dropped"] == 0, "what a plugin filters out is not lost"


@virtual_time
async def test_a_message_keeps_its_headers_and_an_id_of_its_own(world):
    @processor("NAMED", blocking=False)
    def named(msg, cfg, ctx):
        n = msg.payload["n"]
        return Message.of(n, headers={"n": n}, id=f"number-{n}")

    run = world.run(
        {"in": SEQUENCE, "mid": "NAMED", "next": "PASS", "out": "COLLECT_TERMINAL"},
        "in > mid > next > out",
        named,
    )

    await run.execute()

    first = world.results[0]
    assert first.headers == {"n": 0}
    assert first.message_id != "number-0", "PASS derives an id for what it sends on"
    assert first.payload == 0


@virtual_time
async def test_named_ports_carry_only_what_is_sent_to_them(world):
    @processor("FORK", blocking=False, ports=["odd"])
    def fork(msg, cfg, ctx):
        return to_port("odd", msg) if msg.payload["n"] % 2 else msg

    run = world.run(
        {"in": SEQUENCE, "mid": "FORK", "even": "COLLECT_TERMINAL", "odd": "COLLECT_TERMINAL"},
        "in > mid > even, mid.odd > odd",
        fork,
    )

    await run.execute()

    assert [p["n"] for p in world.payloads("even")] == list(range(0, 100, 2))
    assert [p["n"] for p in world.payloads("odd")] == list(range(1, 100, 2))


@virtual_time
async def test_the_cause_of_a_message_is_the_one_it_was_made_from(world):
    seen = []

    @processor("WATCH", blocking=False)
    def watch(msg, cfg, ctx):
        seen.append((msg.id, msg.cause))
        return msg

    run = world.run(
        {"in": SEQUENCE, "one": "WATCH", "two": "WATCH", "out": "COLLECT_TERMINAL"},
        "in > one > two > out",
        watch,
    )

    await run.execute()

    first = [pair for pair in seen if pair[1] is None]
    second = [pair for pair in seen if pair[1] is not None]
    assert [cause for _, cause in second] == [id for id, _ in first]


@pytest.mark.parametrize("made", ["iterator", "async iterator", "Observable", "Flow"])
@virtual_time
async def test_a_trigger_may_give_any_kind_of_source(world, made):
    async def numbers():
        for n in range(50):
            yield n

    @trigger("SOURCE", blocking=False)
    def source(cfg, ctx):
        return {
            "iterator": iter(range(50)),
            "async iterator": numbers(),
            "Observable": reactivex.range(0, 50),
            "Flow": Flow.pipe(_flow(), lambda flow: flow),
        }[made]

    run = world.run({"in": "SOURCE", "out": "COLLECT_TERMINAL"}, "in > out", source)

    outcome = await run.execute()

    assert outcome.status is TaskStatus.SUCCESS
    assert world.payloads() == list(range(50))


def _flow():
    from yukta_rx.streams import from_iterable

    return from_iterable(range(50))


@virtual_time
async def test_a_blocking_trigger_is_drawn_in_a_thread_and_only_as_far_as_demand_goes(world):
    drawn = []

    @trigger("READER")
    def reader(cfg, ctx):
        assert threading.current_thread() is not threading.main_thread()
        for n in range(1000):
            drawn.append(n)
            yield n

    run = world.run(
        {"in": "READER", "mid": "PASS", "out": "COLLECT_TERMINAL"}, "in > mid > out", reader
    )
    run.pause("mid")
    task = asyncio.ensure_future(run.execute())
    await asyncio.sleep(1)
    ahead = len(drawn)
    run.resume("mid")
    await task

    assert ahead == 64
    assert world.payloads() == list(range(1000))


@pytest.mark.parametrize("blocking", [True, False])
@virtual_time
async def test_a_mutated_payload_is_never_seen_by_a_sibling_branch(world, blocking):
    @processor("SPOIL", blocking=blocking)
    def spoil(msg, cfg, ctx):
        msg.payload["n"] = "spoilt"
        return msg

    run = world.run(
        {
            "in": ("API_TRIGGER", {"splitPath": "items"}),
            "pass": "PASS",
            "bad": "SPOIL",
            "a": "COLLECT_TERMINAL",
            "b": "COLLECT_TERMINAL",
        },
        "in > pass > a, in > bad > b",
        spoil,
        payload={"items": [{"n": n} for n in range(20)]},
    )

    await run.execute()

    assert world.payloads("a") == [{"n": n} for n in range(20)]
    assert world.payloads("b") == [{"n": "spoilt"}] * 20


@virtual_time
async def test_a_plugin_that_emits_one_object_again_and_again_emits_what_it_was_each_time(world):
    @trigger("COUNTER", blocking=False)
    def counter(cfg, ctx):
        state = {"n": 0}
        while state["n"] < 5:
            state["n"] += 1
            yield state

    run = world.run({"in": "COUNTER", "out": "COLLECT_TERMINAL"}, "in > out", counter)

    await run.execute()

    assert world.payloads() == [{"n": n} for n in range(1, 6)]


@virtual_time
async def test_a_terminal_cannot_change_what_the_results_show(world):
    @terminal("WIPE", blocking=False)
    def wipe(msg, cfg, ctx):
        msg.payload.clear()

    run = world.run({"in": ("SEQUENCE_TRIGGER", {"count": 3}), "out": "WIPE"}, "in > out", wipe)

    await run.execute()

    assert world.payloads() == [{"n": 0}, {"n": 1}, {"n": 2}]


@pytest.mark.feature("SEC-02")
@virtual_time
async def test_expressions_are_resolved_for_each_message(world):
    run = world.run(
        {
            "in": ("SEQUENCE_TRIGGER", {"count": 3}),
            "mid": (
                "TRANSFORM",
                {"set": {"twice": "${payload.n:int}", "id": "run ${context.workflowId}"}},
            ),
            "out": "COLLECT_TERMINAL",
        },
        "in > mid > out",
    )

    await run.execute()

    assert world.payloads() == [{"n": n, "twice": n, "id": "run w"} for n in range(3)]


@pytest.mark.feature("SEC-02")
@virtual_time
async def test_an_expression_without_a_value_fails_its_node_and_is_named(world):
    run = world.run(
        {
            "in": ("SEQUENCE_TRIGGER", {"count": 3}),
            "mid": ("TRANSFORM", {"set": {"x": "${payload.missing}"}}),
            "out": "COLLECT_TERMINAL",
        },
        "in > mid > out",
    )

    outcome = await run.execute()

    assert outcome.error["code"] == "bad_input"
    assert outcome.error["nodeId"] == "mid"
    assert "${payload.missing}" in outcome.error["detail"]


@pytest.mark.feature("EXT-02")
@virtual_time
async def test_lines_from_a_thread_arrive_in_order_and_before_the_end_of_their_node(world):
    @processor("CHATTY")
    def chatty(msg, cfg, ctx):
        for part in range(10):
            ctx.log(f"{msg.payload['n']}.{part}")
        return msg

    run = world.run(
        {"in": ("SEQUENCE_TRIGGER", {"count": 50}), "mid": "CHATTY", "out": "NULL_TERMINAL"},
        "in > mid > out",
        chatty,
    )

    await run.execute()

    assert [line for _, line in world.lines()] == [
        f"{n}.{part}" for n in range(50) for part in range(10)
    ]
    last_line = max(i for i, e in enumerate(world.events) if e.type == "node.log")
    ended = next(
        i
        for i, e in enumerate(world.events)
        if e.type == "node.status" and e.node_id == "mid" and e.data["status"] == "SUCCESS"
    )
    assert last_line < ended


@pytest.mark.feature("EXT-02")
@virtual_time
async def test_a_flood_of_lines_from_a_thread_is_bounded_and_says_what_it_lost(world):
    @processor("FLOOD")
    def flood(msg, cfg, ctx):
        for n in range(30_000):
            ctx.log(str(n))

    run = world.run(
        {"in": ("SEQUENCE_TRIGGER", {"count": 1}), "mid": "FLOOD", "out": "NULL_TERMINAL"},
        "in > mid > out",
        flood,
    )
    # The loop is kept busy while the thread writes, so nothing is drained meanwhile.
    asyncio.get_running_loop().call_later(0, time.sleep, 0.3)

    await run.execute()

    lines = [line for _, line in world.lines()]
    lost = sum(int(line.split()[0]) for line in lines if line.endswith("lines dropped here"))
    kept = [line for line in lines if not line.endswith("lines dropped here")]
    assert len(kept) + lost == 30_000
    assert [int(line) for line in kept] == sorted(int(line) for line in kept)


@virtual_time
async def test_case_10_a_line_of_500_nodes_and_20_000_messages_through_one_node(new_world):
    ids = ["in", *(f"n{i}" for i in range(498)), "out"]
    world = new_world()
    nodes = dict.fromkeys(ids, "PASS") | {
        "in": ("SEQUENCE_TRIGGER", {"count": 1}),
        "out": "COLLECT_TERMINAL",
    }
    long = world.run(nodes, ", ".join(f"{a} > {b}" for a, b in pairwise(ids)))
    wide_world = new_world()
    wide = wide_world.run(
        {"in": ("SEQUENCE_TRIGGER", {"count": 20_000}), "mid": "PASS", "out": "COLLECT_TERMINAL"},
        "in > mid > out",
    )

    assert (await long.execute()).status is TaskStatus.SUCCESS
    assert (await wide.execute()).status is TaskStatus.SUCCESS
    assert len(world.payloads()) == 1
    assert len(wide_world.payloads()) == 20_000


@pytest.mark.feature("ENG-01")
@virtual_time
async def test_case_01_300_messages_fan_out_to_20_children_and_join_with_a_demand_of_one(world):
    world.settings = world.settings.model_copy(
        update={"execution": world.settings.execution.model_copy(update={"prefetch": 1})}
    )
    children = [f"c{i}" for i in range(20)]
    nodes = {"in": ("SEQUENCE_TRIGGER", {"count": 300}), "a": "PASS"}
    nodes |= dict.fromkeys(children, "PASS") | {"join": "PASS", "out": "COLLECT_TERMINAL"}
    edges = ["in > a", "join > out"] + [f"a > {child} > join" for child in children]
    run = world.run(nodes, ", ".join(edges))

    outcome = await run.execute()

    assert outcome.status is TaskStatus.SUCCESS
    assert outcome.nodes["join"]["in"] == 300 * 20
    assert outcome.seconds == 0, "no timer fired"


@pytest.mark.feature("ENG-01")
@virtual_time
async def test_20_nodes_and_10_000_messages_never_hold_more_than_their_edges_may(world):
    ids = ["in", *(f"n{i}" for i in range(18)), "out"]
    nodes = dict.fromkeys(ids, "PASS") | {
        "in": ("SEQUENCE_TRIGGER", {"count": 10_000}),
        "out": "NULL_TERMINAL",
    }
    peak = 0

    @processor("METER", blocking=False)
    def meter(msg, cfg, ctx):
        nonlocal peak
        peak = max(peak, *(edge.waiting for edge in run.edges))
        return msg

    nodes["n17"] = "METER"
    run = world.run(nodes, ", ".join(f"{a} > {b}" for a, b in pairwise(ids)), meter)

    outcome = await run.execute()

    assert outcome.totals["out"] == 10_000
    assert 0 < peak <= 64


async def _async_terminal(msg, cfg, ctx):
    ctx.log(str(msg.payload["n"]))


async def _async_generator_terminal(msg, cfg, ctx):
    ctx.log(str(msg.payload["n"]))
    yield msg


def _generator_terminal(msg, cfg, ctx):
    ctx.log(str(msg.payload["n"]))
    yield msg


def _sync_terminal(msg, cfg, ctx):
    ctx.log(str(msg.payload["n"]))
    return "ignored"


@pytest.mark.parametrize(
    ("fn", "declared"),
    [
        (_async_terminal, {}),
        (_async_generator_terminal, {}),
        (_generator_terminal, {"blocking": True}),
        (_generator_terminal, {"blocking": False}),
        (_sync_terminal, {"blocking": True}),
        (_sync_terminal, {"blocking": False}),
    ],
)
@virtual_time
async def test_a_terminal_of_every_shape_sees_each_message_once(world, fn, declared):
    end = terminal("END", **declared)(fn)
    run = world.run({"in": ("SEQUENCE_TRIGGER", {"count": 5}), "out": "END"}, "in > out", end)

    outcome = await run.execute()

    assert outcome.status is TaskStatus.SUCCESS
    assert [line for _, line in world.lines()] == ["0", "1", "2", "3", "4"]
    assert [payload["n"] for payload in world.payloads()] == [0, 1, 2, 3, 4]
    assert outcome.nodes["out"]["out"] == 0


@virtual_time
async def test_hooks_may_be_async_or_blocking_and_get_no_config_that_depends_on_a_message(world):
    seen = []

    class Named(PluginConfig):
        name: str

    async def opened(cfg, ctx):
        seen.append(("open", cfg))

    def closed(cfg, ctx):
        seen.append(("close", threading.current_thread() is threading.main_thread()))

    @processor("HOOKED", config=Named, open=opened, close=closed)
    def hooked(msg, cfg, ctx):
        return cfg.name

    run = world.run(
        {
            "in": ("SEQUENCE_TRIGGER", {"count": 2}),
            "mid": ("HOOKED", {"name": "n${payload.n}"}),
            "out": "COLLECT_TERMINAL",
        },
        "in > mid > out",
        hooked,
    )

    outcome = await run.execute()

    assert outcome.status is TaskStatus.SUCCESS
    assert world.payloads() == ["n0", "n1"]
    assert seen == [("open", None), ("close", False)]


@virtual_time
async def test_a_trigger_may_route_choose_ids_and_be_a_coroutine(world):
    @trigger("MIXED", ports=["side"])
    async def mixed(cfg, ctx):
        return iter([1, to_port("side", 2), Message.of(3, headers={"h": 1}, id="mine")])

    run = world.run(
        {"in": "MIXED", "a": "COLLECT_TERMINAL", "b": "COLLECT_TERMINAL"},
        "in > a, in.side > b",
        mixed,
    )

    outcome = await run.execute()

    assert outcome.status is TaskStatus.SUCCESS
    assert (world.payloads("a"), world.payloads("b")) == ([1, 3], [2])
    named = next(item for item in world.results if item.payload == 3)
    assert (named.message_id, named.headers) == ("mine", {"h": 1})


@virtual_time
async def test_a_stream_plugin_that_names_causes_gives_each_output_an_id_of_its_own(world):
    @processor("PAIRS")
    class Pairs(ProcessorPlugin):
        async def transform(self, stream, cfg, ctx):
            first = None
            async for msg in stream:
                if first is None:
                    first = msg
                    continue
                # For one, for both, and for the first again.
                yield Message.of("a", causes=[first])
                yield Message.of("b", causes=[first, msg])
                yield Message.of("c", causes=[first])
                first = None

    run = world.run(
        {"in": ("SEQUENCE_TRIGGER", {"count": 6}), "mid": "PAIRS", "out": "COLLECT_TERMINAL"},
        "in > mid > out",
        Pairs,
    )

    await run.execute()

    ids = [item.message_id for item in world.results if item.message_id]
    assert world.payloads() == ["a", "b", "c"] * 3
    assert len(set(ids)) == 9


@pytest.mark.feature("ENG-02")
@virtual_time
async def test_batches_of_batches_have_ids_of_their_own(world):
    nodes = {
        "in": ("SEQUENCE_TRIGGER", {"count": 27}),
        "a": ("BATCH", {"size": 3}),
        "b": ("BATCH", {"size": 3}),
        "c": ("BATCH", {"size": 3}),
        "out": "COLLECT_TERMINAL",
    }

    outcome = await world.run(nodes, "in > a > b > c > out").execute()

    [whole] = world.payloads()
    assert str(outcome.status) == "SUCCESS"
    assert [n["n"] for b in whole["items"] for a in b["items"] for n in a["items"]] == list(
        range(27)
    )
