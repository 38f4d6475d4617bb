"""Results in files: over restarts and crashes, with files that go when nobody needs them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contract.results import NOW, cursors, last, result
from yukta_rx.durability.file.blobs import FileBlobStore
from yukta_rx.durability.file.results import FileResultStore
from yukta_rx.durability.memory.results import MemoryResultStore
from yukta_rx.errors import StoreUnavailableError
from yukta_rx.streams.pool import BlockingPool

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.feature("OBS-03", "DUR-05")

POOL = BlockingPool(2)


def opened(path: Path, **options: Any) -> FileResultStore:
    return FileResultStore(path, POOL.call, **options)


async def files(path: Path) -> dict[str, int]:
    """Names and sizes of what is in a folder."""
    return await POOL.call(lambda: {one.name: one.stat().st_size for one in path.iterdir()})


async def shown(store: Any, *names: str) -> dict[str, Any]:
    """Everything that a store has of some runs."""
    found = {}
    for name in names:
        part = await store.read(name, limit=1000)
        found[name] = part and ([item.as_dict() for item in part.items], part.ended)
        assert await store.last(name) == (part and max([*(i.cursor for i in part.items), 0]))
    return found


@pytest.mark.parametrize("segment", [1, 300, 1 << 20])
async def test_what_was_written_is_there_after_a_restart(tmp_path: Path, segment: int) -> None:
    async with opened(tmp_path, segment=segment) as store:
        for first in range(1, 40, 2):
            await store.append("a", [result(first, {"n": first}), result(first + 1)])
            await store.append("b", [result(first)])
        await store.end("a", [last(41)], NOW)
        before = await shown(store, "a", "b", "c")
    async with opened(tmp_path, segment=segment) as store:
        assert await shown(store, "a", "b", "c") == before
        await store.append("b", [result(39), result(40)])
        await store.append("a", [result(42)])
        assert await cursors(store, "b", after=37) == [39, 40]
        assert await cursors(store, "a", after=39) == [40, 41]
        assert await cursors(store, "a", after=4, limit=3) == [5, 6, 7]


async def test_a_write_that_a_crash_cut_short_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    async with opened(tmp_path / "full") as store:
        await store.append("a", [result(1), result(2)])
        size = sum((await files(tmp_path / "full")).values())
        await store.end("a", [result(3), last(4)], NOW)
    [name] = await files(tmp_path / "full")
    data = await POOL.call((tmp_path / "full" / name).read_bytes)
    seen = set()
    for cut in range(size, len(data) + 1):
        folder = tmp_path / str(cut)
        await POOL.call(folder.mkdir)
        await POOL.call((folder / name).write_bytes, data[:cut])
        async with opened(folder) as store:
            part = await store.read("a")
            seen.add((tuple(item.cursor for item in part.items), part.ended))
            # And it takes more.
            await store.end("a", [result(3), last(4)], NOW)
            assert await cursors(store, "a") == [1, 2, 3, 4]
        async with opened(folder) as store:
            assert await cursors(store, "a") == [1, 2, 3, 4]

    assert seen == {((1, 2), False), ((1, 2, 3, 4), True)}


async def test_files_go_with_the_runs_in_them(tmp_path: Path) -> None:
    async with opened(tmp_path, segment=2000) as store:
        await store.append("live", [result(1, "x")])
        for number in range(50):
            await store.append(f"r{number:02}", [result(1, "y" * 300), result(2)])
            await store.end(f"r{number:02}", [last(3)], NOW + timedelta(hours=number))
        many = await files(tmp_path)
        dropped = await store.trim(2)
        few = await files(tmp_path)
        kept = await shown(store, "live", "r47", "r48", "r49")

    assert len(dropped) == 48
    assert len(many) > 15
    # What the live run has, what the two newest have, and what grows.
    assert len(few) <= 5
    assert sum(few.values()) < sum(many.values()) / 5
    async with opened(tmp_path, segment=2000) as store:
        assert await shown(store, "live", "r47", "r48", "r49") == kept
        assert kept["r47"] is None
        assert await store.trim(2) == []


async def test_a_reader_is_not_disturbed_by_files_that_are_rewritten(tmp_path: Path) -> None:
    async with opened(tmp_path, segment=600) as store:
        for number in range(1, 60):
            await store.append("live", [result(number, number)])
            await store.append(f"r{number}", [result(1, "y" * 100)])
            await store.end(f"r{number}", [last(2)], NOW)

        async def read_all() -> list[int]:
            found: list[int] = []
            while more := await cursors(store, "live", after=found[-1] if found else 0, limit=7):
                found += more
            return found

        *read, _ = await asyncio.gather(*(read_all() for _ in range(4)), store.trim(1))

    assert read == [list(range(1, 60))] * 4


async def test_writes_of_one_run_at_the_same_time_stay_in_order(tmp_path: Path) -> None:
    async with opened(tmp_path, segment=500) as store:
        await asyncio.gather(
            *(
                store.append(run, [result(number), result(number + 1)])
                for number in range(1, 60)
                for run in ("a", "b")
            )
        )
        assert await cursors(store, "a", limit=1000) == list(range(1, 61))
    async with opened(tmp_path, segment=500) as store:
        assert await cursors(store, "b", limit=1000) == list(range(1, 61))


async def test_a_write_whose_caller_left_is_not_written_twice(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        task = asyncio.ensure_future(store.append("a", [result(1, "first")]))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await store.append("a", [result(1, "again"), result(2)])
        part = await store.read("a")
        assert [(item.cursor, item.payload) for item in part.items] == [(1, "first"), (2, None)]
    async with opened(tmp_path) as store:
        assert (await store.read("a")).items[0].payload == "first"


async def test_a_broken_line_costs_that_line(tmp_path: Path, caplog: Any) -> None:
    async with opened(tmp_path) as store:
        await store.append("a", [result(1)])
        await store.append("a", [result(2)])
    [name] = await files(tmp_path)
    data = await POOL.call((tmp_path / name).read_bytes)
    await POOL.call((tmp_path / name).write_bytes, b"{garbage}\n" + data)
    async with opened(tmp_path) as store:
        assert await cursors(store, "a") == [1, 2]

    assert "segment 1 at byte 0 is no result" in caplog.text


async def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    await POOL.call((tmp_path / "file").write_bytes, b"")

    with pytest.raises(StoreUnavailableError, match="file/results"):
        async with opened(tmp_path / "file" / "results"):
            pass


FULL = """
    import asyncio, resource, sys
    from pathlib import Path
    from tests.contract.results import NOW, cursors, last, result
    from yukta_rx.durability.file.results import FileResultStore
    from yukta_rx.errors import StoreUnavailableError
    from yukta_rx.streams.pool import BlockingPool

    async def main():
        async with FileResultStore(Path(sys.argv[1]), BlockingPool(2).call) as store:
            await store.append("a", [result(1)])
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
            for attempt in range(2):
                try:
                    await store.append("a", [result(2, "x" * 2000)])
                except StoreUnavailableError as error:
                    print(error.detail)
            assert await store.read("b") is None
            assert await cursors(store, "a") == [1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
            await store.end("a", [result(2, "x" * 2000), last(3)], NOW)
            assert await cursors(store, "a") == [1, 2, 3]

    asyncio.run(main())
"""


async def test_a_full_disk_is_told_and_later_writes_work_again(tmp_path: Path) -> None:
    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", textwrap.dedent(FULL), str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    done = await POOL.call(run)

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("File too large") == 2
    async with opened(tmp_path) as store:
        assert await cursors(store, "a") == [1, 2, 3]


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from("abc"), st.integers(1, 3)),
        st.tuples(st.just("end"), st.sampled_from("abcd"), st.integers(0, 2)),
        st.tuples(st.just("trim"), st.integers(0, 2), st.booleans()),
        st.tuples(st.just("cut"), st.sampled_from("abc"), st.integers(0, 4)),
        st.tuples(st.just("reopen"), st.none(), st.none()),
    ),
    max_size=30,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(actions=ACTIONS, segment=st.sampled_from([1, 400, 1 << 20]))
def test_it_does_what_the_store_in_memory_does(
    tmp_path_factory: Any, actions: list[Any], segment: int
) -> None:
    path = tmp_path_factory.mktemp("results")

    async def check() -> None:
        memory, store = MemoryResultStore(), opened(path, segment=segment)
        await store.__aenter__()
        placed, hours = 0, 0
        try:
            for kind, what, how in actions:
                if kind == "append" or kind == "end":
                    given = [result(placed + n, "z" * 50) for n in range(1, how + 1)]
                    placed += how
                    hours += 1
                    for one in (memory, store):
                        if kind == "append":
                            await one.append(what, given)
                        else:
                            await one.end(what, given, NOW + timedelta(hours=hours))
                elif kind == "trim":
                    before = NOW + timedelta(hours=hours - 2) if how else None
                    assert sorted(await store.trim(what, before)) == sorted(
                        await memory.trim(what, before)
                    )
                elif kind == "cut":
                    # It may let go of fewer.
                    gone = await store.cut(what, placed - how)
                    assert await memory.cut(what, gone) == gone
                else:
                    await store.__aexit__()
                    store = opened(path, segment=segment)
                    await store.__aenter__()
                assert await shown(store, *"abcd") == await shown(memory, *"abcd")
        finally:
            await store.__aexit__()

    asyncio.run(check())


async def test_files_go_with_the_oldest_results_of_a_run_that_does_not_end(tmp_path: Path) -> None:
    blobs = FileBlobStore(tmp_path / "blobs", POOL.call)
    apart: Any = {"blobs": blobs, "claim_bytes": 300}
    folder = tmp_path / "results"
    async with opened(folder, segment=5000, **apart) as store:
        await store.append("other", [result(1, "y" * 200)])
        most = 0
        for number in range(1, 5001):
            payload = f"{number:05}" * (80 if number % 250 == 0 else 10)
            await store.append("live", [result(number, payload)])
            if number % 500 == 0:
                await store.cut("live", number - 200)
                most = max(most, sum((await files(folder)).values()))
        left = await cursors(store, "live", limit=1000)
        sizes = blobs.size
        whole = await shown(store, "live", "other")
    async with opened(folder, segment=5000, **apart) as store:
        assert await shown(store, "live", "other") == whole
        # The start has found out which of the newest part nobody needs.
        assert 402 <= blobs.size <= sizes
        gone = await store.cut("live", 4999)
        assert await cursors(store, "live") == list(range(gone + 1, 5001))
        await store.end("live", [last(5001)], NOW)
        assert await store.trim(0) == ["live"]
        assert (sizes, blobs.size) == (5 * 402, 0)
        assert await cursors(store, "other") == [1]

    assert left == list(range(left[0], 5001))
    assert left[0] <= 4801
    # Not what 5,000 results take, which is over a megabyte.
    assert most < 400_000


async def test_a_cut_is_there_whole_or_not_at_all_after_a_crash(tmp_path: Path) -> None:
    async with opened(tmp_path / "full", segment=1 << 20) as store:
        for number in range(1, 401):
            await store.append("a", [result(number, "x" * 1000)])
        size = sum((await files(tmp_path / "full")).values())
        gone = await store.cut("a", 200)
    [name] = await files(tmp_path / "full")
    data = await POOL.call((tmp_path / "full" / name).read_bytes)
    seen = set()
    for end in range(size, len(data) + 1):
        folder = tmp_path / str(end)
        await POOL.call(folder.mkdir)
        await POOL.call((folder / name).write_bytes, data[:end])
        async with opened(folder, segment=1 << 20) as store:
            seen.add((await cursors(store, "a", limit=1))[0])
            assert await store.last("a") == 400

    assert gone > 0
    assert seen == {1, gone + 1}
