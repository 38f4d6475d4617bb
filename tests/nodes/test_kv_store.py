"""KV_STORE: values that outlive runs, and counts that no repeat counts twice."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from yukta_rx.config.settings import Settings
from yukta_rx.definitions.parse import parse_definition
from yukta_rx.definitions.prepare import prepare
from yukta_rx.durability.file.key_values import FileKeyValueStore
from yukta_rx.durability.memory.effects import MemoryEffectStore
from yukta_rx.durability.memory.histories import MemoryHistoryStore
from yukta_rx.engine.keeping import Keeping
from yukta_rx.engine.run import Run
from yukta_rx.nodes.kv_store import kv_store
from yukta_rx.plugins.contract import check_config, spec_of
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.streams.clock import LoopClock
from yukta_rx.testing import PluginHarness, WorkflowHarness, virtual_time

pytestmark = pytest.mark.feature("DUR-04")

SPEC = spec_of(kv_store)
SETTINGS = Settings()


def through(*steps: dict[str, Any], engine: dict[str, Any] | None = None) -> dict[str, Any]:
    """The items of the payload through nodes n0, n1 and so on."""
    policy = {} if engine is None else {"engine": engine}
    nodes = [{"nodeId": "in", "type": "API_TRIGGER", "config": {"splitPath": "items"}}]
    for number, config in enumerate(steps):
        config = {**config, **policy}
        nodes.append({"nodeId": f"n{number}", "type": "KV_STORE", "config": config})
    nodes.append({"nodeId": "out", "type": "COLLECT_TERMINAL"})
    ids = [node["nodeId"] for node in nodes]
    edges = [{"source": a, "target": b} for a, b in pairwise(ids)]
    return {"workflowId": "w", "nodes": nodes, "edges": edges}


@virtual_time
async def test_what_one_node_puts_another_gets_counts_and_removes() -> None:
    flow = through(
        {"op": "put", "key": "k/${payload.id}", "value": "${payload.n:json}", "target": "put"},
        {"op": "incr", "key": "k/${payload.id}", "by": 10, "target": "sum"},
        {"op": "get", "key": "k/${payload.id}", "target": "got"},
        {"op": "remove", "key": "k/${payload.id}", "target": "gone"},
        {"op": "get", "key": "k/${payload.id}", "target": "rest.of.it"},
    )

    async with WorkflowHarness(flow, payload={"items": [{"id": "a", "n": 1}]}) as h:
        await h.until(status="SUCCESS")

        assert h.results("out").payloads == [
            {
                "id": "a",
                "n": 1,
                "put": 1,
                "sum": 11,
                "got": 11,
                "gone": 11,
                "rest": {"of": {"it": None}},
            }
        ]


def test_values_of_every_kind_outlive_a_run() -> None:
    values = [None, True, 1.5, "", "ä\0", [], {"a": [1, {"b": None}]}, 2**70]
    with PluginHarness(
        kv_store, {"op": "put", "key": "${payload.key}", "value": "${payload.v:json}"}
    ) as put:
        payloads = [{"key": str(number), "v": one} for number, one in enumerate(values)]
        outputs = put.send(*payloads).payloads

    assert [one["value"] for one in outputs] == values
    assert [list(one) for one in outputs] == [["key", "v", "value"]] * len(values)


def test_incr_counts_from_zero_and_by_any_whole_number() -> None:
    with PluginHarness(kv_store, {"op": "incr", "key": "n", "by": "${payload.by:int}"}) as h:
        sums = [one["value"] for one in h.send({"by": 1}, {"by": -5}, {"by": 0}).payloads]

        assert sums == [1, -4, -4]
        assert [one["value"] for one in h.send({"by": 2**63 - 1}).payloads] == [2**63 - 5]


def test_the_payload_itself_is_left_as_it_was() -> None:
    payload = {"a": {"b": 1}}
    with PluginHarness(kv_store, {"op": "incr", "key": "n", "target": "a.n"}) as h:
        assert h.send(payload).payloads == [{"a": {"b": 1, "n": 1}}]

    assert payload == {"a": {"b": 1}}


@pytest.mark.parametrize(
    ("payload", "kind", "told"),
    [
        ({"v": "x"}, "BadInputError", "whole number"),
        ({"v": 2**63 - 1}, "BadInputError", "64 bits"),
        ([1], "BadInputError", "value"),
        (7, "BadInputError", "value"),
    ],
)
@virtual_time
async def test_what_cannot_be_counted_fails_and_changes_nothing(payload, kind, told) -> None:
    held = payload["v"] if isinstance(payload, dict) else 5
    flow = through({"op": "incr", "key": "n"}, engine={"onError": "CONTINUE"})
    async with WorkflowHarness(flow, payload={"items": []}) as before:
        await before.until(status="SUCCESS")
        keeping = before.run.keeping
    await keeping.key_values.put("local", "n", held, cap=10)

    async with WorkflowHarness(flow, payload={"items": [payload]}, keeping=keeping) as h:
        await h.until(status="SUCCESS")
        (failed,) = [one.data for one in h.events if one.type == "node.message_failed"]

    assert failed["error"]["exception"] == kind
    assert told in failed["error"]["detail"]
    assert (await keeping.key_values.get("local", "n")).value == held


@virtual_time
async def test_a_session_has_no_more_keys_than_it_may() -> None:
    flow = through(
        {"op": "put", "key": "${payload.k}", "value": 1, "maxEntries": 3},
        engine={"onError": "CONTINUE"},
    )
    items = [{"k": key} for key in ("a", "b", "a", "c", "d", "b", "e")]
    async with WorkflowHarness(flow, payload={"items": items}) as h:
        await h.until(status="SUCCESS")

        assert [one["k"] for one in h.results("out").payloads] == ["a", "b", "a", "c", "b"]
        failed = [one.data for one in h.events if one.type == "node.message_failed"]
        assert [one["error"]["exception"] for one in failed] == ["KeyValueFullError"] * 2
        assert "maxEntries" in failed[0]["error"]["detail"]


@virtual_time
async def test_a_run_that_is_repeated_counts_nothing_twice() -> None:
    flow = through({"op": "incr", "key": "n"}, {"op": "remove", "key": "old", "target": "old"})
    items = {"items": [{"i": i} for i in range(100)]}
    async with WorkflowHarness(through(), payload={"items": []}) as before:
        await before.until(status="SUCCESS")
        keeping = before.run.keeping
    await keeping.key_values.put("local", "old", "was here", cap=10)

    seen = []
    for _ in range(2):
        # Of one lineage, as a run and its resumed one are.
        async with WorkflowHarness(flow, payload=items, keeping=keeping) as h:
            await h.until(status="SUCCESS")
            seen.append(h.results("out").payloads)

    assert seen[0] == seen[1]
    assert [one["value"] for one in seen[0]] == list(range(1, 101))
    assert [one["old"] for one in seen[0]] == ["was here", *[None] * 99]
    assert (await keeping.key_values.get("local", "n")).value == 100


async def test_a_count_and_that_it_was_counted_survive_together(tmp_path) -> None:
    # In real time: a virtual clock would be stopped by the disk at each message.
    async def run(items: int) -> list[int]:
        async with FileKeyValueStore(tmp_path) as store:
            clock = LoopClock(asyncio.get_running_loop())
            keeping = Keeping(MemoryEffectStore(), store, MemoryHistoryStore(), clock)
            return await counted(items, keeping)

    assert await run(5) == [1, 2, 3, 4, 5]
    # The process ends here, and another one takes the run up: it had not got far.
    assert await run(7) == [1, 2, 3, 4, 5, 6, 7]


async def counted(items: int, keeping: Keeping) -> list[int]:
    """What a run counts whose lineage is always the same."""
    sums: list[int] = []
    registry = PluginRegistry.load(SETTINGS)
    document = parse_definition(through({"op": "incr", "key": "n"}))
    run = Run(
        prepare(document, registry, settings=SETTINGS),
        payload={"items": [{}] * items},
        settings=SETTINGS,
        publish=lambda result: result.message_id and sums.append(result.payload["value"]),
        lineage="one",
        keeping=keeping,
    )
    await run.execute()
    return sums


@pytest.mark.parametrize(
    ("config", "option"),
    [
        ({"key": "k"}, "op"),
        ({"op": "get"}, "key"),
        ({"op": "drop", "key": "k"}, "op"),
        ({"op": "get", "key": ""}, "key"),
        ({"op": "get", "key": "x" * 501}, "key"),
        ({"op": "get", "key": 1}, "key"),
        ({"op": "incr", "key": "k", "by": 1.0}, "by"),
        ({"op": "incr", "key": "k", "by": True}, "by"),
        ({"op": "put", "key": "k", "value": 1, "maxEntries": 0}, "maxEntries"),
        ({"op": "get", "key": "k", "target": "a..b"}, "target"),
    ],
)
def test_options_have_bounds(config, option) -> None:
    (fault,) = check_config(SPEC, config)

    assert fault.option == option


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"op": "put", "key": "k"}, "needs a `value`"),
        ({"op": "get", "key": "k", "value": 1}, "goes with op put"),
        ({"op": "put", "key": "k", "value": 1, "by": 1}, "goes with op incr"),
    ],
)
def test_options_go_with_their_operation(config, told) -> None:
    (fault,) = check_config(SPEC, config)

    assert told in fault.detail


def test_null_is_a_value() -> None:
    assert check_config(SPEC, {"op": "put", "key": "k", "value": None}) == []


@virtual_time
async def test_what_runs_below_a_run_do_is_forgotten_with_it() -> None:
    below = {**through({"op": "incr", "key": "n"}), "workflowId": "below"}
    below["nodes"][0] = {"nodeId": "in", "type": "API_TRIGGER"}
    flow = through()
    flow["nodes"].append(
        {"nodeId": "sub", "type": "SUB_WORKFLOW", "config": {"workflowId": "below"}}
    )
    flow["edges"] = [{"source": "in", "target": "sub"}, {"source": "sub", "target": "out"}]
    items = {"items": [{}, {}]}
    async with WorkflowHarness(flow, workflows=[below], payload=items) as h:
        await h.until(status="SUCCESS")
        keeping, lineage = h.run.keeping, h.run.lineage

    async def counted() -> int:
        async with WorkflowHarness(
            flow, workflows=[below], payload=items, keeping=keeping
        ) as again:
            await again.until(status="SUCCESS")
        found = await keeping.key_values.get("local", "n")
        return found.value

    assert await counted() == 2
    await keeping.forget(lineage)
    assert await counted() == 4
