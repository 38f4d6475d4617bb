"""Large payloads kept apart by the stores of results, starts, starts that wait, and recent runs."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from tests.contract.archive import run as ended
from tests.contract.execution_log import (
    COMPACT_AFTER,
    NOW,
    RETAINED,
    compacted,
    finished,
    key,
    of,
    started,
)
from tests.contract.queued_starts import start
from tests.contract.results import last, result
from yukta_rx.durability.file.archive import FileExecutionArchiveStore
from yukta_rx.durability.file.blobs import FileBlobStore
from yukta_rx.durability.file.execution_log import FileExecutionLogStore
from yukta_rx.durability.file.queued_starts import FileQueuedStartStore
from yukta_rx.durability.file.results import FileResultStore
from yukta_rx.durability.stores.blobs import Owner, blob_of
from yukta_rx.errors import StoreUnavailableError
from yukta_rx.model import codec
from yukta_rx.streams.pool import BlockingPool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.feature("DUR-02", "DUR-05")

POOL = BlockingPool(2)
LIMIT = 1000
SMALL = {"text": "x"}
LARGE = {"text": "x" * LIMIT, "big": 2**70, "pair": (1, b"\x00")}
TEXT = codec.encode(LARGE)
KEPT = blob_of(TEXT)
TAG = b'{"$yukta":"blob","v":{"sha256":"%b","size":%d}}' % (
    sha256(TEXT).hexdigest().encode(),
    len(TEXT),
)


class Kind:
    """One store, and how a payload gets into it and out again."""

    owner = ""

    def open(self, folder: Path, **apart: Any) -> Any:
        raise NotImplementedError

    async def put(self, store: Any, run: str, payload: Any) -> None:
        raise NotImplementedError

    async def get(self, store: Any, run: str) -> Any:
        raise NotImplementedError

    async def drop(self, store: Any, run: str) -> None:
        raise NotImplementedError


class Results(Kind):
    owner = "results"

    def open(self, folder: Path, **apart: Any) -> Any:
        return FileResultStore(folder / "results", POOL.call, **apart)

    async def put(self, store: Any, run: str, payload: Any) -> None:
        await store.append(run, [result(1, payload, h=1), result(2, SMALL)])

    async def get(self, store: Any, run: str) -> Any:
        part = await store.read(run, limit=1)
        assert part.items[0].headers == {"h": 1}
        return part.items[0].payload

    async def drop(self, store: Any, run: str) -> None:
        await store.end(run, [last(3)], NOW)
        assert list(await store.trim(0)) == [run]


class Log(Kind):
    owner = "execution-log"

    def open(self, folder: Path, **apart: Any) -> Any:
        return FileExecutionLogStore(folder, RETAINED, COMPACT_AFTER, **apart)

    async def put(self, store: Any, run: str, payload: Any) -> None:
        assert await store.append_start(started(run, payload), key(run, run)) is None

    async def get(self, store: Any, run: str) -> Any:
        return (await store.start_of(run)).payload

    async def drop(self, store: Any, run: str) -> None:
        await store.append([finished(run)])
        for number in range(RETAINED):
            await store.append([finished(f"after {run} {number}")])
        await compacted(store)
        assert await store.start_of(run) is None
        # What the drop left to do in the background.
        await store._tasks.ended()


class Queue(Kind):
    owner = "queued-starts"

    def open(self, folder: Path, **apart: Any) -> Any:
        return FileQueuedStartStore(folder, **apart)

    async def put(self, store: Any, run: str, payload: Any) -> None:
        await store.put(start(run, request={"payload": payload, "labels": {}}))

    async def get(self, store: Any, run: str) -> Any:
        [found] = [one for one in await store.list() if one.execution_id == run]
        return (await store.opened(found)).request["payload"]

    async def drop(self, store: Any, run: str) -> None:
        assert (await store.claim(run)).execution_id == run


class Archive(Kind):
    owner = "archive"

    def open(self, folder: Path, **apart: Any) -> Any:
        return FileExecutionArchiveStore(folder, **apart)

    async def put(self, store: Any, run: str, payload: Any) -> None:
        assert await store.put(ended(run, payload), 10) == []

    async def get(self, store: Any, run: str) -> Any:
        found = await store.get(run)
        assert replace(found, payload=None) == replace(ended(run), payload=None)
        return found.payload

    async def drop(self, store: Any, run: str) -> None:
        await store.remove(run)
        assert await store.get(run) is None


KINDS = pytest.mark.parametrize(
    "kind", [Results(), Log(), Queue(), Archive()], ids=lambda kind: kind.owner
)


@asynccontextmanager
async def opened(kind: Kind, folder: Path, limit: int = LIMIT) -> AsyncIterator[Any]:
    blobs = FileBlobStore(folder / "blobs", POOL.call)
    async with kind.open(folder, blobs=blobs, claim_bytes=limit) as store:
        yield store, blobs


async def lines(folder: Path) -> bytes:
    def read() -> bytes:
        return b"".join(path.read_bytes() for path in sorted(folder.rglob("*.jsonl")))

    return await POOL.call(read)


def same(found: Any, wanted: Any) -> bool:
    return codec.canonical(found) == codec.canonical(wanted)


@KINDS
async def test_a_large_payload_is_a_reference_in_its_line_and_comes_back(
    tmp_path: Path, kind: Kind
) -> None:
    async with opened(kind, tmp_path) as (store, blobs):
        await kind.put(store, "run", LARGE)
        await kind.put(store, "other", SMALL)
        assert same(await kind.get(store, "run"), LARGE)
        assert blobs.size == len(TEXT)
    written = await lines(tmp_path)
    assert written.count(TAG) == 1
    assert b"x" * 100 not in written
    async with opened(kind, tmp_path) as (store, blobs):
        assert same(await kind.get(store, "run"), LARGE)
        assert same(await kind.get(store, "other"), SMALL)
        assert blobs.size == len(TEXT)


@KINDS
async def test_a_payload_that_looks_like_a_reference_stays_one(tmp_path: Path, kind: Kind) -> None:
    for limit in (LIMIT, 0):
        async with opened(kind, tmp_path, limit) as (store, _):
            await kind.put(store, f"run-{limit}", KEPT)
    async with opened(kind, tmp_path) as (store, _):
        assert [await kind.get(store, f"run-{limit}") for limit in (LIMIT, 0)] == [KEPT, KEPT]


@KINDS
async def test_a_limit_of_0_keeps_every_payload_in_its_line(tmp_path: Path, kind: Kind) -> None:
    async with opened(kind, tmp_path, 0) as (store, blobs):
        await kind.put(store, "run", LARGE)
        assert blobs.size == 0
    assert b"x" * LIMIT in await lines(tmp_path)
    async with opened(kind, tmp_path) as (store, _):
        assert same(await kind.get(store, "run"), LARGE)


@KINDS
async def test_blobs_go_with_the_run_and_with_no_other(tmp_path: Path, kind: Kind) -> None:
    async with opened(kind, tmp_path) as (store, blobs):
        await kind.put(store, "a", LARGE)
        await kind.put(store, "b", LARGE)
        await kind.drop(store, "a")
        assert same(await kind.get(store, "b"), LARGE)
        await kind.drop(store, "b")
        assert blobs.size == 0


@KINDS
async def test_what_a_crash_left_behind_goes_at_the_start(tmp_path: Path, kind: Kind) -> None:
    async with opened(kind, tmp_path) as (store, blobs):
        await kind.put(store, "run", LARGE)
        await blobs.put(Owner(kind.owner, "crashed"), b"before its line was written")
        await blobs.put(Owner("elsewhere", "crashed"), b"of another store")
    async with opened(kind, tmp_path) as (store, blobs):
        assert blobs.size == len(TEXT) + len(b"of another store")
        assert same(await kind.get(store, "run"), LARGE)


@pytest.mark.parametrize(("bad", "told"), [(None, "missing"), (b"{}", "damaged")])
@KINDS
async def test_a_blob_that_is_not_there_is_named(
    tmp_path: Path, kind: Kind, bad: bytes | None, told: str
) -> None:
    async with opened(kind, tmp_path) as (store, blobs):
        await kind.put(store, "run", LARGE)
        await kind.put(store, "other", SMALL)
        path = blobs._object(KEPT.sha256)
        await (POOL.call(path.unlink) if bad is None else POOL.call(path.write_bytes, bad))

        with pytest.raises(StoreUnavailableError, match=r"payload of .*run") as refused:
            await kind.get(store, "run")
        assert f"blob {KEPT.sha256} of {KEPT.size} bytes is {told}" in str(refused.value)
        assert same(await kind.get(store, "other"), SMALL)
        await kind.drop(store, "run")


@KINDS
async def test_nothing_is_read_without_the_store_of_blobs(tmp_path: Path, kind: Kind) -> None:
    async with opened(kind, tmp_path) as (store, _):
        await kind.put(store, "run", LARGE)
    async with kind.open(tmp_path) as store:
        with pytest.raises(StoreUnavailableError, match=f"{KEPT.sha256}.*no store of blobs"):
            await kind.get(store, "run")


@KINDS
async def test_a_blob_that_cannot_be_written_fails_the_write_and_no_other(
    tmp_path: Path, kind: Kind
) -> None:
    async with opened(kind, tmp_path) as (store, blobs):
        folder = blobs._objects
        await POOL.call(folder.rmdir)
        await POOL.call(folder.write_text, "no folder")
        with pytest.raises(StoreUnavailableError, match="blobs cannot be kept"):
            await kind.put(store, "run", LARGE)
        await kind.put(store, "other", SMALL)
        before = await lines(tmp_path)

        await POOL.call(folder.unlink)
        await kind.put(store, "run", LARGE)
        assert same(await kind.get(store, "run"), LARGE)
    assert b':"run"' not in before


# --- what is special about each ------------------------------------------------------------------


async def test_a_start_that_its_key_refuses_leaves_no_blob(tmp_path: Path) -> None:
    async with opened(Log(), tmp_path) as (store, blobs):
        await store.append_start(started("a"), key("a"))
        assert await store.append_start(started("b", LARGE), key("b")) == key("a")

        assert (blobs.size, await store.start_of("b")) == (0, None)


async def test_a_start_that_is_given_up_while_its_key_is_written_leaves_no_blob(
    tmp_path: Path,
) -> None:
    async with opened(Log(), tmp_path) as (store, blobs):
        # The thread of the log comes to the first start only then.
        may, busy, kept = threading.Event(), asyncio.Event(), asyncio.Event()
        loop, put = asyncio.get_running_loop(), blobs.put

        def hold() -> None:
            loop.call_soon_threadsafe(busy.set)
            may.wait()

        async def telling(owner: Owner, data: bytes) -> Any:
            blob = await put(owner, data)
            kept.set()
            return blob

        blobs.put = telling
        holding = asyncio.ensure_future(store._journal.call(hold))
        await busy.wait()
        first = asyncio.ensure_future(store.append_start(started("a"), key("a")))
        second = asyncio.ensure_future(store.append_start(started("b", LARGE), key("b")))
        await kept.wait()
        second.cancel()
        may.set()
        assert await first is None
        await holding
        with pytest.raises(asyncio.CancelledError):
            await second
        await store._tasks.ended()
        assert (blobs.size, await store.start_of("b")) == (0, None)


async def test_a_log_is_shown_although_a_start_payload_is_gone(tmp_path: Path) -> None:
    async with opened(Log(), tmp_path) as (store, blobs):
        await Log().put(store, "run", LARGE)
        await store.append([finished("run")])
        await POOL.call(blobs._object(KEPT.sha256).unlink)

        assert [event.TYPE for event in await of(store, "run")] == [
            *("RUN_STARTED", "IDEMPOTENCY_KEY", "RUN_FINISHED")
        ]
        [run] = await store.runs()
        assert run.started.execution_id == "run"


async def test_a_log_that_is_rewritten_still_says_what_is_apart(tmp_path: Path) -> None:
    async with opened(Log(), tmp_path) as (store, _):
        await Log().put(store, "run", LARGE)
        await compacted(store)
        await compacted(store)
    async with opened(Log(), tmp_path) as (store, _):
        assert same(await Log().get(store, "run"), LARGE)


@pytest.mark.parametrize("kind", [Queue(), Archive()], ids=lambda kind: kind.owner)
async def test_a_journal_that_is_rewritten_still_says_what_is_apart(
    tmp_path: Path, kind: Kind
) -> None:
    async with opened(kind, tmp_path) as (store, _):
        await kind.put(store, "run", LARGE)
        await kind.put(store, "other", SMALL)
    # A journal with a line that cannot be read is rewritten when it is opened.
    file = tmp_path / f"{kind.owner}.jsonl"
    await POOL.call(file.write_bytes, await lines(tmp_path) + b"?\n")
    async with opened(kind, tmp_path) as (store, _):
        assert len(store.quarantined) == 1
    rows = [json.loads(line) for line in (await POOL.call(file.read_bytes)).splitlines()]
    assert [row.get("apart") for row in rows] == [True, None]
    async with opened(kind, tmp_path) as (store, _):
        assert same(await kind.get(store, "run"), LARGE)


async def test_runs_that_have_to_go_take_their_payloads_along(tmp_path: Path) -> None:
    async with opened(Archive(), tmp_path) as (store, blobs):
        for name in ("a", "b", "c"):
            await store.put(ended(name, {**LARGE, "of": name}), 2)
        two = blobs.size
        assert [(await store.get(name)).payload["of"] for name in ("b", "c")] == ["b", "c"]
        assert await store.put(ended("d", LARGE), 0) == ["b", "c", "d"]

        assert two == 2 * len(codec.encode({**LARGE, "of": "a"}))
        assert blobs.size == 0


async def test_a_run_that_is_put_again_with_less_needs_its_payload_no_more(tmp_path: Path) -> None:
    async with opened(Archive(), tmp_path) as (store, blobs):
        for payload, size in ((LARGE, len(TEXT)), (LARGE, len(TEXT)), (SMALL, 0)):
            await store.put(ended("run", payload), 10)
            assert same((await store.get("run")).payload, payload)
            assert blobs.size == size


async def test_a_run_is_described_although_its_payload_is_gone(tmp_path: Path) -> None:
    async with opened(Archive(), tmp_path) as (store, blobs):
        await store.put(ended("run", LARGE), 10)
        await POOL.call(blobs._object(KEPT.sha256).unlink)

        assert await store.get("run", whole=False) == ended("run", KEPT)


async def test_a_result_keeps_its_id_and_a_repeated_write_its_first_payload(tmp_path: Path) -> None:
    given = result(1, LARGE)
    async with opened(Results(), tmp_path) as (store, _):
        await store.append("run", [given])
        await store.append("run", [replace(given, message=result(1, SMALL).message)])
        [found] = (await store.read("run")).items

        assert found.as_dict() == given.as_dict()
