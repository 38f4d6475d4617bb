"""Events in files: over restarts and crashes, with memory and files that stay bounded."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import textwrap
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contract.events import NOW, event, numbers
from yukta_rx.durability.file.events import FileEventStore
from yukta_rx.durability.memory.events import MemoryEventStore
from yukta_rx.errors import StoreUnavailableError
from yukta_rx.metrics import Meters
from yukta_rx.streams.pool import BlockingPool

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.feature("OBS-01", "DUR-05")

POOL = BlockingPool(2)


def opened(path: Path, **options: Any) -> FileEventStore:
    return FileEventStore(path, POOL.call, **options)


async def files(path: Path) -> dict[str, int]:
    """Names and sizes of what is in a folder."""
    return await POOL.call(lambda: {one.name: one.stat().st_size for one in path.iterdir()})


@pytest.mark.parametrize("segment", [1, 3000, 1 << 20])
async def test_what_was_written_is_there_after_a_restart(tmp_path: Path, segment: int) -> None:
    async with opened(tmp_path, segment=segment) as store:
        await store.begin("x")
        for first in range(1, 101, 3):
            await store.append([event(first), event(first + 1), event(first + 2)])
        await store.trim(60)
        before = await store.span(), list(await store.read(0, 1000))
    async with opened(tmp_path, segment=segment) as store:
        assert (await store.span(), list(await store.read(0, 1000))) == before
        span = await store.begin("y")
        await store.append([event(103), event(104)])
        assert span.epochs == (("x", 0), ("y", 102))
        assert await numbers(store, 98) == [99, 100, 101, 102, 103, 104]
        # And what a restart has not read yet is trimmed by age as well.
        await store.append([event(105, hours=2)])
        await store.append([event(106, hours=2)])
        oldest = await store.trim(1000, NOW + timedelta(hours=1))
        assert await numbers(store, 0) == list(range(oldest, 107))


async def test_a_write_that_a_crash_cut_short_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    async with opened(tmp_path / "full") as store:
        await store.begin("x")
        await store.append([event(1), event(2)])
        size = sum((await files(tmp_path / "full")).values())
        await store.append([event(3), event(4)])
    [name] = await files(tmp_path / "full")
    data = await POOL.call((tmp_path / "full" / name).read_bytes)
    seen = set()
    for cut in range(size, len(data) + 1):
        folder = tmp_path / str(cut)
        await POOL.call(folder.mkdir)
        await POOL.call((folder / name).write_bytes, data[:cut])
        async with opened(folder) as store:
            span = await store.begin("y")
            found = tuple(await numbers(store))
            seen.add(found)
            assert span.newest == found[-1]
            assert span.epochs == (("x", 0), ("y", found[-1]))
            await store.append([event(span.newest + 1)])
        async with opened(folder) as store:
            assert await numbers(store) == [*found, found[-1] + 1]

    assert seen == {(1, 2), (1, 2, 3, 4)}


@pytest.mark.parametrize("damage", [(b'"type"', b'"ty\xffe"'), (b'"data"', b'"dada"')])
@pytest.mark.parametrize("which", [1, 100, 200])
async def test_a_damaged_event_is_passed_over_counted_and_keeps_no_server_from_starting(
    tmp_path: Path, damage: tuple[bytes, bytes], which: int
) -> None:
    async with opened(tmp_path) as store:
        await store.begin("x")
        await store.append([event(seq) for seq in range(1, 201)])
    [name] = await files(tmp_path)
    lines = (await POOL.call((tmp_path / name).read_bytes)).splitlines(keepends=True)
    assert damage[0] in lines[which]
    lines[which] = lines[which].replace(*damage)
    await POOL.call((tmp_path / name).write_bytes, b"".join(lines))
    meters = Meters()
    async with opened(tmp_path, meters=meters) as store:
        left = [seq for seq in range(1, 201) if seq != which]
        assert (await store.begin("y")).newest == 200
        assert await numbers(store, 0, 1000) == left
        assert await numbers(store, 0, 1) == left[:1]
        # From every place, also right before it.
        assert await numbers(store, which - 1, 5) == [seq for seq in left if seq > which][:5]
        assert meters.counter("yukta.store.quarantined", store="events").value == 1
        await store.append([event(201)])
        assert await numbers(store, 200) == [201]


async def test_a_crash_while_a_new_file_was_made_loses_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path, segment=300) as store:
        await store.begin("x")
        for seq in range(1, 20):
            await store.append([event(seq)])
    newest = max(await files(tmp_path))
    whole = await POOL.call((tmp_path / newest).read_bytes)
    lines = whole.splitlines(keepends=True)
    lost = sum(b'"event"' in line for line in lines)
    for left in range(len(lines[0])):
        await POOL.call((tmp_path / newest).write_bytes, whole[:left])
        async with opened(tmp_path, segment=300) as store:
            span = await store.span()
            assert (span.newest, span.epochs) == (19 - lost, (("x", 0),))
            assert await numbers(store) == list(range(1, 20 - lost))
    async with opened(tmp_path, segment=300) as store:
        await store.begin("y")
        await store.append([event(20), event(21)])
    async with opened(tmp_path, segment=300) as store:
        assert await numbers(store, 15) == [*range(16, 20 - lost), 20, 21]
        assert (await store.span()).epochs == (("x", 0), ("y", 19 - lost))


async def test_readers_and_trims_and_writes_at_the_same_time(tmp_path: Path) -> None:
    async with opened(tmp_path, segment=1500) as store:
        await store.begin("x")
        for seq in range(1, 100):
            await store.append([event(seq)])

        async def read_all() -> list[int]:
            found: list[int] = []
            while more := await numbers(store, found[-1] if found else 0, 7):
                found += more
            return found

        async def write() -> None:
            for seq in range(100, 150):
                await store.append([event(seq)])
                await store.trim(60)

        *read, _ = await asyncio.gather(*(read_all() for _ in range(3)), write())

    for found in read:
        # What is missing went before it was asked for; nothing comes twice or out of order.
        assert found == sorted(set(found))
        assert found[-1] >= 99
        holes = [later for earlier, later in itertools.pairwise(found) if later - earlier > 1]
        assert all(later <= 150 - 60 + 30 for later in holes)


async def test_a_write_whose_caller_left_is_not_written_twice(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.begin("x")
        task = asyncio.ensure_future(store.append([event(1, what="first")]))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await store.append([event(1, what="again"), event(2)])
        found = await store.read(0)
    async with opened(tmp_path) as store:
        assert list(await store.read(0)) == list(found)
    assert [(seq, one.data) for seq, one in found] == [(1, {"what": "first"}), (2, {"n": 2})]


async def test_a_broken_line_costs_that_line(tmp_path: Path, caplog: Any) -> None:
    async with opened(tmp_path) as store:
        await store.begin("x")
        await store.append([event(1)])
        await store.append([event(2)])
    [name] = await files(tmp_path)
    data = await POOL.call((tmp_path / name).read_bytes)
    await POOL.call((tmp_path / name).write_bytes, data.replace(b'{"seq":1', b'{"seq":?'))
    async with opened(tmp_path) as store:
        assert await numbers(store) == [2]

    assert "is no event and is passed over" in caplog.text


async def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    await POOL.call((tmp_path / "file").write_bytes, b"")

    with pytest.raises(StoreUnavailableError, match="file/events"):
        async with opened(tmp_path / "file" / "events"):
            pass


FULL = """
    import asyncio, resource, sys
    from pathlib import Path
    from tests.contract.events import event, numbers
    from yukta_rx.durability.file.events import FileEventStore
    from yukta_rx.errors import StoreUnavailableError
    from yukta_rx.streams.pool import BlockingPool

    async def main():
        async with FileEventStore(Path(sys.argv[1]), BlockingPool(2).call, segment=900) as store:
            await store.begin("x")
            await store.append([event(1)])
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
            for attempt in range(2):
                try:
                    await store.append([event(2, text="x" * 2000), event(3)])
                except StoreUnavailableError as error:
                    print(error.detail)
            assert await numbers(store) == [1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
            await store.append([event(2, text="x" * 2000), event(3)])
            await store.append([event(4)])
            assert await numbers(store) == [1, 2, 3, 4]

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
        assert await numbers(store) == [1, 2, 3, 4]


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 70), st.integers(0, 3)),
        st.tuples(st.just("trim"), st.integers(1, 100), st.none()),
        st.tuples(st.just("reopen"), st.booleans(), st.none()),
    ),
    max_size=12,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(actions=ACTIONS, segment=st.sampled_from([1, 3000, 1 << 20]))
def test_it_has_at_least_what_the_store_in_memory_has(
    tmp_path_factory: Any, actions: list[Any], segment: int
) -> None:
    path = tmp_path_factory.mktemp("events")

    async def check() -> None:
        memory, store = MemoryEventStore(), opened(path, segment=segment)
        await store.__aenter__()
        newest, lives = 0, 0
        try:
            for kind, what, hole in [("reopen", True, None), *actions]:
                if kind == "append":
                    given = [event(newest + hole + n) for n in range(1, what + 1)]
                    newest = given[-1].seq
                    await memory.append(given)
                    await store.append(given)
                elif kind == "trim":
                    assert await store.trim(what) <= await memory.trim(what)
                else:
                    await store.__aexit__()
                    store = opened(path, segment=segment)
                    await store.__aenter__()
                    if what:
                        lives += 1
                        await memory.begin(f"e{lives}")
                        await store.begin(f"e{lives}")
                less, more = await memory.span(), await store.span()
                assert more.newest == less.newest == newest
                assert more.epochs[-len(less.epochs) :] == less.epochs
                kept = await numbers(memory)
                assert (await numbers(store))[-len(kept) or newest :] == kept
                for after in range(less.oldest - 1, newest + 1, 37):
                    assert list(await store.read(after, 40)) == list(await memory.read(after, 40))
        finally:
            await store.__aexit__()

    asyncio.run(check())
