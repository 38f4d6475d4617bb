"""Triggers of durable runs: nothing leaves before it is written, and how each kind goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.contract.logged import LoggedCheckpointStore
from tests.engine.test_resume_nodes import crashes_of
from yukta_rx.durability.stores.checkpoints import WRITE_FAILED
from yukta_rx.errors import StoreUnavailableError
from yukta_rx.plugins.contract import Message, terminal, trigger
from yukta_rx.streams.circuit import StopMode
from yukta_rx.testing.clock import virtual_time

pytestmark = pytest.mark.feature("DUR-02", "DUR-03")


@pytest.mark.parametrize("kind", ["iterable", "async", "thread"])
@virtual_time
async def test_nothing_leaves_a_trigger_before_it_is_written(world: Any, kind: str) -> None:
    store = LoggedCheckpointStore(delay=0.02)
    ahead: list[int] = []

    def begin(cfg: Any, ctx: Any) -> Any:
        """Fifty numbers."""
        return begin_async() if kind == "async" else iter(range(50))

    async def begin_async() -> Any:
        for n in range(50):
            await asyncio.sleep(0.003)
            yield n

    began = trigger("BEGIN", blocking=kind == "thread", pure=True)(begin)

    @terminal("LOOK", blocking=False)
    def look(msg: Message, cfg: Any, ctx: Any) -> None:
        """See what is written."""
        written = store.known["run"]["in"].messages
        ahead.append(written - msg.payload)

    crashes = crashes_of(world, {"in": "BEGIN", "out": "LOOK"}, "in>out", began, look)
    outcome = await crashes.run(store, "run")

    assert outcome.status == "SUCCESS"
    assert len(ahead) == 50
    assert min(ahead) >= 1
    assert (await store.states("run"))["in"].complete
    # Messages that come while others are written share the next row.
    rows = [row async for row in store.read("run", "in")]
    assert len(rows) < 30


@virtual_time
async def test_a_trigger_that_cannot_be_had_again_goes_on_with_the_next_number(world: Any) -> None:
    rounds: list[int] = []
    headers: list[Any] = []
    before: list[Any] = []

    @trigger("TICK", pure=True)
    async def tick(cfg: Any, ctx: Any) -> Any:
        """Three ticks of this round."""
        rounds.append(len(rounds))
        headers.append(dict(ctx.emitted_headers))
        before.append(ctx.emitted())
        for n in range(3):
            yield Message.of({"round": rounds[-1], "n": n}, {"last": n})

    crashes = crashes_of(world, {"in": "TICK", "out": "COLLECT_TERMINAL"}, "in>out", tick, row=1)
    store = LoggedCheckpointStore()
    await crashes.run(store, "run")
    ids = [item.message_id for item in crashes.results if item.type == "RESULT"]
    log = [line for line in store.log if line[2] == "in"][:2]
    assert [line[0] for line in log] == ["row", "row"]
    [first, second] = [row async for row in LoggedCheckpointStore(log).read("run", "in")]
    known = len(first) + len(second)
    await crashes.resume(LoggedCheckpointStore(log), "run", "again")

    shown = [(item.message_id, item.payload) for item in crashes.results if item.type == "RESULT"]
    assert [message_id for message_id, _ in shown][:known] == ids[:known]
    assert len({message_id for message_id, _ in shown}) == known + 3
    assert [payload["round"] for _, payload in shown] == [0] * known + [1] * 3
    assert headers == [{}, {"last": known - 1}]
    assert before == [(0, None), (known, {"round": 0, "n": known - 1})]


@pytest.mark.parametrize(
    ("later", "complaint"),
    [
        ([0, 1, 9, 3, 4, 5], "message number 3 is not what it was"),
        ([0, 1], "gives 2 messages where it gave 5"),
    ],
)
@virtual_time
async def test_a_replayable_trigger_that_gives_something_else_fails_and_says_so(
    world: Any, later: list[int], complaint: str
) -> None:
    values = [[0, 1, 2, 3, 4], later]

    @trigger("VALUES", blocking=False, pure=True, replayable=True)
    def gives(cfg: Any, ctx: Any) -> Any:
        """What is asked of it."""
        return iter(values.pop(0))

    nodes = {"in": "VALUES", "out": "COLLECT_TERMINAL"}
    crashes = crashes_of(world, nodes, "in>out", gives, row=2)
    store = LoggedCheckpointStore()
    await crashes.run(store, "run")
    rows = [line for line in store.log if line[2] == "in" and line[0] == "row"]
    store = LoggedCheckpointStore(rows)
    assert store.known["run"]["in"].messages == 5
    _, outcome = await crashes.resume(store, "run", "again")

    assert outcome.status == "ERROR"
    assert complaint in outcome.nodes["in"]["error"]["detail"]


class Broken(LoggedCheckpointStore):
    """A store that can write no rows of a node, and so no end of it either."""

    def write(self, *line: Any) -> Any:
        if line[2] != "in" or line[0] == "lost":
            return super().write(*line)
        loop = asyncio.get_running_loop()
        self.last = loop.create_future()
        full = StoreUnavailableError("the disk is full")
        loop.call_later(0.01, self.last.set_exception, full)
        return self.last


@virtual_time
async def test_a_store_that_fails_is_counted_and_the_run_goes_on(world: Any) -> None:
    crashes = crashes_of(world, {"in": "NUMBERS", "out": "COLLECT_TERMINAL"}, "in>out")
    store = Broken()
    outcome = await crashes.run(store, "run")

    assert outcome.status == "SUCCESS"
    assert sum(crashes.shown().values()) == 20
    assert crashes.failures == 1
    assert (await store.states("run"))["in"].reason == WRITE_FAILED


@pytest.mark.parametrize("mode", [StopMode.DRAIN, StopMode.CANCEL, StopMode.KILL])
@virtual_time
async def test_a_stop_waits_for_what_is_being_written_or_counts_it(world: Any, mode: Any) -> None:
    made: list[Any] = []
    crashes = crashes_of(
        world,
        {"in": ("SEQUENCE_TRIGGER", {"count": 0}), "out": "COLLECT_TERMINAL"},
        "in>out",
        delay=1,
        before=made.append,
    )
    store = LoggedCheckpointStore(delay=1)
    running = asyncio.ensure_future(crashes.run(store, "run"))
    await asyncio.sleep(0.5)
    made[0].stop(mode)
    outcome = await running

    assert outcome.status == ("STOPPED" if mode is StopMode.DRAIN else "CANCELLED")
    assert sum(crashes.shown().values()) == (64 if mode is StopMode.DRAIN else 0)
    assert outcome.nodes["in"]["dropped"] == (0 if mode is StopMode.DRAIN else 64)
    assert not any(state.complete for state in (await store.states("run")).values())
