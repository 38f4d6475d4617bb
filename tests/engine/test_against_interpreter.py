"""Random graphs, policies, plugins, failures and steering: the engine agrees with a plain model.

`YUKTA_TEST_EXAMPLES=50000` looks at as many graphs.
"""

import asyncio
import os
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.interpreter import Spec, Work, interpret, run_statuses
from yukta_rx.config.settings import Settings
from yukta_rx.definitions.parse import parse_definition
from yukta_rx.definitions.prepare import prepare
from yukta_rx.engine.run import Run
from yukta_rx.errors import BadInputError
from yukta_rx.plugins.contract import processor, terminal, trigger
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.testing.clock import run_virtual

pytestmark = [
    pytest.mark.feature("ENG-01", "ENG-03", "ENG-04", "ENG-06"),
    pytest.mark.slow,
    pytest.mark.timeout(7200),
]

EXAMPLES = int(os.environ.get("YUKTA_TEST_EXAMPLES", "150"))

SHAPES = [
    *("sync", "coroutine", "generator", "async generator"),
    *("blocking", "blocking generator"),
]
ASYNC = {"coroutine", "async generator"}
ENDS_WELL = {"SUCCESS", "SKIPPED"}
COUNTED = ("in", "out", "failed", "retried", "deadLettered", "skipped")


# -- graphs


@st.composite
def works(draw):
    fails = draw(st.sampled_from([0, 0, 1, 2, 99]))
    bad_input = fails > 0 and draw(st.booleans()) and draw(st.booleans())
    return Work(
        every=draw(st.sampled_from([2, 3, 7, 25])),
        copies=draw(st.integers(0, 3)),
        fails=fails,
        bad_input=bad_input,
        hangs=not bad_input and draw(st.booleans()),
    )


@st.composite
def processors(draw, name, outlets):
    shape = draw(st.sampled_from(SHAPES))
    edges = draw(st.lists(st.sampled_from(outlets), min_size=1, max_size=3, unique=True))
    parents = tuple(
        (node, port, draw(st.booleans()) or draw(st.booleans())) for node, port in edges
    )
    # A parent counts if one of its edges is required; the interpreter wants them to agree.
    needed = {node for node, _, required in parents if required}
    parents = tuple((node, port, node in needed) for node, port, _ in parents)
    on_error = draw(st.sampled_from(["FAIL", "CONTINUE", "ROUTE"]))
    rules = ["ALL_SUCCESS", "ALL_DONE", "ONE_SUCCESS"]
    return Spec(
        name,
        shape,
        parents=parents,
        work=draw(works()),
        attempts=draw(st.sampled_from([1, 1, 2, 3])),
        on_error=on_error,
        budget=None if on_error == "FAIL" else draw(st.sampled_from([None, None, 0, 2])),
        timed=draw(st.booleans()) and draw(st.booleans()),
        trigger=draw(st.sampled_from([*rules, *([len(needed)] if needed else [])])),
        concurrency=(
            (draw(st.sampled_from([1, 2, 5])), draw(st.booleans())) if shape in ASYNC else (1, True)
        ),
        buffer=draw(
            st.sampled_from(
                [None] * 4 + [("BLOCK", 3), ("SPILL", 2), ("DROP_OLDEST", 4), ("DROP_NEWEST", 4)]
            )
        ),
        skipped=draw(st.sampled_from([False] * 5 + [True])),
    )


@st.composite
def graphs(draw):
    """Nodes, parents first; every processor has a child at its default port."""
    specs = [
        Spec(f"t{index}", "trigger", count=draw(st.integers(0, 70)))
        for index in range(draw(st.integers(1, 2)))
    ]
    outlets = [(spec.name, None) for spec in specs]
    for index in range(draw(st.integers(1, 6))):
        spec = draw(processors(f"p{index}", outlets))
        specs.append(spec)
        outlets.append((spec.name, None))
        if spec.on_error == "ROUTE":
            outlets.append((spec.name, "error"))
    taken = {(node, port) for spec in specs for node, port, _ in spec.parents}
    for node, port in outlets:
        if (node, port) not in taken and (port is None or draw(st.booleans())):
            specs.append(Spec(f"end{len(specs)}", "terminal", parents=((node, port, True),)))
    return specs


steerings = st.lists(
    st.tuples(
        st.floats(0, 30),
        st.sampled_from(["pause", "resume", "step", "pause all", "resume all", "step all"]),
        st.integers(0, 20),
        st.integers(1, 9),
    ),
    max_size=6,
)


# -- the same graph for the engine


table = {}
"""The graph under test: what a plugin does is looked up by its node."""

called = []
"""Node and message id of each call."""


def plugins():
    """A plugin per shape."""

    def begin(msg, ctx):
        """Fail if that is the plan; True if it should hang."""
        spec = table[ctx.node_id]
        called.append((ctx.node_id, msg.id))
        assert ctx.attempt == msg.attempt
        if not spec.acts_on(msg.payload) or msg.attempt > spec.work.fails:
            return False
        if spec.work.hangs and spec.timed and spec.shape in ASYNC:
            return True
        raise (BadInputError if spec.work.bad_input else LookupError)(str(msg.payload))

    def outputs(msg, ctx):
        """Half of the output comes before the failure."""
        made = table[ctx.node_id].made_of(msg.payload)
        yield from made[: len(made) // 2]
        begin(msg, ctx)
        yield from made[len(made) // 2 :]

    @trigger("T", blocking=False, pure=True, replayable=True)
    def start(cfg, ctx):
        """Count."""
        return ({"n": n, "path": [ctx.node_id]} for n in range(table[ctx.node_id].count))

    @processor("SYNC", blocking=False)
    def sync(msg, cfg, ctx):
        """One for one."""
        begin(msg, ctx)
        return table[ctx.node_id].made_of(msg.payload)[0]

    @processor("BLOCKING")
    def blocking(msg, cfg, ctx):
        """One for one, in a thread."""
        begin(msg, ctx)
        return table[ctx.node_id].made_of(msg.payload)[0]

    @processor("COROUTINE")
    async def coroutine(msg, cfg, ctx):
        """One for one, after a while."""
        await asyncio.sleep(msg.payload["n"] % 3 / 10)
        if begin(msg, ctx):
            await asyncio.sleep(1e9)
        return table[ctx.node_id].made_of(msg.payload)[0]

    @processor("GENERATOR", blocking=False)
    def generator(msg, cfg, ctx):
        """Any number for one."""
        yield from outputs(msg, ctx)

    @processor("BLOCKING_GENERATOR")
    def blocking_generator(msg, cfg, ctx):
        """Any number for one, in a thread."""
        yield from outputs(msg, ctx)

    @processor("ASYNC_GENERATOR")
    async def async_generator(msg, cfg, ctx):
        """Any number for one, after a while."""
        made = table[ctx.node_id].made_of(msg.payload)
        for payload in made[: len(made) // 2]:
            yield payload
        await asyncio.sleep(msg.payload["n"] % 3 / 10)
        if begin(msg, ctx):
            await asyncio.sleep(1e9)
        for payload in made[len(made) // 2 :]:
            yield payload

    @terminal("END", blocking=False, pure=True)
    def end(msg, cfg, ctx):
        """Take everything."""
        called.append((ctx.node_id, msg.id))

    return [
        *(start, sync, blocking, coroutine, generator),
        *(blocking_generator, async_generator, end),
    ]


REGISTRY = PluginRegistry.load(Settings(), extra=plugins())
"""Loaded once: looking for installed plugins takes longer than a run."""


def type_of(spec):
    named = {"trigger": "T", "terminal": "END"}
    return named.get(spec.shape, spec.shape.upper().replace(" ", "_"))


def policy_of(spec):
    engine = {}
    if spec.attempts > 1:
        engine["retry"] = {"maxAttempts": spec.attempts, "backoffMs": 100}
    if spec.on_error != "FAIL":
        engine["onError"] = spec.on_error
    if spec.budget is not None:
        engine["failureBudget"] = {"maxFailures": spec.budget, "windowMs": 10**12}
    if spec.timed:
        engine["elementTimeoutMs"] = 2000
    if spec.trigger != "ALL_SUCCESS":
        rule = spec.trigger
        engine["trigger"] = {"rule": "N_OF_M", "n": rule} if isinstance(rule, int) else rule
    if spec.concurrency != (1, True):
        engine["concurrency"] = dict(zip(("max", "ordered"), spec.concurrency, strict=True))
    if spec.buffer is not None:
        engine["edgeBuffer"] = dict(zip(("overflow", "size"), spec.buffer, strict=True))
    return {"engine": engine} if engine else {}


class Scene:
    """A run of a graph, and what it said."""

    def __init__(self, specs):
        table.clear()
        called.clear()
        table.update({spec.name: spec for spec in specs})
        document = {
            "workflowId": "w",
            "nodes": [
                {
                    "nodeId": spec.name,
                    "type": type_of(spec),
                    "config": policy_of(spec),
                    "timeoutSeconds": 0,
                }
                for spec in specs
            ],
            "edges": [
                {"source": node, "target": spec.name, "required": required}
                | ({"sourcePort": port} if port else {})
                for spec in specs
                for node, port, required in spec.parents
            ],
            "options": {"onTerminalFailure": "FINISH_OTHERS"},
        }
        self.events = []
        self.results = []
        prepared = prepare(parse_definition(document), REGISTRY, settings=Settings())
        self.run = Run(
            prepared,
            settings=Settings(),
            emit=self.events.append,
            publish=self.results.append,
            timeout=None,
        )
        for spec in specs:
            if spec.skipped:
                self.run.node(spec.name).skip(True)

    def payloads(self, node_id):
        """What reached a terminal, in order."""
        return [
            item.payload
            for item in self.results
            if item.type == "RESULT" and item.node_id == node_id
        ]


async def steer(run, steering):
    """Give commands at their times; in the end let everything go on."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    names = list(run.nodes)
    for when, what, place, n in sorted(steering):
        await asyncio.sleep(max(0, began + when - loop.time()))
        name = None if what.endswith(" all") else names[place % len(names)]
        if what.startswith("step"):
            run.step(n, name)
        elif what.startswith("pause"):
            run.pause(name)
        else:
            run.resume(name)
    run.resume()


async def play(specs, steering):
    scene = Scene(specs)
    async with asyncio.TaskGroup() as group:
        execution = group.create_task(scene.run.execute())
        group.create_task(steer(scene.run, steering))
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert left == []
    return scene, execution.result()


# -- agreement


def as_key(payload):
    return payload["n"], tuple(payload["path"])


def check(specs, fates, scene, outcome):
    assert str(outcome.status) in run_statuses(specs, fates)
    letters = Counter(event.node_id for event in scene.events if event.type == "node.dead_letter")
    for spec in specs:
        fate, state = fates[spec.name], outcome.nodes[spec.name]
        told = f"{spec}: {state}, expected {fate}"
        assert state["status"] in fate.statuses, told
        exact = fate.certain and len(fate.statuses) == 1
        told_letters, sent = letters[spec.name], state["deadLettered"]
        assert told_letters == sent if exact else told_letters >= sent, told
        if exact and not (fate.fails == "yes" and spec.concurrency[0] > 1):
            # Among several calls at once, others were taken when one failed.
            counted = {name: state[name] for name in COUNTED}
            assert counted == {name: fate.counters[name] for name in COUNTED}, told
        children = [other for other in specs for edge in other.parents if edge[0] == spec.name]
        stay = all(fates[other.name].statuses <= ENDS_WELL for other in children)
        if exact and fate.fails == "no" and stay:
            wired = any((spec.name, "error") == edge[:2] for s in specs for edge in s.parents)
            assert state["dropped"] == (0 if wired else state["deadLettered"]), told
        if spec.shape == "terminal":
            seen = [as_key(payload) for payload in scene.payloads(spec.name)]
            wanted = [as_key(payload) for payload in fate.outputs]
            if exact and fate.ordered:
                assert seen == wanted, told
            elif exact:
                assert Counter(seen) == Counter(wanted), told
            else:
                assert Counter(seen) <= Counter(wanted), told
    edges = scene.run.snapshot()["edges"]
    for edge in edges:
        source, target = outcome.nodes[edge["source"]], outcome.nodes[edge["target"]]
        if edge.get("sourcePort") is None:
            assert edge["passed"] <= source["out"], edge
        passed = sum(other["passed"] for other in edges if other["target"] == edge["target"])
        assert target["in"] <= passed, edge


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
@given(specs=graphs(), steering=steerings)
def test_the_engine_agrees_with_a_sequential_interpreter(specs, steering):
    scene, outcome = run_virtual(play(specs, steering))

    check(specs, interpret(specs), scene, outcome)
