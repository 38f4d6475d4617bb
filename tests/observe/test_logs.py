"""LogStore: lines by cursor, filtered, bounded."""

from __future__ import annotations

import asyncio

import pytest

from yukta_rx.errors import BadRequestError
from yukta_rx.observe.journal import Gap
from yukta_rx.observe.logs import LogFilter
from yukta_rx.testing.clock import virtual_time


def lines(items) -> list[str]:
    return [item["line"] for item in items]


def add(scene, text: str, node: str | None = "n", stream: str = "stdout") -> None:
    channel = scene.logs.channel("r1", "s")
    channel.append(scene.event("node.log", node, stream=stream, level="INFO", line=text, attempt=1))


@pytest.mark.feature("OBS-02")
@virtual_time
async def test_a_line_says_where_and_when_it_came_from(new_scene) -> None:
    async with new_scene() as scene:
        add(scene, "hello")

        [item] = scene.logs.channel("r1", "s").read().items
        assert item == {
            "cursor": "1",
            "time": "2026-01-01T00:00:00.000Z",
            "nodeId": "n",
            "stream": "stdout",
            "level": "INFO",
            "line": "hello",
            "attempt": 1,
        }


@pytest.mark.feature("OBS-02")
@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, ["one", "two", "THREE"]),
        ({"node_id": "a"}, ["one", "THREE"]),
        ({"stream": "stderr"}, ["two"]),
        ({"stream": "engine"}, []),
        ({"q": "t"}, ["two", "THREE"]),
        ({"q": "three"}, ["THREE"]),
        ({"q": "", "node_id": "b"}, ["two"]),
    ],
)
@virtual_time
async def test_lines_are_filtered_by_node_stream_and_text(new_scene, now, asked, found) -> None:
    async with new_scene() as scene:
        add(scene, "one", "a")
        add(scene, "two", "b", "stderr")
        add(scene, "THREE", "a")
        channel = scene.logs.channel("r1", "s")
        filters = LogFilter.parse(**asked)

        assert lines(channel.read(filters=filters).items) == found
        frames = await now(channel.follow(filters=filters))
        assert [frame.type for frame in frames] == ["node.log"] * len(found)


@virtual_time
async def test_a_filtered_page_goes_on_where_it_looked(new_scene) -> None:
    async with new_scene() as scene:
        for number in range(10):
            add(scene, str(number), "a" if number % 3 else "b")
        channel = scene.logs.channel("r1", "s")
        wanted = LogFilter(node_id="b")

        first = channel.read(None, 2, wanted)
        second = channel.read(first.next_cursor, 50, wanted)
        assert (lines(first.items), lines(second.items)) == (["0", "3"], ["6", "9"])
        assert second.next_cursor == 10


@pytest.mark.parametrize(
    "asked", [{"stream": "stdin"}, {"stream": "x\ny"}, {"node_id": "a/b"}, {"node_id": ""}]
)
def test_a_wrong_filter_is_refused(asked: dict[str, str]) -> None:
    with pytest.raises(BadRequestError) as caught:
        LogFilter.parse(**asked)

    assert caught.value.code == "invalid_parameter"


@pytest.mark.feature("OBS-02")
@virtual_time
async def test_a_follower_gets_lines_as_they_come_until_the_run_ends(new_scene) -> None:
    async with new_scene() as scene:
        scene.start()
        await scene.tracker.drained()
        with scene.logs.get("r1").follow() as reader:
            scene.line("one")
            scene.line("two")
            await scene.tracker.drained()
            assert lines(await reader.take()) == ["one", "two"]
            scene.line("three")
            scene.finish()
            await scene.tracker.drained()

            assert lines([item async for item in reader]) == ["three"]


@virtual_time
async def test_only_the_newest_lines_of_a_run_are_kept(new_scene) -> None:
    async with new_scene(logs__store__max_lines=3) as scene:
        for number in range(5):
            add(scene, str(number))

        page = scene.logs.channel("r1", "s").read()
        assert lines(page.items) == ["2", "3", "4"]
        assert page.gap == Gap(1, 2, 2)


@pytest.mark.feature("OBS-02")
@virtual_time
async def test_lines_go_half_an_hour_after_they_were_written(new_scene) -> None:
    async with new_scene() as scene:
        scene.start()
        scene.line("old")
        await asyncio.sleep(1000)
        scene.line("new")
        await scene.tracker.drained()
        await asyncio.sleep(900)
        channel = scene.logs.get("r1")
        assert lines(channel.read().items) == ["new"]
        scene.finish()
        await scene.tracker.drained()
        await asyncio.sleep(1799)
        assert channel.read().items == []
        assert scene.logs.get("r1") is channel
        await asyncio.sleep(2)

        assert scene.logs.get("r1") is None
        assert scene.logs.budget.used == 0


@virtual_time
async def test_the_bytes_of_all_lines_are_bounded(new_scene) -> None:
    async with new_scene(logs__store__max_bytes="100KiB") as scene:
        for number in range(100):
            add(scene, f"{number} " + "x" * 5000)
            assert scene.logs.budget.used <= 100 * 1024

        page = scene.logs.channel("r1", "s").read(None, 500)
        assert page.items[-1]["line"].startswith("99 ")
        assert 10 <= len(page.items) <= 20


@pytest.mark.feature("OBS-02")
@virtual_time
async def test_one_who_reads_line_by_line_loses_none_behind_a_gap(new_scene) -> None:
    async with new_scene(logs__store__max_lines=3) as scene:
        for number in range(5):
            add(scene, str(number))
        channel = scene.logs.channel("r1", "s")
        channel.end()

        with channel.follow() as reader:
            found = [item async for item in reader]
        assert found[0] == Gap(1, 2, 2)
        assert lines(found[1:]) == ["2", "3", "4"]


@pytest.mark.feature("OBS-02")
@virtual_time
async def test_the_lines_of_a_quiet_node_outlast_those_of_a_chatty_one(new_scene) -> None:
    async with new_scene(logs__store__max_lines=8) as scene:
        for text in ("a", "b", "c"):
            add(scene, text, "quiet")
        for number in range(100):
            add(scene, str(number), "chatty")
        channel = scene.logs.channel("r1", "s")

        items = channel.read().items
        assert lines(items) == ["a", "b", "c", "96 lines dropped here", "96", "97", "98", "99"]
        marker = items[3]
        assert (marker["nodeId"], marker["stream"], marker["level"]) == (
            *("chatty", "engine", "WARNING"),
        )
        # The marker has the cursor of the last line that it stands for.
        assert [item["cursor"] for item in items[:5]] == ["1", "2", "3", "99", "100"]


@pytest.mark.feature("OBS-02")
@pytest.mark.parametrize("asked", [{"stream": "stdout"}, {"q": "99"}, {"node_id": "chatty"}])
@virtual_time
async def test_a_filter_hides_no_missing_lines(new_scene, asked) -> None:
    async with new_scene(logs__store__max_lines=8) as scene:
        add(scene, "a", "quiet")
        for number in range(100):
            add(scene, str(number), "chatty")

        page = scene.logs.channel("r1", "s").read(filters=LogFilter.parse(**asked))
        assert "dropped here" in " ".join(lines(page.items))
