"""The blob stores against the contract, the contract against bad ones, and the claim check."""

from __future__ import annotations

import os
import shutil
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.blobs import ONE, TEXT, TWO, BlobContract
from tests.contract.catching import broken_guarantees
from tests.contract.checkpoints import mark, rows_of, shown, state_of
from yukta_rx.durability.file.blobs import FileBlobStore
from yukta_rx.durability.file.checkpoints import FileNodeCheckpointStore
from yukta_rx.durability.memory.blobs import MemoryBlobStore
from yukta_rx.durability.stores.blobs import Owner, blob_of, checked
from yukta_rx.durability.stores.checkpoints import CheckpointRow, NodeCheckpoint
from yukta_rx.errors import StoreUnavailableError
from yukta_rx.model import codec
from yukta_rx.model.codec import Blob
from yukta_rx.model.message import Message
from yukta_rx.streams.pool import BlockingPool
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.feature("DUR-02")

POOL = BlockingPool(4)
LIMIT = 1000
LARGE = {"text": "x" * LIMIT, "big": 2**70, "pair": (1, b"\x00")}
SMALL = {"text": "x"}


async def started(folder: Path) -> FileBlobStore:
    store = FileBlobStore(folder, POOL.call)
    await store.start()
    return store


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


class TestMemory(BlobContract):
    """In memory."""

    @pytest.fixture
    def store(self) -> MemoryBlobStore:
        return MemoryBlobStore()


class TestFiles(BlobContract):
    """In files."""

    @pytest.fixture
    async def store(self, tmp_path: Path) -> FileBlobStore:
        return await started(tmp_path)

    async def restarted(self, store: Any) -> FileBlobStore:
        return await started(store.folder)

    async def damage(self, store: Any, blob: Blob, data: bytes | None) -> None:
        path = store._object(blob.sha256)
        if data is None:
            await POOL.call(path.unlink)
        else:
            await POOL.call(path.write_bytes, data)


# --- files ---------------------------------------------------------------------------------------


@virtual_time
async def test_files_of_others_are_left_alone_and_keep_no_blob(tmp_path: Path) -> None:
    store = await started(tmp_path)
    blob = await store.put(Owner("results", "gone"), b"kept")
    await store.put(Owner("results", "run"), b"more")
    strange = [
        tmp_path / "owners" / ".strange",
        tmp_path / "owners" / "results" / ".strange",
        tmp_path / "owners" / "results" / "gone" / ".strange",
        tmp_path / "objects" / ".strange",
        tmp_path / "objects" / blob.sha256[:2] / ".strange",
    ]
    for path in strange:
        await POOL.call(path.write_text, "a note of somebody")

    await store.keep("results", ["run"])
    store = await started(tmp_path)
    await store.keep("results", ["run"])
    assert store.size == len(b"more")
    with pytest.raises(StoreUnavailableError, match="is missing"):
        await store.get(blob)
    assert await POOL.call(lambda: all(path.exists() for path in strange))


@virtual_time
async def test_a_crash_in_the_middle_of_a_put_leaves_nothing_behind_the_next_start(
    tmp_path: Path,
) -> None:
    store = await started(tmp_path)
    kept = await store.put(ONE, TEXT)
    names = await POOL.call(files, tmp_path)
    orphan = await store.put(TWO, b"orphan")
    await POOL.call((tmp_path / "owners/outputs/two" / orphan.sha256).unlink)
    await POOL.call((tmp_path / "objects/ab").mkdir)
    await POOL.call((tmp_path / f"objects/ab/{'ab' * 32}.tmp").write_bytes, b"half")

    store = await started(tmp_path)

    assert await POOL.call(files, tmp_path) == names
    assert await store.get(kept) == TEXT
    assert store.size == len(TEXT)


@virtual_time
async def test_a_copy_of_the_folder_without_its_hard_links_is_as_good(tmp_path: Path) -> None:
    store = await started(tmp_path / "one")
    first, other = await store.put(ONE, b"x" * 10), await store.put(TWO, b"y" * 20)
    assert await store.put(TWO, b"x" * 10) == first
    await POOL.call(shutil.copytree, tmp_path / "one", tmp_path / "two")

    store = await started(tmp_path / "two")

    assert (await store.get(first), await store.get(other)) == (b"x" * 10, b"y" * 20)
    assert store.size == 30
    assert await POOL.call(files, tmp_path / "two") == await POOL.call(files, tmp_path / "one")
    await store.forget(TWO)
    assert store.size == 10
    assert await store.get(first) == b"x" * 10
    await store.forget(ONE)
    assert (store.size, await POOL.call(files, tmp_path / "two")) == (0, [])


async def test_a_blob_that_lost_its_bytes_is_written_anew(tmp_path: Path) -> None:
    store = await started(tmp_path)
    blob = await store.put(ONE, TEXT)
    await POOL.call(os.truncate, tmp_path / "objects" / blob.sha256[:2] / blob.sha256, 3)
    await store.put(TWO, TEXT)

    assert await store.get(blob) == TEXT
    await store.forget(TWO)
    assert await store.get(blob) == TEXT
    await store.forget(ONE)
    assert await POOL.call(files, tmp_path) == []


@virtual_time
async def test_a_folder_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    await POOL.call((tmp_path / "file").write_text, "no folder")

    with pytest.raises(StoreUnavailableError, match="file"):
        await started(tmp_path / "file" / "below")


@virtual_time
async def test_a_name_that_is_no_hash_opens_no_file(tmp_path: Path) -> None:
    store = await started(tmp_path)

    with pytest.raises(StoreUnavailableError, match="no hash"):
        await store.get(Blob("../../../etc/passwd", 10))


# --- the claim check -----------------------------------------------------------------------------


class Outputs:
    """A checkpoint store with a blob store, opened again as often as wanted."""

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        self.folder = folder
        self.limit = limit

    async def open(self) -> FileNodeCheckpointStore:
        self.blobs = FileBlobStore(self.folder / "blobs", POOL.call)
        store = FileNodeCheckpointStore(
            self.folder / "outputs", POOL.call, blobs=self.blobs, claim_bytes=self.limit
        )
        await store.start()
        return store

    async def text(self) -> bytes:
        return await POOL.call((self.folder / "outputs" / "00000001.jsonl").read_bytes)


def row(*payloads: Any) -> CheckpointRow:
    messages = [(None, Message.of(p, {"h": n}, id=f"m{n}")) for n, p in enumerate(payloads)]
    return CheckpointRow.of(messages, [("in", len(payloads))])


@virtual_time
async def test_a_large_payload_is_a_reference_in_its_row_and_comes_back(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path)
    store = await outputs.open()
    rows = [row(SMALL, LARGE, SMALL), row(LARGE), row(SMALL)]
    for one in rows[:2]:
        store.append("run", "a", one)
    await mark(store, "run", "a", rows[2])
    at_once = shown(await rows_of(store, "run", "a"))
    await store.close()

    text, kept = await outputs.text(), codec.encode(LARGE)
    tag = b'{"$yukta":"blob","v":{"sha256":"%b","size":%d}}'
    assert text.count(tag % (sha256(kept).hexdigest().encode(), len(kept))) == 2
    assert len(text) < 2 * LIMIT
    store = await outputs.open()
    assert outputs.blobs.size == len(kept)
    assert at_once == shown(await rows_of(store, "run", "a")) == shown(rows)
    await store.close()


@virtual_time
async def test_a_payload_that_looks_like_a_reference_stays_one(tmp_path: Path) -> None:
    store = await Outputs(tmp_path).open()
    rows = [row(blob_of(TEXT), LARGE), row(blob_of(TEXT)), row(["y" * LIMIT * 2, blob_of(TEXT)])]
    for one in rows:
        store.append("run", "a", one)
    await mark(store, "run", "a")

    assert shown(await rows_of(store, "run", "a")) == shown(rows)
    await store.close()


@virtual_time
async def test_with_a_limit_of_0_every_payload_is_in_its_row(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path, 0)
    store = await outputs.open()
    await mark(store, "run", "a", row(LARGE))
    await store.close()

    assert b"x" * LIMIT in await outputs.text()
    assert outputs.blobs.size == 0


@virtual_time
async def test_a_row_of_many_small_payloads_refers_to_nothing(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path)
    store = await outputs.open()
    await mark(store, "run", "a", row(*[SMALL] * 100))

    assert outputs.blobs.size == 0
    assert len((await rows_of(store, "run", "a"))[0]) == 100
    await store.close()


@virtual_time
async def test_blobs_go_with_the_last_run_that_has_them(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path)
    store = await outputs.open()
    await mark(store, "old", "a", row(LARGE))
    await store.carry_over("old", "new", ["a"])
    await store.clear("old")
    [found] = await rows_of(store, "new", "a")

    assert shown([found]) == shown([row(LARGE)])
    assert outputs.blobs.size == len(codec.encode(LARGE))
    await store.clear("new")
    assert outputs.blobs.size == 0
    await store.close()


@virtual_time
async def test_what_cannot_be_carried_over_whole_is_not_carried_over(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path)
    store = await outputs.open()
    await mark(store, "old", "a", row(SMALL))
    await mark(store, "old", "b", row(LARGE))
    kept = blob_of(codec.encode(LARGE))
    await POOL.call(outputs.blobs._object(kept.sha256).unlink)
    other = store.mark_complete("other", "a", row(SMALL))

    with pytest.raises(StoreUnavailableError, match=f"blob {kept.sha256} is missing"):
        await store.carry_over("old", "new", ["a", "b"])

    assert dict(await store.states("new")) == {}
    assert set(await store.states("old")) == {"a", "b"}
    assert other is not None
    await other
    await store.close()


@virtual_time
async def test_blobs_of_runs_that_a_crash_took_go_at_the_start(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path)
    store = await outputs.open()
    await mark(store, "run", "a", row(LARGE))
    await outputs.blobs.put(Owner("checkpoints", "crashed"), b"before its row was written")
    await outputs.blobs.put(Owner("results", "crashed"), b"of another store")
    await store.close()

    store = await outputs.open()
    assert outputs.blobs.size == len(codec.encode(LARGE)) + len(b"of another store")
    assert shown(await rows_of(store, "run", "a")) == shown([row(LARGE)])
    await store.close()


@pytest.mark.parametrize(("bad", "told"), [(None, "missing"), (b"{}", "damaged")])
@virtual_time
async def test_a_blob_that_is_not_there_is_named(
    tmp_path: Path, bad: bytes | None, told: str
) -> None:
    outputs = Outputs(tmp_path)
    store = await outputs.open()
    await mark(store, "run", "a", row(LARGE))
    kept = blob_of(codec.encode(LARGE))
    path = outputs.blobs._object(kept.sha256)
    await (POOL.call(path.unlink) if bad is None else POOL.call(path.write_bytes, bad))

    with pytest.raises(StoreUnavailableError, match=f"blob {kept.sha256} of {kept.size} .* {told}"):
        await rows_of(store, "run", "a")
    assert await state_of(store, "run", "a") == NodeCheckpoint(True, None, 1, 1)
    await store.close()


@virtual_time
async def test_an_output_with_blobs_is_not_read_without_their_store(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path)
    store = await outputs.open()
    await mark(store, "run", "a", row(LARGE))
    await store.close()
    store = FileNodeCheckpointStore(tmp_path / "outputs", POOL.call)
    await store.start()

    with pytest.raises(StoreUnavailableError, match="there is no store of blobs"):
        await rows_of(store, "run", "a")
    await store.close()


@virtual_time
async def test_a_blob_that_cannot_be_written_fails_the_row(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path)
    store = await outputs.open()
    await mark(store, "run", "a", row(SMALL))
    folder = outputs.blobs._objects
    await POOL.call(folder.rmdir)
    await POOL.call(folder.write_text, "no folder")
    failed = store.mark_complete("run", "b", row(LARGE))
    assert failed is not None
    with pytest.raises(StoreUnavailableError, match="objects"):
        await failed

    await POOL.call(folder.unlink)
    await mark(store, "run", "c", row(LARGE))
    assert shown(await rows_of(store, "run", "c")) == shown([row(LARGE)])
    assert not (await state_of(store, "run", "b")).complete
    await store.close()


# --- the suite itself ----------------------------------------------------------------------------


class Shortens(MemoryBlobStore):
    breaks = "B1"

    async def put(self, owner: Owner, data: bytes) -> Blob:
        return await super().put(owner, data[:255])


class CountsTwice(MemoryBlobStore):
    breaks = "B2"

    async def put(self, owner: Owner, data: bytes) -> Blob:
        known = blob_of(data).sha256 in self._kept
        self.size += len(data) if known and len(self._owners) == 1 and len(self._owned) > 2 else 0
        return await super().put(owner, data)


class ForgetsForAll(MemoryBlobStore):
    breaks = "B3"

    async def forget(self, owner: Owner) -> None:
        for name in self._owned.get(owner, ()):
            self._owners[name] = {owner}
        await super().forget(owner)


class KeepsForAll(MemoryBlobStore):
    breaks = "B4"

    async def keep(self, store: str, runs: Any) -> None:
        for owner in tuple(self._owned):
            if owner.run not in runs:
                await self.forget(owner)


class Trusts(MemoryBlobStore):
    breaks = "B5"

    async def get(self, blob: Blob) -> bytes:
        data = self._kept.get(blob.sha256)
        return checked(blob, None) if data is None else data


WRONG: list[Any] = [Shortens, CountsTwice, ForgetsForAll, KeepsForAll, Trusts]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.breaks)
def test_the_suite_notices_a_store_that_breaks_one_guarantee(wrong: Any) -> None:
    assert broken_guarantees(TestMemory, wrong) == {wrong.breaks}


def test_the_suite_has_a_bad_store_for_each_guarantee() -> None:
    numbers = {name.split("_")[1] for name in dir(BlobContract) if name.startswith("test_")}

    assert {wrong.breaks for wrong in WRONG} == numbers
