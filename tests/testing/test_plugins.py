"""The plugin checks themselves: they accept what is right and catch each kind of wrong plugin."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import Field

from yukta_rx.plugins.contract import (
    Message,
    NodeContext,
    PluginConfig,
    ProcessorPlugin,
    processor,
    terminal,
    trigger,
)
from yukta_rx.testing.plugins import (
    PLUGIN_CHECKS,
    ContractViolation,
    PluginCase,
    check_plugin,
    check_processor,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = pytest.mark.feature("EXT-01")


class Times(PluginConfig):
    factor: int = Field(2, description="What numbers are multiplied by.")


# -- right ones, of every kind


@processor("RIGHT_SYNC", config=Times, blocking=False, pure=True, example={"factor": 3})
def right_sync(msg: Message, cfg: Times, ctx: NodeContext) -> Any:
    """Multiply a number."""
    return {"n": msg.payload["n"] * cfg.factor}


@processor("RIGHT_THREAD", config=Times)
def right_thread(msg: Message, cfg: Times, ctx: NodeContext) -> Any:
    """Multiply a number, in a thread."""
    msg.payload["n"] *= cfg.factor
    return msg.payload


@processor("RIGHT_ASYNC")
async def right_async(msg: Message, cfg: Any, ctx: NodeContext) -> Any:
    """Wait a little."""
    await ctx.clock.sleep(0.01)
    return msg


@processor("RIGHT_MANY")
async def right_many(msg: Message, cfg: Any, ctx: NodeContext) -> AsyncIterator[Any]:
    """Count up."""
    for n in range(3):
        yield n


@processor("RIGHT_STREAM")
class RightStream(ProcessorPlugin):
    """Pass everything on."""

    async def transform(self, stream: Any, cfg: Any, ctx: NodeContext) -> AsyncIterator[Any]:
        async for msg in stream:
            yield msg


@trigger("RIGHT_TRIGGER", blocking=False)
def right_trigger(cfg: Any, ctx: NodeContext) -> Iterator[Any]:
    """Count up to a thousand."""
    yield from range(1000)


@terminal("RIGHT_TERMINAL")
async def right_terminal(msg: Message, cfg: Any, ctx: NodeContext) -> None:
    """Take everything."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "plugin",
    [
        right_sync,
        right_thread,
        right_async,
        right_many,
        RightStream,
        right_trigger,
        right_terminal,
    ],
    ids=lambda plugin: plugin.spec.type,
)
def test_right_plugins_pass(plugin: Any) -> None:
    assert check_processor(plugin) is None


# -- wrong ones


class Bare(PluginConfig):
    factor: int = 2


@processor("WRONG_EXAMPLE", config=Times, example={"faktor": 3})
def wrong_example(msg: Message, cfg: Times, ctx: NodeContext) -> Any:
    """Have an example with a misspelt option."""
    return msg


@processor("NO_DESCRIPTION", config=Bare)
def no_description(msg: Message, cfg: Bare, ctx: NodeContext) -> Any:
    """Have an option that nobody explains."""
    return msg


@processor("FAILS")
def fails(msg: Message, cfg: Any, ctx: NodeContext) -> Any:
    """Fail at what it should work with."""
    raise LookupError("no")


@processor("RANDOM_IDS", blocking=False)
def random_ids(msg: Message, cfg: Any, ctx: NodeContext) -> Any:
    """Give every message an id that it never has again."""
    return Message.of(msg.payload, id=f"id-{random.random()}")


@processor("ONE_ID", blocking=False)
def one_id(msg: Message, cfg: Any, ctx: NodeContext) -> Any:
    """Give every message the same id."""
    return Message.of(msg.payload, id="the-id")


@processor("NOT_PURE", blocking=False, pure=True)
def not_pure(msg: Message, cfg: Any, ctx: NodeContext) -> Any:
    """Change a payload although it is declared pure."""
    msg.payload["seen"] = True
    return msg


@processor("STUBBORN")
async def stubborn(msg: Message, cfg: Any, ctx: NodeContext) -> Any:
    """Go on in spite of a cancellation."""
    for _ in range(100):
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            continue
    return msg


@processor("LEAKS_TASKS")
async def leaks_tasks(msg: Message, cfg: Any, ctx: NodeContext) -> Any:
    """Start a task and forget it."""
    KEPT.append(asyncio.ensure_future(asyncio.sleep(1e6)))
    return msg


KEPT: list[Any] = []


@processor("HOARDS")
class Hoards(ProcessorPlugin):
    """Take everything, whether somebody wants it or not."""

    async def transform(self, stream: Any, cfg: Any, ctx: NodeContext) -> AsyncIterator[Any]:
        kept: list[Any] = []

        async def read() -> None:
            async for msg in stream:
                kept.append(msg)  # noqa: PERF401 - as they come

        reader = asyncio.ensure_future(read())
        try:
            while not reader.done() or kept:
                if kept:
                    yield kept.pop(0)
                else:
                    await asyncio.sleep(0.001)
        finally:
            reader.cancel()


@trigger("RUNS_AWAY", blocking=False)
def runs_away(cfg: Any, ctx: NodeContext) -> Iterator[Any]:
    """End the run on purpose with a defect."""
    yield 1
    raise LookupError


WRONG = [
    (wrong_example, "example_is_valid"),
    (no_description, "schema_is_complete"),
    (fails, "it_runs"),
    (runs_away, "it_runs"),
    (random_ids, "ids_are_derived"),
    (one_id, "ids_are_derived"),
    (not_pure, "inputs_stay_as_they_are"),
    (stubborn, "cancellation_arrives"),
    (leaks_tasks, "no_task_is_left"),
    (Hoards, "demand_is_respected"),
]


@pytest.mark.parametrize(("plugin", "check"), WRONG, ids=lambda it: getattr(it, "__name__", it))
def test_suite_catches(plugin: Any, check: str) -> None:
    with pytest.raises(ContractViolation, match=f"^{check}: "):
        check_plugin(check, PluginCase(plugin))
    KEPT.clear()


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(AssertionError) as caught:
        check_processor(not_pure, payloads=[{"n": 1}])

    assert "inputs_stay_as_they_are: " in str(caught.value)


def test_every_check_has_a_wrong_plugin_but_the_engines_own() -> None:
    # That errors name their node is the engine's work; a plugin cannot get it wrong by itself.
    assert set(PLUGIN_CHECKS) - {check for _, check in WRONG} == {"errors_name_the_node"}


def test_an_unknown_check_is_refused() -> None:
    with pytest.raises(KeyError):
        check_plugin("no_such_check", PluginCase(right_sync))


def test_what_is_no_plugin_is_refused() -> None:
    with pytest.raises(TypeError, match="is not a plugin"):
        check_plugin("it_runs", PluginCase(print))
