"""The checkpoint store in files: the contract, crashes at every byte, damage, a full disk."""

from __future__ import annotations

import asyncio
import json
import resource
import shutil
import threading
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.checkpoints import (
    CheckpointContract,
    mark,
    number,
    numbers_of,
    rows_of,
    shown,
    state_of,
)
from yukta_rx.durability.file._checkpoint_lines import sealed
from yukta_rx.durability.file._checkpoint_reader import CHUNK
from yukta_rx.durability.file.checkpoints import FileNodeCheckpointStore
from yukta_rx.durability.stores.checkpoints import (
    DAMAGED,
    UNSERIALISABLE,
    WRITE_FAILED,
    CheckpointRow,
    NodeCheckpoint,
)
from yukta_rx.errors import StoreUnavailableError
from yukta_rx.metrics import Meters
from yukta_rx.model.message import Message
from yukta_rx.streams.pool import BlockingPool
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.feature("DUR-02")

POOL = BlockingPool(4)


def made(folder: Path, **options: Any) -> FileNodeCheckpointStore:
    return FileNodeCheckpointStore(folder, POOL.call, **options)


async def opened(folder: Path, **options: Any) -> FileNodeCheckpointStore:
    store = made(folder, **options)
    await store.start()
    return store


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("[0-9]*.jsonl"))


def texts(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in segments(folder)}


def put(folder: Path, files: dict[str, bytes]) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def change(folder: Path, old: bytes, new: bytes) -> None:
    """Replace bytes in whatever file has them."""
    [path] = [path for path in segments(folder) if old in path.read_bytes()]
    path.write_bytes(path.read_bytes().replace(old, new, 1))


def row_of(size: int, n: int = 0) -> CheckpointRow:
    return CheckpointRow.of(((None, Message.of({"n": n, "text": "x" * size}, id=f"m{n}")),))


async def idle(store: FileNodeCheckpointStore) -> None:
    """Wait until nothing is left to clean."""
    assert store._tasks is not None
    await store._tasks.ended()


def cleaned(store: FileNodeCheckpointStore) -> int:
    assert store._cleaner is not None
    return store._cleaner.removed


class TestFiles(CheckpointContract):
    """In files."""

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[FileNodeCheckpointStore]:
        self.folder = tmp_path / "restart"
        self.others: list[Any] = [await opened(self.folder)]
        yield self.others[0]
        for store in self.others:
            await store.close()

    def lose(self, store: Any) -> None:
        store._log._jobs = None

    def refuse(self, store: Any) -> None:
        store._take = lambda output, _row, **_: store._give_up(output, UNSERIALISABLE)

    async def restarted(self, store: Any) -> Any:
        await store.close()
        self.others.append(await opened(self.folder))
        return self.others[-1]

    async def crashed(self, store: Any) -> list[Any]:
        await store.close()
        files = await POOL.call(texts, self.folder)
        [(name, text)] = files.items()
        ends = [at + 1 for at, byte in enumerate(text) if byte == ord("\n")]
        left = []
        for nth, end in enumerate(ends):
            folder = await POOL.call(put, self.folder / f"{nth}", {name: text[:end]})
            left.append(await opened(folder))
        self.others += left
        return left


# --- crashes -------------------------------------------------------------------------------------


@pytest.mark.slow
@virtual_time
async def test_cut_off_at_any_byte_of_the_last_write_all_of_it_is_there_or_nothing(
    tmp_path: Path,
) -> None:
    store = await opened(tmp_path / "whole")
    store.append("run", "a", number(1))
    await mark(store, "run", "b", number(2))
    before = await POOL.call(texts, tmp_path / "whole")
    await mark(store, "run", "a", number(3))
    await store.close()
    after = await POOL.call(texts, tmp_path / "whole")
    [(name, text)] = after.items()

    for size in range(len(before[name]), len(text) + 1):
        folder = await POOL.call(put, tmp_path / "cut", {name: text[:size]})
        left = await opened(folder)
        whole = size == len(text)
        expected = NodeCheckpoint(whole, None, 1 + whole)
        assert await state_of(left, "run", "a") == expected, size
        assert await numbers_of(left, "run", "a") == [1, 3][: 1 + whole]
        assert await state_of(left, "run", "b") == NodeCheckpoint(True, None, 1)
        await mark(left, "run", "c", number(4))
        await left.close()
        again = await opened(folder)
        assert (await state_of(again, "run", "c")).complete
        assert (await state_of(again, "run", "a")).complete == whole
        assert (again.torn, again.quarantined) == (0, [])
        await again.close()


@virtual_time
async def test_what_is_torn_is_cut_off_the_file_whatever_follows(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await mark(store, "run", "a", number(1))
    await store.close()
    [(name, text)] = (await POOL.call(texts, tmp_path)).items()
    await POOL.call((tmp_path / name).write_bytes, text + b"torn " * 1000)

    store = await opened(tmp_path)

    assert store.torn == 1
    assert await POOL.call(texts, tmp_path) == {name: text}
    await store.close()


@virtual_time
async def test_a_hole_in_the_last_write_takes_what_is_behind_it_in_that_write(
    tmp_path: Path,
) -> None:
    """What a power failure may leave: later blocks of a write without the earlier ones."""
    store = await opened(tmp_path)
    await mark(store, "run", "a", number(1))
    store.append("run", "b", number(2))
    store.append("run", "c", number(3))
    await mark(store, "run", "d", number(4))
    await store.close()
    await POOL.call(change, tmp_path, b'"node":"c"', b"\0" * 10)

    store = await opened(tmp_path)

    assert store.torn == 1
    assert set(await store.states("run")) == {"a", "b"}
    assert await state_of(store, "run", "a") == NodeCheckpoint(True, None, 1)
    assert await numbers_of(store, "run", "b") == [2]
    await store.close()


@pytest.mark.slow
@virtual_time
async def test_a_file_that_was_begun_and_has_nothing_in_it_is_gone_on_with(tmp_path: Path) -> None:
    store = await opened(tmp_path, segment_bytes=10)
    await mark(store, "run", "a", number(1))
    await mark(store, "run", "b", number(2))
    await store.close()
    files = await POOL.call(texts, tmp_path)
    last = max(files)

    for size in range(len(files[last]) + 1):
        folder = await POOL.call(put, tmp_path / "cut", files | {last: files[last][:size]})
        left = await opened(folder)
        assert await state_of(left, "run", "a") == NodeCheckpoint(True, None, 1)
        assert (await state_of(left, "run", "b")).complete == (size == len(files[last]))
        await mark(left, "run", "c", number(3))
        await left.close()
        left = await opened(folder)
        assert await numbers_of(left, "run", "c") == [3]
        assert left.quarantined == []
        await left.close()


# --- damage --------------------------------------------------------------------------------------


async def three_nodes(folder: Path) -> None:
    """Two that are complete and one that is not, each line written by itself."""
    store = await opened(folder)
    for n in range(3):
        for node in ("a", "b", "part"):
            store.append("run", node, number(n))
            if (written := store.written("run", node)) is not None:
                await written
    await mark(store, "run", "a")
    await mark(store, "run", "b", number(3))
    await mark(store, "run", "z", number(3))
    await store.close()


@virtual_time
async def test_a_node_with_a_damaged_row_is_incomplete_for_good_and_the_line_is_put_aside(
    tmp_path: Path,
) -> None:
    await three_nodes(tmp_path)
    await POOL.call(change, tmp_path, b'"node":"a","nth":1', b'"node":"a","nth":7')

    for _ in range(2):
        meters = Meters()
        store = await opened(tmp_path, meters=meters)
        counted = meters.counter("yukta.store.quarantined", store="restart").value
        assert len(store.quarantined) == counted == 1
        assert await state_of(store, "run", "a") == NodeCheckpoint(False, DAMAGED)
        assert await rows_of(store, "run", "a") == []
        assert await numbers_of(store, "run", "b") == [0, 1, 2, 3]
        assert await state_of(store, "run", "part") == NodeCheckpoint(False, None, 3)
        await store.close()

    kept = await POOL.call((tmp_path / "outputs.quarantine.jsonl").read_text)
    assert [json.loads(line)["place"] for line in kept.splitlines()] == [
        "outputs.jsonl, 00000001.jsonl at byte 850"
    ]
    assert '"nth":7' in json.loads(kept)["line"]


@virtual_time
async def test_a_damaged_line_of_nobody_makes_every_unfinished_output_incomplete(
    tmp_path: Path,
) -> None:
    await three_nodes(tmp_path)
    await POOL.call(
        change, tmp_path, b'"kind":"row","run":"run","node":"part","nth":2', b"?" * 45 + b"\n"
    )

    store = await opened(tmp_path)

    assert await state_of(store, "run", "part") == NodeCheckpoint(False, DAMAGED)
    assert await numbers_of(store, "run", "a") == [0, 1, 2]
    assert len(store.quarantined) == 2
    await store.close()


@pytest.mark.parametrize(
    ("node", "nth"),
    [
        pytest.param("part", 1, id="by-the-next-row"),
        pytest.param("a", 2, id="by-the-end-marker"),
        pytest.param("a", 0, id="by-both"),
    ],
)
@virtual_time
async def test_a_line_that_is_gone_is_noticed_by_those_that_follow(
    tmp_path: Path, node: str, nth: int
) -> None:
    await three_nodes(tmp_path)

    def without() -> None:
        [path] = segments(tmp_path)
        lines = path.read_bytes().splitlines(keepends=True)
        gone = b'"node":"%b","nth":%d,' % (node.encode(), nth)
        kept = [line for line in lines if gone not in line]
        assert len(kept) == len(lines) - 1
        path.write_bytes(b"".join(kept))

    await POOL.call(without)
    store = await opened(tmp_path)

    assert await state_of(store, "run", node) == NodeCheckpoint(False, DAMAGED)
    assert await numbers_of(store, "run", "b") == [0, 1, 2, 3]
    await store.close()


@virtual_time
async def test_a_row_that_is_damaged_while_the_store_is_open_is_no_output(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await mark(store, "run", "a", number(1))
    await POOL.call(change, tmp_path, b'"payload":{"n":1}', b'"payload":{"n":2}')

    with pytest.raises(
        StoreUnavailableError, match="row 0 of the output of node a of run run is damaged"
    ):
        await rows_of(store, "run", "a")

    assert await state_of(store, "run", "a") == NodeCheckpoint(False, DAMAGED)
    await store.close()
    store = await opened(tmp_path)
    assert await state_of(store, "run", "a") == NodeCheckpoint(False, DAMAGED)
    await store.close()


@virtual_time
async def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    line = sealed(b'"kind":"segment","format":99,"after":null}')
    await POOL.call(put, tmp_path / "new", {"00000001.jsonl": line})

    with pytest.raises(
        StoreUnavailableError, match=r"00000001\.jsonl.*newer version, in format 99"
    ):
        await opened(tmp_path / "new")


# --- a disk that refuses -------------------------------------------------------------------------


@asynccontextmanager
async def full_after(folder: Path, left: int) -> AsyncIterator[None]:
    """Let no file grow by more than so many bytes: the system refuses the rest of a write."""
    size = max(map(len, (await POOL.call(texts, folder)).values()))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + left, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


@virtual_time
async def test_with_a_full_disk_a_mark_fails_and_later_ones_are_fine(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await mark(store, "run", "a", number(1))
    async with full_after(tmp_path, 150):
        store.append("run", "b", number(2))
        failed = [store.mark_complete("run", node, number(3)) for node in "bc"]
        for one in failed:
            assert one is not None
            with pytest.raises(StoreUnavailableError, match=r"00000001\.jsonl.*File too large"):
                await one
        with pytest.raises(StoreUnavailableError, match="node b of run run"):
            store.written("run", "b")

    await mark(store, "run", "d", number(4))

    for _ in range(2):
        assert await numbers_of(store, "run", "a") == [1]
        assert await state_of(store, "run", "b") == NodeCheckpoint(False, WRITE_FAILED)
        assert await state_of(store, "run", "c") == NodeCheckpoint(False, WRITE_FAILED)
        assert await numbers_of(store, "run", "d") == [4]
        await store.close()
        store = await opened(tmp_path)
    assert (store.torn, store.quarantined) == (0, [])
    await store.close()


@virtual_time
async def test_what_failed_is_said_in_the_files_before_anything_later(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await mark(store, "run", "a", number(1))
    async with full_after(tmp_path, 0):
        failing = store.mark_complete("run", "b", number(2))
        assert failing is not None
        with pytest.raises(StoreUnavailableError):
            await failing
    store.append("run", "c", number(3))
    await mark(store, "run", "d", number(4))
    await store.close()

    [text] = (await POOL.call(texts, tmp_path)).values()
    lines = [line for line in text.splitlines() if b'"node"' in line]
    assert [line[18:].split(b",")[0] + line.partition(b'"node":')[2][:3] for line in lines] == [
        b'"kind":"done""a"',
        b'"kind":"incomplete""b"',
        b'"kind":"row""c"',
        b'"kind":"done""d"',
    ]


@asynccontextmanager
async def held_up(store: FileNodeCheckpointStore) -> AsyncIterator[None]:
    """The disk is busy meanwhile."""
    gate = threading.Event()
    busy = asyncio.ensure_future(store._log.call(gate.wait))
    await asyncio.sleep(0)
    try:
        yield
    finally:
        gate.set()
        await busy


@virtual_time
async def test_what_was_handed_over_before_a_failure_was_known_fails_too(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await mark(store, "run", "a", number(1))
    async with full_after(tmp_path, 1000):
        async with held_up(store):
            store.append("run", "b", row_of(5000))
            between = asyncio.ensure_future(store._flushed())
            await asyncio.sleep(0)
            behind = store.mark_complete("run", "c", number(2))
            await asyncio.sleep(0)
        await between

    assert behind is not None
    with pytest.raises(StoreUnavailableError, match="File too large"):
        await behind
    assert await state_of(store, "run", "c") == NodeCheckpoint(False, WRITE_FAILED)
    await mark(store, "run", "d", number(3))
    await store.close()


@virtual_time
async def test_nothing_of_a_write_that_failed_stays_in_the_file(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await mark(store, "run", "a", number(1))
    before = await POOL.call(texts, tmp_path)
    async with full_after(tmp_path, 3000):
        failing = store.mark_complete("run", "b", row_of(5000))
        assert failing is not None
        with pytest.raises(StoreUnavailableError):
            await failing

    assert await POOL.call(texts, tmp_path) == before
    await store.close()


@virtual_time
async def test_a_run_that_was_cleared_while_the_disk_was_full_stays_gone(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await mark(store, "run", "a", number(1))
    await mark(store, "other", "a", number(1))
    async with full_after(tmp_path, 0):
        with pytest.raises(StoreUnavailableError, match="File too large"):
            await store.clear("run")
        gone = dict(await store.states("run"))
    await store.close()

    store = await opened(tmp_path)
    assert gone == dict(await store.states("run")) == {}
    assert await numbers_of(store, "other", "a") == [1]
    await store.close()


@virtual_time
async def test_a_folder_that_cannot_be_used_is_told_at_the_start(tmp_path: Path) -> None:
    await POOL.call((tmp_path / "file").write_text, "no folder")

    with pytest.raises(StoreUnavailableError, match="file"):
        await opened(tmp_path / "file" / "below")


@virtual_time
async def test_nodes_are_held_back_while_too_much_waits_for_the_disk(tmp_path: Path) -> None:
    store = await opened(tmp_path, queue_bytes=1000)
    numbers = count()
    while not store.full:
        store.append("run", "a", number(next(numbers)))
    await store.room()

    assert not store.full
    await mark(store, "run", "a")
    assert await numbers_of(store, "run", "a") == list(range(next(numbers)))
    assert store._queued == 0
    await store.close()


@virtual_time
async def test_a_message_that_cannot_be_written_gives_the_output_up(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    store.append("run", "a", number(1))
    taken = store.append("run", "a", CheckpointRow.of(((None, Message.of(object())),)))
    await mark(store, "run", "a")
    await store.close()

    store = await opened(tmp_path)
    assert taken is False
    assert await state_of(store, "run", "a") == NodeCheckpoint(False, UNSERIALISABLE)
    await store.close()


@virtual_time
async def test_rows_on_their_way_are_not_kept_of_a_node_that_is_given_up(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    store.append("run", "a", row_of(5000))
    store.mark_incomplete("run", "a", WRITE_FAILED)
    await store._flushed()

    assert await rows_of(store, "run", "a") == []
    assert await state_of(store, "run", "a") == NodeCheckpoint(False, WRITE_FAILED)
    assert 0 < store.bytes < 200
    await store.close()


# --- room on the disk ----------------------------------------------------------------------------


@pytest.mark.slow
@virtual_time
async def test_files_that_nobody_needs_go_and_a_long_run_keeps_its_own(tmp_path: Path) -> None:
    store = await opened(tmp_path, segment_bytes=2000)
    expected = []
    for n in range(60):
        store.append("long", "a", number(n))
        expected.append(n)
        for node in "bc":
            await mark(store, f"run{n}", node, row_of(300, n))
        await store.clear(f"run{n}")
    await idle(store)

    files = await POOL.call(texts, tmp_path)
    assert cleaned(store) > 5
    assert sum(map(len, files.values())) < 3 * store.bytes + 4 * 2000
    assert await numbers_of(store, "long", "a") == expected
    await store.close()

    store = await opened(tmp_path, segment_bytes=2000)
    assert list(await store.runs()) == ["long"]
    assert await numbers_of(store, "long", "a") == expected
    await mark(store, "long", "a", number(60))
    assert (await state_of(store, "long", "a")).messages == 61
    await store.close()


@pytest.mark.slow
@virtual_time
async def test_a_crash_at_any_write_of_the_cleaning_loses_and_revives_nothing(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "live"
    store = await opened(folder, segment_bytes=1500)
    store._cleaner.stop()  # type: ignore[union-attr]
    for n in range(12):
        store.append("long", "ab"[n % 2], number(n))
        await mark(store, f"run{n}", "x", row_of(200, n))
        if n % 6:
            await store.clear(f"run{n}")
    store.mark_incomplete("long", "lost", WRITE_FAILED)
    await mark(store, "long", "silent")
    await store.close()

    async def seen(where: Path) -> Any:
        left = await opened(where, segment_bytes=1500)
        left._cleaner.stop()  # type: ignore[union-attr]
        runs = sorted(await left.runs())
        found = [
            (run, node, state, shown(await rows_of(left, run, node)))
            for run in runs
            for node, state in sorted((await left.states(run)).items())
        ]
        await left.close()
        return found

    whole = await POOL.call(texts, folder)
    expected = await seen(await POOL.call(put, tmp_path / "copy", whole))
    moments = [whole]
    store = await opened(folder, segment_bytes=1500)
    remove = store._log.remove

    async def watched(number: int) -> None:
        moments.append(await POOL.call(texts, folder))
        await remove(number)
        moments.append(await POOL.call(texts, folder))

    store._log.remove = watched  # type: ignore[method-assign]
    await idle(store)
    await store.close()
    assert cleaned(store) > 2

    for earlier, copied, removed in zip(moments[::2], moments[1::2], moments[2::2], strict=False):
        last = max(copied)
        text, before = copied[last], len(earlier.get(last, b""))
        cuts = [at + 1 for at, byte in enumerate(text) if byte == ord("\n") and at + 1 >= before]
        left = [copied | {last: text[:cut]} for cut in (before, *cuts)]
        for files in (*left, removed):
            assert await seen(await POOL.call(put, tmp_path / "copy", files)) == expected


@virtual_time
async def test_a_run_that_is_cleared_while_it_is_copied_stays_gone(tmp_path: Path) -> None:
    store = await opened(tmp_path, segment_bytes=3000)
    store.append("long", "a", number(1))
    await mark(store, "other", "a", number(1))
    await mark(store, "junk", "a", row_of(3000))
    await mark(store, "junk", "b", row_of(3000))
    assert store._cleaner is not None
    async with held_up(store):
        queued = store._queued
        clearing = [asyncio.ensure_future(store.clear("junk"))]
        await asyncio.sleep(0)
        store._cleaner.wake()
        while store._queued < queued + 300:
            await asyncio.sleep(0)
        clearing.append(asyncio.ensure_future(store.clear("long")))
        await asyncio.sleep(0)
    await asyncio.gather(*clearing)
    await idle(store)

    assert cleaned(store) > 0
    assert list(await store.runs()) == ["other"]
    assert await numbers_of(store, "other", "a") == [1]
    await store.close()
    store = await opened(tmp_path)
    assert list(await store.runs()) == ["other"]
    await store.close()


@pytest.mark.slow
@virtual_time
async def test_a_node_that_is_given_up_while_it_is_copied_is_left(tmp_path: Path) -> None:
    given_up = False

    async def offload(fn: Any, *args: Any) -> Any:
        nonlocal given_up
        if not given_up:
            given_up = True
            store.mark_incomplete("long", "a", WRITE_FAILED)
        return await POOL.call(fn, *args)

    store = FileNodeCheckpointStore(tmp_path, offload, segment_bytes=6 * CHUNK)
    await store.start()
    for n in range(3):
        store.append("long", "a", row_of(CHUNK * 3 // 4, n))
    store.append("long", "b", number(1))
    await mark(store, "junk", "a", row_of(CHUNK * 4))
    await mark(store, "other", "a", number(2))
    await store.clear("junk")
    await idle(store)

    assert given_up
    assert cleaned(store) == 1
    assert await state_of(store, "long", "a") == NodeCheckpoint(False, WRITE_FAILED)
    assert await numbers_of(store, "long", "b") == [1]
    await store.close()


@virtual_time
async def test_nothing_is_taken_behind_an_end_marker_that_is_on_its_way(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    marked = store.mark_complete("run", "a", number(1))
    taken = store.append("run", "a", number(2))
    assert marked is not None
    await marked
    await store.close()

    store = await opened(tmp_path)
    assert taken is False
    assert await state_of(store, "run", "a") == NodeCheckpoint(True, None, 1)
    await store.close()


@virtual_time
async def test_the_id_of_a_run_that_was_cleared_can_be_used_again(tmp_path: Path) -> None:
    store = await opened(tmp_path, segment_bytes=400)
    for n in range(6):
        await mark(store, "run", "a", number(n))
        await mark(store, "other", f"n{n}", number(n))
        await store.clear("run")
    await mark(store, "run", "a", number(7))
    await store.close()

    store = await opened(tmp_path, segment_bytes=400)
    assert await numbers_of(store, "run", "a") == [7]
    assert len(await store.states("other")) == 6
    await store.close()


@pytest.mark.slow
@virtual_time
async def test_a_reader_goes_on_when_its_file_is_given_up_meanwhile(tmp_path: Path) -> None:
    store = await opened(tmp_path, segment_bytes=3 * CHUNK)
    for n in range(4):
        store.append("long", "a", row_of(CHUNK, n))
        await mark(store, f"run{n}", "x", row_of(CHUNK * 3 // 2, n))
    reader = store.read("long", "a")
    first = await anext(reader)
    for n in range(4):
        await store.clear(f"run{n}")
    await idle(store)
    rest = [row async for row in reader]

    assert cleaned(store) > 0
    assert [m.payload["n"] for row in (first, *rest) for _, m in row.messages] == [0, 1, 2, 3]
    await store.close()


@virtual_time
async def test_a_reader_that_comes_too_late_for_a_file_looks_again(tmp_path: Path) -> None:
    meanwhile: list[str] = []

    async def offload(fn: Any, *args: Any) -> Any:
        if meanwhile:
            await store.clear(meanwhile.pop())
            await idle(store)
        return await POOL.call(fn, *args)

    store = FileNodeCheckpointStore(tmp_path, offload, segment_bytes=3000)
    await store.start()
    store.append("long", "a", number(1))
    await mark(store, "junk", "a", row_of(3000))
    await mark(store, "other", "a", number(2))
    meanwhile.append("junk")

    assert await numbers_of(store, "long", "a") == [1]
    assert cleaned(store) == 1
    await store.close()


@virtual_time
async def test_a_reader_is_told_that_the_run_is_gone(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    for n in range(3):
        store.append("run", "a", row_of(CHUNK, n))
    await mark(store, "run", "a")
    reader = store.read("run", "a")
    await anext(reader)
    await store.clear("run")

    with pytest.raises(StoreUnavailableError, match="not kept any more"):
        await anext(reader)
    await store.close()


@virtual_time
async def test_a_waiter_that_is_cancelled_takes_nobody_with_it(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    one = store.mark_complete("run", "a", number(1))
    other = store.mark_complete("run", "a", number(1))
    assert one is not None
    assert other is not None
    waiting = asyncio.ensure_future(one)
    await asyncio.sleep(0)
    waiting.cancel()
    await other
    assert waiting.cancelled()

    assert await numbers_of(store, "run", "a") == [1]
    await store.close()
