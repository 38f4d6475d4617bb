"""ResultStore: results by cursor, whole while somebody follows, bounded for who comes late."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yukta_rx.model.results import ResultType
from yukta_rx.observe.journal import Gap
from yukta_rx.observe.results import json_form
from yukta_rx.testing.clock import run_virtual, virtual_time


def payloads(items) -> list[object]:
    return [item.payload for item in items if item.type is ResultType.RESULT]


@pytest.mark.feature("OBS-03")
@virtual_time
async def test_pages_follow_one_another_until_nothing_can_follow(new_scene) -> None:
    async with new_scene() as scene:
        channel = scene.results.channel("r1", "s")
        for cursor in range(1, 4):
            channel.publish(scene.result(cursor, cursor))
        first = channel.read(None, 2)
        second = channel.read(first.next_cursor, 2)
        empty = channel.read(second.next_cursor, 2)
        channel.publish(scene.end(4, "n"))
        channel.publish(scene.end(5))
        last = channel.read(empty.next_cursor, 2)

        assert payloads(first.items) == [1, 2]
        assert payloads(second.items) == [3]
        assert (empty.items, empty.next_cursor, empty.gap) == ([], 3, None)
        assert [item.type for item in last.items] == ["NODE_END", "EXECUTION_END"]
        assert last.next_cursor is None


@pytest.mark.feature("OBS-03")
@virtual_time
async def test_case_24_a_follower_is_served_until_execution_end_after_every_node_end(
    new_scene, data
) -> None:
    async with new_scene() as scene:
        channel = scene.results.channel("r1", "s")

        async def produce() -> None:
            for cursor in range(1, 5):
                # Four attempts, a while apart.
                await asyncio.sleep(10)
                channel.publish(scene.result(cursor, cursor))
            channel.publish(scene.end(5, "n"))
            channel.publish(scene.end(6))

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            frames = []
            with channel.follow() as reader:
                while more := await reader.frames():
                    frames += more

        assert [frame.type for frame in frames] == ["RESULT"] * 4 + ["NODE_END", "EXECUTION_END"]
        assert [frame.id for frame in frames] == ["1", "2", "3", "4", "5", "6"]
        assert data(frames[0])["payload"] == 1


@pytest.mark.feature("OBS-03")
@virtual_time
async def test_two_followers_get_every_result_encoded_once(new_scene, now) -> None:
    async with new_scene() as scene:
        channel = scene.results.channel("r1", "s")
        one, two = channel.follow(), channel.follow()
        channel.publish(scene.result(1))

        [first], [second] = await now(one), await now(two)
        assert first is second


@virtual_time
async def test_a_cursor_from_nowhere_is_the_end_of_what_is_there(new_scene) -> None:
    async with new_scene() as scene:
        channel = scene.results.channel("r1", "s")
        channel.publish(scene.result(1))

        assert channel.read(99).next_cursor == 1
        with channel.follow(99) as reader:
            channel.publish(scene.result(2, "next"))
            assert payloads(await reader.take()) == ["next"]


@virtual_time
async def test_a_follower_goes_on_behind_its_cursor(new_scene) -> None:
    async with new_scene() as scene:
        channel = scene.results.channel("r1", "s")
        for cursor in range(1, 6):
            channel.publish(scene.result(cursor, cursor))
        channel.publish(scene.end(6))

        assert payloads([item async for item in channel.follow(3)]) == [4, 5]
        assert [item async for item in channel.follow(6)] == []
        assert [item async for item in channel.follow(99)] == []


@pytest.mark.feature("OBS-03")
@virtual_time
async def test_who_comes_late_gets_what_is_retained_and_is_told_the_rest(new_scene, now) -> None:
    async with new_scene(results__retained_events=2) as scene:
        channel = scene.results.channel("r1", "s")
        for cursor in range(1, 6):
            channel.publish(scene.result(cursor, cursor))
        channel.publish(scene.end(6, "n"))
        channel.publish(scene.end(7))

        page = channel.read(None, 50)
        assert page.gap == Gap(1, 3, 3)
        assert payloads(page.items) == [4, 5]
        assert [item.truncated for item in page.items] == [None, None, True, True]
        frames = await now(channel.follow(1))
        assert [frame.type for frame in frames] == [
            *("stream.gap", "RESULT", "RESULT", "NODE_END", "EXECUTION_END"),
        ]
        assert frames[0].id == "3"
        assert frames[0].data == b'{"from":2,"to":3,"dropped":2,"reason":"retention"}'


@virtual_time
async def test_with_nothing_retained_the_ends_are_there(new_scene) -> None:
    async with new_scene(results__retained_events=0) as scene:
        channel = scene.results.channel("r1", "s")
        channel.publish(scene.result(1))
        channel.publish(scene.end(2, "n"))
        channel.publish(scene.end(3))

        assert [item.type for item in channel.read().items] == ["NODE_END", "EXECUTION_END"]


@pytest.mark.feature("OBS-03")
@virtual_time
async def test_a_follower_who_reads_now_and_then_misses_nothing(new_scene) -> None:
    async with new_scene(results__retained_events=10) as scene:
        channel = scene.results.channel("r1", "s")
        with channel.follow() as reader:
            for cursor in range(1, 1001):
                channel.publish(scene.result(cursor, cursor))
            channel.publish(scene.end(1001))
            assert channel.read().items[0].cursor == 1

            items = [item async for item in reader]

        assert payloads(items) == list(range(1, 1001))
        # Nothing was missing when the follower read the end; afterwards the bound holds again.
        assert items[-1].truncated is False
        late = channel.read(None, 500)
        assert payloads(late.items) == list(range(991, 1001))
        assert late.items[-1].truncated is True


@pytest.mark.feature("OBS-03")
@virtual_time
async def test_case_29_for_who_never_reads_no_more_is_held_than_the_bound(
    new_scene, monkeypatch, now
) -> None:
    monkeypatch.setattr("yukta_rx.observe.results.HELD", 100)
    async with new_scene(results__retained_events=10) as scene:
        channel = scene.results.channel("r1", "s")
        stalled = channel.follow()
        for cursor in range(1, 1001):
            channel.publish(scene.result(cursor, cursor))

        assert len(channel._ring) == 100
        gap, *rest = await stalled.take(200)
        assert gap == Gap(1, 900, 900)
        assert payloads(rest) == list(range(901, 1001))


@virtual_time
async def test_a_follower_that_was_only_forgotten_keeps_nothing(new_scene) -> None:
    async with new_scene(results__retained_events=10) as scene:
        channel = scene.results.channel("r1", "s")
        async for _ in follow_once(scene, channel):
            break
        for cursor in range(2, 1001):
            channel.publish(scene.result(cursor))

        assert len(channel._ring) == 10
        assert not channel.in_use


def follow_once(scene, channel):
    channel.publish(scene.result(1))
    return channel.follow()


@pytest.mark.feature("OBS-03")
@virtual_time
async def test_the_bytes_of_all_runs_together_are_bounded(new_scene) -> None:
    async with new_scene(results__max_bytes="1MiB") as scene:
        ended = scene.results.channel("r1", "s")
        ended.publish(scene.result(1, "x" * 500_000))
        ended.publish(scene.end(2))
        live = scene.results.channel("r2", "s")
        for cursor in range(1, 101):
            live.publish(scene.result(cursor, "x" * 50_000))
            assert scene.results.budget.used <= 1024 * 1024

        # The ended run went first, then the older half of the other.
        assert scene.results.get("r1") is None
        page = live.read(None, 500)
        assert page.gap is not None
        assert page.items[-1].cursor == 100
        assert 5 <= len(page.items) <= 20


@virtual_time
async def test_a_result_larger_than_the_budget_is_still_there(new_scene) -> None:
    async with new_scene(results__max_bytes="1KiB") as scene:
        channel = scene.results.channel("r1", "s")
        channel.publish(scene.result(1, "x" * 5000))
        channel.publish(scene.result(2, "x" * 5000))

        assert [item.cursor for item in channel.read().items] == [2]


@pytest.mark.feature("OBS-03")
@virtual_time
async def test_results_go_an_hour_after_their_last_use(new_scene) -> None:
    async with new_scene() as scene:
        for run in ("r1", "r2"):
            scene.results.channel(run, "s").publish(scene.end(1))
        await asyncio.sleep(3599)
        assert scene.results.get("r1") is not None
        await asyncio.sleep(3599)

        assert scene.results.get("r2") is None
        assert scene.results.get("r1") is not None
        await asyncio.sleep(3601)
        assert len(scene.results) == 0
        assert scene.results.budget.used == 0


@virtual_time
async def test_results_of_a_live_run_stay(new_scene) -> None:
    async with new_scene(results__max_executions=1) as scene:
        live = scene.results.channel("r1", "s")
        for run in ("r2", "r3"):
            scene.results.channel(run, "s").publish(scene.end(1))
        await asyncio.sleep(100_000)

        assert scene.results.get("r1") is live
        assert len(scene.results) == 1


@pytest.mark.feature("OBS-03")
@virtual_time
async def test_a_result_after_the_end_is_dropped_and_counted(new_scene) -> None:
    async with new_scene() as scene:
        channel = scene.results.channel("r1", "s")
        channel.publish(scene.end(1))
        channel.publish(scene.result(2))

        assert channel.last == 1
        assert scene.count("yukta.tracker.dropped", type="result", kind="late") == 1


@virtual_time
async def test_a_cursor_is_the_place_in_the_channel(new_scene) -> None:
    async with new_scene() as scene:
        channel = scene.results.channel("r1", "s")
        channel.publish(scene.result(7))
        channel.publish(scene.result(9))

        assert [item.cursor for item in channel.read().items] == [1, 2]


@virtual_time
async def test_a_payload_without_json_form_is_marked_not_lost(new_scene, now, data) -> None:
    async with new_scene() as scene:
        channel = scene.results.channel("r1", "s")
        channel.publish(scene.result(1, {"a": {1}}))

        [frame] = await now(channel.follow())
        [item] = channel.read().items
        assert data(frame)["payload"] == {"a": {"unserialisable": "set"}}
        assert item.payload == {"a": {1}}
        assert json_form(item)["payload"] == {"a": {"unserialisable": "set"}}


@virtual_time
async def test_who_reads_when_the_channel_is_forgotten_comes_to_the_end(new_scene, now) -> None:
    async with new_scene() as scene:
        reader = scene.results.channel("r1", "s").follow()
        scene.results.forget("r1")

        assert await reader.frames() == []


@pytest.mark.feature("OBS-03")
@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    steps=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4)), max_size=30),
    retained=st.integers(0, 8),
    held=st.integers(1, 12),
    start=st.integers(0, 4),
)
def test_case_27_each_result_is_read_once_in_order_or_told_missing(
    new_scene, steps, retained, held, start
) -> None:
    async def play() -> None:
        async with new_scene(results__retained_events=retained) as scene:
            channel = scene.results.channel("r1", "s")
            channel._hold = max(held, retained)
            for cursor in range(1, start + 1):
                channel.publish(scene.result(cursor))
            reader, place, cursor = channel.follow(), 0, start
            for published, read in steps:
                for _ in range(published):
                    cursor += 1
                    channel.publish(scene.result(cursor))
                if read and place < cursor:
                    place = follow(place, await reader.take(read))
                elif not read:
                    reader.close()
                    reader = channel.follow(place)
            channel.publish(scene.end(cursor + 1))
            while items := await reader.take():
                place = follow(place, items)

            assert place == cursor + 1

    def follow(place: int, items: list) -> int:
        for item in items:
            if isinstance(item, Gap):
                assert (item.start, item.dropped) == (place + 1, item.stop - item.start + 1)
                place = item.stop
            else:
                place += 1
                assert item.cursor == place
        return place

    run_virtual(play())
