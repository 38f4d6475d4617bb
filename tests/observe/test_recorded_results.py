"""Results with a durable store: what memory has let go, or an earlier process had, is there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.durability.memory.results import MemoryResultStore
from yukta_rx.errors import StoreUnavailableError
from yukta_rx.model.results import ResultType
from yukta_rx.model.status import TaskStatus
from yukta_rx.observe.result_recorder import WAITING
from yukta_rx.plugins.contract import terminal, trigger
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from yukta_rx.model.results import ResultEvent

pytestmark = pytest.mark.feature("OBS-03")


class Store(MemoryResultStore):
    """Survives the scenes of a test; slow, or down, when it is told to be."""

    durable = True

    def __init__(self) -> None:
        super().__init__()
        self.down = False
        self.seconds = 0.0
        self.writes = 0

    async def append(self, execution_id: str, results: Sequence[ResultEvent]) -> None:
        await self._answer()
        await super().append(execution_id, results)

    async def end(
        self,
        execution_id: str,
        results: Sequence[ResultEvent],
        ended_at: Any,
        parent: str | None = None,
    ) -> None:
        await self._answer()
        await super().end(execution_id, results, ended_at, parent)

    async def _answer(self) -> None:
        await asyncio.sleep(self.seconds)
        if self.down:
            raise StoreUnavailableError("results.jsonl: cannot be written: no space left")
        self.writes += 1


def made(new_scene: Any, store: Store, **options: Any) -> Any:
    scene = new_scene(**options)
    scene.result_store = store
    return scene


async def pages(channel: Any, limit: int = 3) -> list[int]:
    """The cursors of all results, page by page."""
    found: list[int] = []
    cursor: int | None = 0
    while cursor is not None:
        page = await channel.fetch(cursor, limit)
        assert page.gap is None
        found += [item.cursor for item in page.items]
        if not page.items:
            break
        cursor = page.next_cursor
    return found


async def followed(reader: Any, limit: int = 64) -> list[str]:
    """The ids of the frames of a channel until its end."""
    with reader:
        found: list[str] = []
        while frames := await reader.frames(limit):
            assert all(frame.type != "stream.gap" for frame in frames)
            found += [frame.id for frame in frames]
    return found


@virtual_time
async def test_a_late_reader_gets_from_the_store_what_memory_has_let_go(new_scene: Any) -> None:
    store = Store()
    async with made(new_scene, store, results__retained_events=5) as scene:
        channel = scene.results.channel("r1", "s")
        for cursor in range(1, 31):
            channel.publish(scene.result(cursor, cursor))
        # The newest of them still wait to be written.
        assert await pages(channel) == list(range(1, 31))
        await scene.results.recorder.written()
        for cursor in range(31, 34):
            channel.publish(scene.result(cursor, cursor))
        assert await pages(channel, 7) == list(range(1, 34))
        reader = channel.follow(3)
        first = await reader.frames(4)
        channel.publish(scene.end(34, "n"))
        channel.publish(scene.end(35))

        assert [frame.id for frame in first] == ["4", "5", "6", "7"]
        assert await followed(reader, 4) == [str(cursor) for cursor in range(8, 36)]
        assert (await channel.fetch(35, 10)).next_cursor is None
        end = (await channel.fetch(34, 1)).items[0]
        assert (end.type, end.truncated) == (ResultType.EXECUTION_END, False)
        assert scene.tracker.losses.of("r1") == {"lossless": True, "items": []}
    assert len(store._runs["r1"].lines) == 35


@virtual_time
async def test_results_are_there_after_a_restart_and_once_their_channel_has_gone(
    new_scene: Any,
) -> None:
    store = Store()
    async with made(new_scene, store, results__retention="1m") as scene:
        channel = scene.results.channel("r1", "s")
        for cursor in range(1, 6):
            channel.publish(scene.result(cursor, {"n": cursor}))
        channel.publish(scene.end(6))
        live = [frame.data for frame in await channel.follow().frames(10)]
        await scene.clock.sleep(3600)

        assert scene.results.get("r1") is None
        again = await scene.results.open("r1")
        assert await pages(again) == [1, 2, 3, 4, 5, 6]
        assert await scene.results.open("nobody") is None
    async with made(new_scene, store) as scene:
        stored = await scene.results.open("r1")
        frames = []
        with stored.follow() as reader:
            while more := await reader.frames(2):
                frames += more

        assert [frame.data for frame in frames] == live
        assert await followed(stored.follow(4)) == ["5", "6"]
        assert await followed(stored.follow(6)) == []
        assert (await stored.fetch(6, 10)).next_cursor is None
        assert [item.payload async for item in stored.follow(4)] == [{"n": 5}, None]


@virtual_time
async def test_a_channel_that_goes_before_its_results_are_written_loses_nothing(
    new_scene: Any,
) -> None:
    store = Store()
    store.seconds = 5
    async with made(new_scene, store, results__max_executions=1) as scene:
        for run in ("r1", "r2"):
            channel = scene.results.channel(run, "s")
            channel.publish(scene.result(1))
            channel.publish(scene.end(2))
        assert scene.results.get("r1") is None
        again = await scene.results.open("r1")

        assert await pages(again) == [1, 2]
        assert await followed(again.follow(1)) == ["2"]


@virtual_time
async def test_a_run_that_is_faster_than_the_store_is_held_back(new_scene: Any) -> None:
    seen = 0

    @trigger("MANY", blocking=False)
    async def many(cfg: Any, ctx: Any) -> AsyncIterator[Any]:
        for number in range(400):
            yield {"n": number, "text": "x" * (WAITING // 100)}

    @terminal("COUNTED", blocking=False)
    def counted(msg: Any, cfg: Any, ctx: Any) -> None:
        nonlocal seen
        seen += 1

    store = Store()
    store.seconds = 1.0
    async with made(new_scene, store) as scene:
        run = scene.run({"t": "MANY", "out": "COUNTED"}, "t > out", many, counted)
        scene.results.channel(run.execution_id, run.session_id, run.hold)
        task = asyncio.ensure_future(run.execute())
        most, held = 0.0, 0.0
        while not task.done():
            await asyncio.sleep(0.25)
            most = max(most, sum(size for _, size in scene.results.recorder._behind.waiting))
            held = max(held, scene.count("yukta.tracker.holds"))
        await scene.results.recorder.written()

        assert (await task).status is TaskStatus.SUCCESS
        assert seen == 400
        # What was under way when it was held back comes on top.
        assert WAITING < most < 3 * WAITING
        assert held >= 1
        assert not run._hold._holders
        assert len(store._runs[run.execution_id].lines) == 402


@virtual_time
async def test_a_store_that_is_down_is_told_and_nothing_is_lost(new_scene: Any) -> None:
    store = Store()
    store.down = True
    async with made(new_scene, store) as scene:
        scene.start()
        channel = scene.results.channel("r1", "s")
        channel.publish(scene.result(1))
        channel.publish(scene.result(2))
        await asyncio.sleep(1)

        shown = scene.tracker.losses.of("r1")
        assert [(row["place"], row["reason"], row["count"]) for row in shown["items"]] == [
            ("results", "unwritten", 2)
        ]
        assert "no space left" in str(scene.results.recorder.fault())
        assert scene.count("yukta.store.write.failed", type="results") >= 1
        assert scene.count("yukta.store.results.waiting") == 2
        assert await pages(channel) == [1, 2]
        store.down = False
        await asyncio.sleep(10)
        assert scene.tracker.losses.of("r1")["lossless"]
        assert scene.results.recorder.fault() is None
    assert len(store._runs["r1"].lines) == 2


@virtual_time
async def test_what_json_cannot_say_is_stored_with_a_mark_and_is_in_the_ledger(
    new_scene: Any,
) -> None:
    store = Store()
    async with made(new_scene, store) as scene:
        scene.start()
        channel = scene.results.channel("r1", "s")
        channel.publish(scene.result(1, {"ok": 1}))
        channel.publish(scene.result(2, {"odd": object(), "fine": 2}))
        channel.publish(scene.end(3))
        await scene.results.recorder.written()

        part = await store.read("r1")
        assert [item.payload for item in part.items] == [
            {"ok": 1},
            {"odd": {"unserialisable": "object"}, "fine": 2},
            None,
        ]
        assert [item.message_id for item in part.items] == ["m1", "m2", None]
        [row] = scene.tracker.losses.of("r1")["items"]
        assert (row["place"], row["reason"], row["nodeId"]) == ("results", "unserialisable", "n")


@virtual_time
async def test_old_runs_lose_their_results_and_live_ones_keep_them(new_scene: Any) -> None:
    store = Store()
    async with made(new_scene, store, results__stored_runs=3) as scene:
        scene.results.channel("live", "s").publish(scene.result(1))
        for number in range(300):
            channel = scene.results.channel(f"r{number}", "s")
            channel.publish(scene.result(1))
            channel.publish(scene.end(2))
            await scene.clock.sleep(1)
        # Looked at now and then, not at each end.
        assert 3 < len(store._runs) <= 104
        assert await store.last("live") == 1
        assert await store.last("r299") == 2
        assert await store.last("r0") is None


@virtual_time
async def test_many_runs_are_written_at_the_same_time(new_scene: Any) -> None:
    store = Store()
    store.seconds = 1.0
    async with made(new_scene, store) as scene:
        for number in range(50):
            channel = scene.results.channel(f"r{number}", "s")
            channel.publish(scene.result(1))
            channel.publish(scene.end(2))
        began = scene.clock.now()
        await scene.results.recorder.written()

        assert scene.clock.now() - began == pytest.approx(1.0)
        assert store.writes == 50


@virtual_time
async def test_the_results_of_an_interrupted_run_get_their_end(new_scene: Any) -> None:
    store = Store()
    async with made(new_scene, store) as scene:
        channel = scene.results.channel("r1", "s")
        channel.publish(scene.result(1))
        await scene.results.recorder.written()
    async with made(new_scene, store) as scene:
        close = scene.results.recorder.close_run
        now = scene.clock.wall()
        for _ in range(2):
            await close("r1", TaskStatus.ABORTED, now, {"in": 0}, known=False)
        await close("no results", TaskStatus.ABORTED, now, {}, known=True)
        await close("long gone", TaskStatus.ABORTED, now, {}, known=False)

        one, other = await store.read("r1"), await store.read("no results")
        assert [(item.cursor, item.status) for item in one.items[1:]] == [(2, "ABORTED")]
        assert [(item.cursor, item.truncated) for item in other.items] == [(1, True)]
        assert one.ended
        assert other.ended
        assert await store.read("long gone") is None


@virtual_time
async def test_without_a_durable_store_nothing_is_handed_over(new_scene: Any) -> None:
    async with new_scene() as scene:
        channel = scene.results.channel("r1", "s", lambda _on: None)
        channel.publish(scene.result(1))

        assert type(channel).__name__ == "ResultChannel"
        assert type(channel).add is type(channel).__mro__[1].add
        assert await scene.results.open("r1") is channel
        assert await scene.results.open("nobody") is None
        assert (await channel.fetch(None, 5)).items == channel.read(None, 5).items


@virtual_time
async def test_a_run_that_two_hold_back_goes_on_when_both_have_let_go(new_scene: Any) -> None:
    async with new_scene() as scene:
        run = scene.run({"t": ("SEQUENCE_TRIGGER", {"count": 9}), "o": "COLLECT_TERMINAL"}, "t > o")
        channel = scene.results.get(run.execution_id)
        run.hold(True)
        run.hold(True)
        task = asyncio.ensure_future(run.execute())
        await asyncio.sleep(10)
        run.hold(False)
        await asyncio.sleep(10)
        held = channel.last
        run.hold(False)

        assert (await task).status is TaskStatus.SUCCESS
        assert (held, channel.last > 2) == (0, True)


@virtual_time
async def test_an_endless_run_keeps_its_newest_results_and_says_what_is_gone(
    new_scene: Any,
) -> None:
    store = Store()
    options = {"results__stored_per_run": 20, "results__retained_events": 5}
    async with made(new_scene, store, **options) as scene:
        scene.tracker.announce("r1", "s", "w", {})
        await scene.tracker.drained()
        channel = scene.results.channel("r1", "s")
        sizes = []
        for cursor in range(1, 101):
            channel.publish(scene.result(cursor, cursor))
            await scene.results.recorder.written()
            sizes.append(len(store._runs["r1"].lines))
        first = await channel.fetch(0, 3)
        [gap, *_] = await channel.follow(0).frames(1)
        ledger = scene.tracker.losses.of("r1")
        channel.publish(scene.end(101))
        await scene.results.recorder.written()
        [*_, end] = (await store.read("r1", 0, 1000)).items

    kept = len(store._runs["r1"].lines) - 1
    assert 20 <= kept <= max(sizes) <= 26
    assert (first.gap.start, first.gap.stop) == (1, 100 - kept)
    assert (first.items[0].cursor, gap.type) == (101 - kept, "stream.gap")
    assert ledger["items"] == [
        {"place": "results", "reason": "expired", "count": 100 - kept, "sample": []}
    ]
    assert (end.type, end.truncated) == (ResultType.EXECUTION_END, True)


@virtual_time
async def test_a_cut_that_fails_is_tried_again_and_0_keeps_all(new_scene: Any) -> None:
    class Stuck(Store):
        stuck = True

        async def cut(self, execution_id: str, upto: int) -> int:
            if self.stuck:
                raise StoreUnavailableError("no answer")
            return await super().cut(execution_id, upto)

    store = Stuck()
    async with made(new_scene, store, results__stored_per_run=20) as scene:
        channel = scene.results.channel("r1", "s")
        for cursor in range(1, 101):
            store.stuck = cursor < 60
            channel.publish(scene.result(cursor, cursor))
            await scene.results.recorder.written()
            if cursor == 59:
                assert (len(store._runs["r1"].lines), channel.trimmed) == (59, False)
        assert (len(store._runs["r1"].lines) <= 26, channel.trimmed) == (True, True)
    store = Store()
    async with made(new_scene, store, results__stored_per_run=0) as scene:
        channel = scene.results.channel("r1", "s")
        for cursor in range(1, 101):
            channel.publish(scene.result(cursor, cursor))
        await scene.results.recorder.written()
    assert len(store._runs["r1"].lines) == 100
