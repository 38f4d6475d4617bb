"""Stand-ins: what may take the place of a node type, and what of that type stays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pydantic import Field

from yukta_rx import Message, NodeContext, PluginConfig, processor, terminal, trigger
from yukta_rx.config.load import load_settings
from yukta_rx.errors import ConfigError, DefinitionError
from yukta_rx.plugins.contract import PluginKind
from yukta_rx.testing import WorkflowHarness, virtual_time
from yukta_rx.testing.stand_in import registry_with

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = pytest.mark.feature("EXT-01")

SETTINGS = load_settings(environ={})


def line(type_: str, config: dict[str, Any] | None = None, port: str | None = None) -> dict:
    """Numbers 0 to 2, a node of a type, and a terminal behind one of its ports."""
    edge = {"source": "it", "target": "out"} | ({"sourcePort": port} if port else {})
    return {
        "workflowId": "w",
        "nodes": [
            {"nodeId": "numbers", "type": "SEQUENCE_TRIGGER", "config": {"count": 3}},
            {"nodeId": "it", "type": type_, "config": config or {}},
            {"nodeId": "out", "type": "COLLECT_TERMINAL"},
        ],
        "edges": [{"source": "numbers", "target": "it"}, edge],
    }


async def results(definition: dict, plugins: Any, **options: Any) -> list[Any]:
    async with WorkflowHarness(definition, plugins, **options) as h:
        await h.until(status="SUCCESS")
        return h.results("out").payloads


# -- functions of a message


async def later(msg: Message) -> int:
    return int(msg.payload["n"])


def twice(msg: Message) -> Iterator[int]:
    yield msg.payload["n"]
    yield msg.payload["n"]


async def twice_later(msg: Message) -> AsyncIterator[int]:
    yield msg.payload["n"]
    yield msg.payload["n"]


@pytest.mark.parametrize(
    ("fake", "wanted"),
    [
        (lambda msg: msg.payload["n"], [0, 1, 2]),
        (lambda msg: None, []),
        (later, [0, 1, 2]),
        (twice, [0, 0, 1, 1, 2, 2]),
        (twice_later, [0, 0, 1, 1, 2, 2]),
    ],
    ids=["function", "dropping", "coroutine", "generator", "async generator"],
)
@virtual_time
async def test_a_function_of_a_message_stands_in_for_a_type(fake: Any, wanted: list[int]) -> None:
    # BATCH works on the whole stream, so the shape is another one too.
    assert await results(line("BATCH", {"size": 2}), {"BATCH": fake}) == wanted


@virtual_time
async def test_options_are_still_those_of_the_real_type() -> None:
    with pytest.raises(DefinitionError, match="sise"):
        WorkflowHarness(line("BATCH", {"sise": 2}), {"BATCH": later})


@virtual_time
async def test_ports_are_still_those_of_the_real_type() -> None:
    from yukta_rx import to_port

    switch = line("SWITCH", {"cases": [{"port": "odd", "when": "payload.n == 1"}]}, port="odd")

    found = await results(switch, {"SWITCH": lambda msg: to_port("odd", msg)})
    assert found == [{"n": 0}, {"n": 1}, {"n": 2}]
    with pytest.raises(DefinitionError, match="even"):
        WorkflowHarness(
            line("SWITCH", switch["nodes"][1]["config"], port="even"), {"SWITCH": later}
        )


@virtual_time
async def test_a_type_that_is_not_there_takes_any_options() -> None:
    definition = line("CALL_THE_BANK", {"account": "${payload.n}", "deep": {"er": [1]}})

    assert await results(definition, {"CALL_THE_BANK": later}) == [0, 1, 2]


@virtual_time
async def test_a_type_that_has_to_be_allowed_can_be_replaced_without() -> None:
    definition = line("FAULT_INJECTOR", {"failTimes": 1})

    with pytest.raises(DefinitionError, match="allow-fault-injection"):
        WorkflowHarness(definition)
    assert await results(definition, {"FAULT_INJECTOR": later}) == [0, 1, 2]


@virtual_time
async def test_a_terminal_can_be_a_function_too() -> None:
    taken: list[Any] = []
    definition = line("TRANSFORM", {"set": {"ok": True}})

    found = await results(definition, {"COLLECT_TERMINAL": lambda msg: taken.append(msg.payload)})

    assert taken == found == [{"n": n, "ok": True} for n in range(3)]


# -- decorated plugins


class Greeting(PluginConfig):
    word: str = Field("hello", description="What is said.")


@virtual_time
async def test_a_decorated_plugin_has_the_options_of_what_it_stands_for() -> None:
    @processor("FAKE", blocking=False)
    def fake(msg: Message, cfg: Any, ctx: NodeContext) -> Any:
        return [cfg.size, msg.payload["n"]]

    found = await results(line("BATCH", {"size": 7}), {"BATCH": fake})

    assert found == [[7, 0], [7, 1], [7, 2]]


@virtual_time
async def test_a_decorated_plugin_with_options_of_its_own_keeps_them() -> None:
    @processor("FAKE", config=Greeting, blocking=False)
    def fake(msg: Message, cfg: Greeting, ctx: NodeContext) -> str:
        return cfg.word

    assert await results(line("BATCH", {"word": "hi"}), {"BATCH": fake}) == ["hi", "hi", "hi"]
    with pytest.raises(DefinitionError, match="size"):
        WorkflowHarness(line("BATCH", {"size": 2}), {"BATCH": fake})


@virtual_time
async def test_further_types_are_given_by_name_or_in_a_list() -> None:
    @processor("GREET", config=Greeting, blocking=False)
    def greet(msg: Message, cfg: Greeting, ctx: NodeContext) -> str:
        return cfg.word

    assert await results(line("GREET"), [greet]) == ["hello"] * 3
    assert await results(line("SALUTE"), {"SALUTE": greet}) == ["hello"] * 3


# -- triggers


@virtual_time
async def test_a_list_of_payloads_stands_in_for_a_trigger() -> None:
    definition = line("TRANSFORM", {"set": {"seen": True}})

    found = await results(definition, {"SEQUENCE_TRIGGER": [{"a": 1}, {"a": 2}]})

    assert found == [{"a": 1, "seen": True}, {"a": 2, "seen": True}]


@virtual_time
async def test_a_decorated_trigger_stands_in_for_a_trigger() -> None:
    @trigger("FAKE")
    async def fake(cfg: Any, ctx: NodeContext) -> AsyncIterator[Any]:
        for n in range(cfg.count):
            await ctx.clock.sleep(60)
            yield {"tick": n}

    found = await results(line("TRANSFORM", {"set": {}}), {"SEQUENCE_TRIGGER": fake})

    assert found == [{"tick": 0}, {"tick": 1}, {"tick": 2}]


# -- refusals


@terminal("A_TERMINAL", blocking=False)
def a_terminal(msg: Message, cfg: Any, ctx: NodeContext) -> None:
    """Take everything."""


@pytest.mark.parametrize(
    ("plugins", "told"),
    [
        ({"BATCH": a_terminal}, "BATCH is a processor; a terminal cannot stand in for it"),
        ({"BATCH": 7}, "BATCH: 7 cannot stand in for it; give a decorated plugin or a function"),
        ({"BATCH": lambda msg, cfg: msg}, r"is called as \(msg\), but takes \(msg, cfg\)"),
        ({"API_TRIGGER": later}, "API_TRIGGER is a trigger: a list of payloads or a @trigger"),
        ({"API_TRIGGER": "abc"}, "API_TRIGGER is a trigger: a list of payloads or a @trigger"),
        ([later], "is not a plugin"),
    ],
)
def test_what_cannot_stand_in_is_refused_by_type(plugins: Any, told: str) -> None:
    with pytest.raises(TypeError, match=told):
        registry_with(plugins, SETTINGS)


def test_a_stand_in_that_no_node_needs_is_refused() -> None:
    with pytest.raises(ValueError, match="no node has the type BACH; the workflow has BATCH, COLL"):
        WorkflowHarness(line("BATCH", {"size": 2}), {"BACH": later})


def test_the_other_types_are_as_they_were() -> None:
    registry = registry_with({"BATCH": later, "NEW": later}, SETTINGS)

    assert "NEW" in registry
    assert registry.get("NEW").kind is PluginKind.PROCESSOR
    assert registry.get("SPLIT").source == registry_with(None, SETTINGS).get("SPLIT").source
    assert registry.get("BATCH").source.endswith("later")


def test_two_plugins_of_one_type_in_a_list_are_refused() -> None:
    with pytest.raises(ConfigError, match="A_TERMINAL is given twice"):
        registry_with([a_terminal, a_terminal], SETTINGS)
