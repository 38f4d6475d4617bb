"""SESSION_MEMORY: conversations that outlive runs and a store that is away."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from yukta_rx.nodes.session_memory import session_memory
from yukta_rx.plugins.contract import check_config, spec_of
from yukta_rx.testing import PluginHarness, WorkflowHarness, virtual_time

pytestmark = pytest.mark.feature("DUR-04")

SPEC = spec_of(session_memory)
SAY = {"op": "append", "sessionKey": "${payload.chat}", "text": "${payload.says}"}


def through(*steps: dict[str, Any], engine: dict[str, Any] | None = None) -> dict[str, Any]:
    """The items of the payload through nodes n0, n1 and so on."""
    policy = {} if engine is None else {"engine": engine}
    nodes = [{"nodeId": "in", "type": "API_TRIGGER", "config": {"splitPath": "items"}}]
    for number, config in enumerate(steps):
        nodes.append(
            {"nodeId": f"n{number}", "type": "SESSION_MEMORY", "config": {**config, **policy}}
        )
    nodes.append({"nodeId": "out", "type": "COLLECT_TERMINAL"})
    edges = [{"source": a["nodeId"], "target": b["nodeId"]} for a, b in pairwise(nodes)]
    return {"workflowId": "w", "nodes": nodes, "edges": edges}


def said(payload: Any) -> list[tuple[str, str]]:
    return [(turn["role"], turn["content"]) for turn in payload["history"]]


def test_a_conversation_grows_turn_by_turn() -> None:
    with PluginHarness(session_memory, SAY) as h:
        outputs = h.send({"chat": "a", "says": "hello"}, {"chat": "a", "says": "you?"}).payloads

    assert outputs[0] == {
        "chat": "a",
        "says": "hello",
        "history": [{"role": "user", "content": "hello"}],
    }
    assert said(outputs[1]) == [("user", "hello"), ("user", "you?")]


@virtual_time
async def test_nodes_and_runs_of_a_session_share_a_conversation() -> None:
    flow = through(SAY, {**SAY, "role": "assistant", "text": "to ${payload.says}"})
    items = {"items": [{"chat": "a", "says": "1"}, {"chat": "b", "says": "2"}]}
    async with WorkflowHarness(flow, payload=items) as h:
        await h.until(status="SUCCESS")
        keeping = h.run.keeping
        assert [said(one) for one in h.results("out").payloads] == [
            [("user", "1"), ("assistant", "to 1")],
            [("user", "2"), ("assistant", "to 2")],
        ]

    again = through({"op": "load", "sessionKey": "a"}, {"op": "clear", "sessionKey": "a"})
    async with WorkflowHarness(again, payload={"items": [{}, {}]}, keeping=keeping) as h:
        await h.until(status="SUCCESS")
        loaded = [said(one) for one in h.node("n0").outputs.payloads]
        cleared = [said(one) for one in h.results("out").payloads]

    assert loaded[0] == [("user", "1"), ("assistant", "to 1")]
    assert cleared == [[], []]


def test_only_so_many_turns_are_kept_and_given() -> None:
    with PluginHarness(session_memory, {**SAY, "maxTurns": 3}) as h:
        outputs = h.send(*({"chat": "a", "says": str(n)} for n in range(6))).payloads

    assert [len(one["history"]) for one in outputs] == [1, 2, 3, 3, 3, 3]
    assert said(outputs[-1]) == [("user", "3"), ("user", "4"), ("user", "5")]


@virtual_time
async def test_a_run_that_is_repeated_says_nothing_twice() -> None:
    items = {"items": [{"chat": "a", "says": str(n)} for n in range(10)]}
    async with WorkflowHarness(through(SAY), payload=items) as h:
        await h.until(status="SUCCESS")
        keeping = h.run.keeping

    # Of the same lineage, as a run and its resumed one are.
    async with WorkflowHarness(through(SAY), payload=items, keeping=keeping) as h:
        await h.until(status="SUCCESS")
        last = h.results("out").payloads[-1]

    assert said(last) == [("user", str(n)) for n in range(10)]


@virtual_time
async def test_a_conversation_ends_when_its_time_is_up() -> None:
    flow = through(SAY)
    flow["nodes"][0] = {
        "nodeId": "in",
        "type": "SEQUENCE_TRIGGER",
        "config": {"count": 4, "intervalMs": 40_000},
    }
    flow["nodes"][1]["config"] = {"op": "append", "sessionKey": "a", "text": "${payload.n}"}
    pause = {"nodeId": "wait", "type": "DELAY", "config": {"ms": 0}}
    flow["nodes"].append(pause)
    flow["edges"][0] = {"source": "in", "target": "wait"}
    flow["edges"].append({"source": "wait", "target": "n0"})

    async def turns(ttl: str) -> list[int]:
        settings = {"yukta.session-memory.ttl": ttl}
        async with WorkflowHarness(flow, settings=settings) as h:
            await h.until(status="SUCCESS")
            return [len(one["history"]) for one in h.results("out").payloads]

    assert await turns("41s") == [1, 2, 3, 4]
    assert await turns("39s") == [1, 1, 1, 1]


@pytest.mark.parametrize("payload", [7, "text", [1], None])
@virtual_time
async def test_a_payload_without_place_for_the_turns_fails_and_says_nothing(payload) -> None:
    config = {"op": "append", "sessionKey": "a", "text": "hello"}
    flow = through(config, engine={"onError": "CONTINUE"})
    async with WorkflowHarness(flow, payload={"items": [payload]}) as h:
        await h.until(status="SUCCESS")
        (failed,) = [one.data for one in h.events if one.type == "node.message_failed"]

    assert failed["error"]["exception"] == "BadInputError"
    assert "history" in failed["error"]["detail"]
    assert h.run.keeping.histories.store.kept == 0


@pytest.mark.parametrize(
    ("config", "option"),
    [
        ({"sessionKey": "a"}, "op"),
        ({"op": "load"}, "sessionKey"),
        ({"op": "load", "sessionKey": ""}, "sessionKey"),
        ({"op": "load", "sessionKey": "a", "maxTurns": 0}, "maxTurns"),
        ({"op": "load", "sessionKey": "a", "maxTurns": 1001}, "maxTurns"),
        ({"op": "append", "sessionKey": "a", "text": "x", "role": ""}, "role"),
        ({"op": "append", "sessionKey": "a", "text": 1}, "text"),
    ],
)
def test_options_have_bounds(config, option) -> None:
    (fault,) = check_config(SPEC, config)

    assert fault.option == option


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"op": "append", "sessionKey": "a"}, "needs a `text`"),
        ({"op": "load", "sessionKey": "a", "text": "x"}, "goes with op append"),
        ({"op": "clear", "sessionKey": "a", "role": "user"}, "goes with op append"),
    ],
)
def test_options_go_with_their_operation(config, told) -> None:
    (fault,) = check_config(SPEC, config)

    assert told in fault.detail
