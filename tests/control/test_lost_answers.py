"""Answers of stores that get lost: what was written is there, and nobody here was told."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.control.crash import doomed, engine_on, image
from tests.control.test_history import ECHO, asked, world
from tests.control.test_large_payloads import moments
from tests.control.test_start_is_one_write import LINE, SETTINGS, listed
from yukta_rx.control.history import UNHEARD
from yukta_rx.errors import StoreUnavailableError
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from pathlib import Path

    from yukta_rx.app import Engine

pytestmark = pytest.mark.feature("DUR-01", "ADM-01")


class Losing:
    """A store whose next answer to one kind of call is lost: it did what it was asked.

    Attributes:
        losing: that call, until it was lost.
        silent: whether it gives no other answer either, and does nothing.
    """

    def __init__(self, store: Any, losing: str) -> None:
        self._store = store
        self.losing = losing
        self.silent = False

    def __getattr__(self, name: str) -> Any:
        called = getattr(self._store, name)
        if not asyncio.iscoroutinefunction(called):
            return called

        async def answered(*args: Any, **named: Any) -> Any:
            if self.silent:
                raise StoreUnavailableError("no answer")
            answer = await called(*args, **named)
            if name == self.losing:
                self.losing = ""
                raise StoreUnavailableError("the answer was lost")
            return answer

        return answered


def lose_start(engine: Engine) -> Losing:
    """The execution log of an engine loses its answer to the next start."""
    store = Losing(engine.history._store, "append_start")
    engine.history._store = store  # type: ignore[assignment]
    return store


async def logged(engine: Engine) -> dict[str, str]:
    """How the runs of the log ended."""
    await engine.history.settled()
    runs = await engine.history._store.runs()
    return {run.started.execution_id: str(getattr(run.ended, "status", None)) for run in runs}


# --- starts --------------------------------------------------------------------------------------


@pytest.mark.feature("ADM-02")
@pytest.mark.parametrize("waits", [False, True])
@virtual_time
async def test_a_start_of_which_no_answer_came_has_an_end_and_a_repeat_starts_anew(
    tmp_path: Path, waits: bool
) -> None:
    async with doomed(engine_on(tmp_path / "data", **SETTINGS)) as engine:
        first = await engine.start("s", LINE, {"n": 1})
        if not waits:
            await first.wait()
        lose_start(engine)
        with pytest.raises(StoreUnavailableError):
            await engine.start("s", "w", {"n": 2}, idempotency_key="k", patience=0)
        again = await engine.start("s", "w", {"n": 2}, idempotency_key="k", patience=0)
        assert await engine.tracker.wait(again.execution_id, 600)
        assert listed(engine)[again.execution_id] == "SUCCESS"
        ended = await logged(engine)
        assert ended.pop(first.execution_id) == ended.pop(again.execution_id) == "SUCCESS"
        assert list(ended.values()) == ["ERROR"]
        assert await engine.stores.queued_starts.list() == []


@pytest.mark.feature("DUR-03")
@virtual_time
async def test_a_start_of_which_no_answer_came_is_resumed_by_no_other_server(
    tmp_path: Path,
) -> None:
    async with doomed(engine_on(tmp_path / "data", **SETTINGS)) as engine:
        await (await engine.start("s", LINE, {"n": 1})).wait()
        lose_start(engine)
        with pytest.raises(StoreUnavailableError):
            await engine.start("s", "w", {"n": 2})
        await moments()
        after = await image(tmp_path / "data", "after")
    async with engine_on(after, **SETTINGS, **{"restart.auto-resume": True}) as engine:
        await asyncio.sleep(200)
        assert sorted(listed(engine).values()) == ["ERROR", "SUCCESS"]


@pytest.mark.feature("ADM-02")
@virtual_time
async def test_a_repeat_is_not_told_of_a_start_of_which_nobody_knows_yet(tmp_path: Path) -> None:
    async with engine_on(tmp_path / "data") as engine:
        await engine.start("s", ECHO)
        store = lose_start(engine)
        with pytest.raises(StoreUnavailableError):
            await engine.start("s", "echo", idempotency_key="k")
        store.silent = True
        for _ in range(3):
            with pytest.raises(StoreUnavailableError):
                await engine.start("s", "echo", idempotency_key="k")
        store.silent = False
        await asyncio.sleep(10)
        again = await engine.start("s", "echo", idempotency_key="k")
        assert await again.wait(10)
        assert sorted((await logged(engine)).values()) == ["ERROR", "SUCCESS", "SUCCESS"]


@virtual_time
async def test_of_starts_that_were_never_written_the_log_has_nothing() -> None:
    async with world() as (engine, store):
        store.down = True
        for n in range(UNHEARD + 1):
            with pytest.raises(StoreUnavailableError):
                await engine.gateway.start(asked(idempotency_key=f"k{n}"))
        tried = store.tried
        with pytest.raises(StoreUnavailableError):
            await engine.gateway.start(asked())
        assert store.tried == tried
        store.down = False
        await asyncio.sleep(10)
        started = await engine.gateway.start(asked())
        assert [event.TYPE for write in store.writes for event in write] == ["RUN_STARTED"]
        assert list(await logged(engine)) == [started.execution_id]


# --- the queue -----------------------------------------------------------------------------------


@pytest.mark.parametrize("losing", ["claim", "remove"])
@virtual_time
async def test_a_start_of_which_the_queue_let_go_unheard_begins(
    tmp_path: Path, losing: str
) -> None:
    async with engine_on(tmp_path / "data", **SETTINGS) as engine:
        await engine.start("s", LINE, {"n": 1})
        scheduler = engine._starter.scheduler
        waits = await engine.start("s", "w", {"n": 2}, patience=0)
        scheduler._store = Losing(scheduler._store, losing)
        if losing == "remove":
            with pytest.raises(StoreUnavailableError):
                await waits.stop()
        assert await waits.wait(600)
        assert listed(engine)[waits.execution_id] == "SUCCESS"
