"""Blobs on PostgreSQL: the contract, and payloads that are kept apart of the rows of outputs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.archive import ArchiveContract, run
from tests.contract.blobs import BlobContract
from tests.contract.checkpoints import mark, rows_of, shown
from tests.durability.lost_answers import take_over
from yukta_rx.durability.postgres.archive import PostgresExecutionArchiveStore
from yukta_rx.durability.postgres.blobs import PostgresBlobStore
from yukta_rx.durability.postgres.checkpoints import PostgresNodeCheckpointStore
from yukta_rx.durability.stores.blobs import Owner, blob_of
from yukta_rx.durability.stores.checkpoints import CheckpointRow
from yukta_rx.errors import StaleLeaderError, StoreUnavailableError
from yukta_rx.model import codec
from yukta_rx.model.message import Message
from yukta_rx.streams.pool import BlockingPool

if TYPE_CHECKING:
    from yukta_rx.durability.postgres.database import Database
    from yukta_rx.model.codec import Blob

pytestmark = [pytest.mark.feature("DUR-04"), pytest.mark.durable]

POOL = BlockingPool(2)
LIMIT = 1000
LARGE = {"text": "x" * LIMIT, "big": 2**70, "pair": (1, b"\x00")}


def with_blobs(postgres: Database) -> PostgresNodeCheckpointStore:
    blobs = PostgresBlobStore(postgres, POOL.call)
    return PostgresNodeCheckpointStore(postgres, blobs=blobs, claim_bytes=LIMIT)


def row_of(*payloads: Any) -> CheckpointRow:
    messages = [(None, Message.of(p, {"h": n}, id=f"m{n}")) for n, p in enumerate(payloads)]
    return CheckpointRow.of(messages, [("in", len(payloads))])


class TestBlobs(BlobContract):
    """Blobs on PostgreSQL."""

    @pytest.fixture
    async def store(self, postgres: Database) -> PostgresBlobStore:
        self.postgres = postgres
        return await self.restarted(None)

    async def restarted(self, store: Any) -> PostgresBlobStore:
        store = PostgresBlobStore(self.postgres, POOL.call)
        await store.start()
        return store

    async def damage(self, store: Any, blob: Blob, data: bytes | None) -> None:
        if data is None:
            sql, more = "DELETE FROM blob WHERE sha256 = $1", []
        else:
            sql, more = "UPDATE blob SET data = $2 WHERE sha256 = $1", [data]
        await self.postgres.change(lambda made: made.execute(sql, blob.sha256, *more))


async def test_blobs_of_a_stale_leader_are_not_written(postgres) -> None:
    store = with_blobs(postgres)
    await store.start()
    await take_over(postgres)
    with pytest.raises(StaleLeaderError):
        await mark(store, "run", "a", row_of(LARGE))
    await store.close()

    assert await postgres.fetchval("SELECT count(*) FROM blob") == 0


# --- the claim check -----------------------------------------------------------------------------


async def test_a_large_payload_is_a_reference_in_its_row_and_comes_back(postgres) -> None:
    store = with_blobs(postgres)
    await store.start()
    rows = [row_of("x", LARGE, "x"), row_of(LARGE), row_of(blob_of(b"one"), LARGE), row_of("x")]
    for one in rows[:3]:
        store.append("run", "a", one)
    await mark(store, "run", "a", rows[3])
    assert shown(await rows_of(store, "run", "a")) == shown(rows)
    texts = await postgres.fetch("SELECT row, blobs FROM node_checkpoint ORDER BY seq")
    kept = blob_of(codec.encode(LARGE))
    assert [kept.sha256 in (row["blobs"] or "") for row in texts] == [True, True, True, False]
    assert max(len(row["row"]) for row in texts) < LIMIT
    await store.close()

    postgres.epoch = await take_over(postgres)
    store = with_blobs(postgres)
    await store.start()
    assert shown(await rows_of(store, "run", "a")) == shown(rows)
    await store.close()


async def test_blobs_go_with_the_last_run_that_has_them(postgres) -> None:
    store = with_blobs(postgres)
    await store.start()
    await mark(store, "old", "a", row_of(LARGE))
    await store.carry_over("old", "new", ["a"])
    await store.clear("old")
    assert shown(await rows_of(store, "new", "a")) == shown([row_of(LARGE)])
    await store.clear("new")
    assert store.bytes == 0
    assert await postgres.fetchval("SELECT count(*) FROM blob") == 0
    await store.close()


async def test_what_cannot_be_carried_over_whole_is_not_carried_over(postgres) -> None:
    store = with_blobs(postgres)
    await store.start()
    await mark(store, "old", "a", row_of("x"))
    await mark(store, "old", "b", row_of(LARGE))
    await postgres.change(lambda made: made.execute("DELETE FROM blob"))
    with pytest.raises(StoreUnavailableError, match="is missing"):
        await store.carry_over("old", "new", ["a", "b"])

    assert dict(await store.states("new")) == {}
    assert set(await store.states("old")) == {"a", "b"}
    await store.close()


async def test_blobs_of_runs_that_are_gone_go_at_the_start(postgres) -> None:
    store = with_blobs(postgres)
    await store.start()
    await mark(store, "run", "a", row_of(LARGE))
    assert store._blobs is not None
    await store._blobs.put(Owner("checkpoints", "crashed"), b"left over")
    await store._blobs.put(Owner("results", "crashed"), b"of another store")
    await store.close()

    store = with_blobs(postgres)
    await store.start()
    assert store._blobs is not None
    assert store._blobs.size == len(codec.encode(LARGE)) + len(b"of another store")
    await store.close()


async def test_a_blob_that_comes_and_one_that_goes_wait_for_each_other(postgres) -> None:
    blobs = PostgresBlobStore(postgres, POOL.call)
    await blobs.start()
    for turn in range(20):
        await blobs.put(Owner("s", "old"), b"shared")
        blob, _ = await asyncio.gather(
            blobs.put(Owner("s", f"new {turn}"), b"shared"), blobs.forget(Owner("s", "old"))
        )
        assert await blobs.get(blob) == b"shared"
        await blobs.forget(Owner("s", f"new {turn}"))
    assert blobs.size == 0
    assert await postgres.fetchval("SELECT count(*) FROM blob") == 0


# --- recent runs ---------------------------------------------------------------------------------


def archive_with_blobs(postgres: Database, limit: int = LIMIT) -> PostgresExecutionArchiveStore:
    blobs = PostgresBlobStore(postgres, POOL.call)
    return PostgresExecutionArchiveStore(postgres, blobs=blobs, claim_bytes=limit)


async def blobs_of(postgres: Database) -> tuple[int, int]:
    """How many blobs and owners there are."""
    counts = [
        await postgres.fetchval(f"SELECT count(*) FROM {table}") for table in ("blob", "blob_owner")
    ]
    return counts[0], counts[1]


class TestArchiveApart(ArchiveContract):
    """Recent runs, each with its start payload apart."""

    @pytest.fixture
    async def store(self, postgres: Database) -> PostgresExecutionArchiveStore:
        return archive_with_blobs(postgres, 1)


async def test_large_start_payloads_are_apart_of_their_rows_and_go_with_their_runs(
    postgres,
) -> None:
    payloads = {"a": LARGE, "b": LARGE, "c": {"small": 1}, "d": blob_of(b"no blob of ours")}
    async with archive_with_blobs(postgres) as store:
        for name, one in payloads.items():
            await store.put(run(name, one), 10)
        assert await blobs_of(postgres) == (2, 3)
    rows = await postgres.fetch("SELECT run FROM execution_archive")
    assert all(len(row["run"]) < LIMIT for row in rows)
    async with archive_with_blobs(postgres) as store:
        await store.start()
        for name, one in payloads.items():
            assert await store.get(name) == run(name, one)
        await store.remove("d")
        assert await store.put(run("e"), 3) == ["a"]
        assert await blobs_of(postgres) == (1, 1)
        assert await store.put(run("f"), 1) == ["b", "c", "e"]
        assert await blobs_of(postgres) == (0, 0)


async def test_a_start_payload_that_is_gone_is_named_and_its_run_is_still_described(
    postgres,
) -> None:
    kept = blob_of(codec.encode(LARGE))
    async with archive_with_blobs(postgres) as store:
        await store.put(run("a", LARGE), 10)
        await postgres.change(lambda made: made.execute("DELETE FROM blob"))

        told = f"start payload of run a: blob {kept.sha256} of {kept.size} bytes is missing"
        with pytest.raises(StoreUnavailableError, match=told):
            await store.get("a")
        assert await store.get("a", whole=False) == run("a", kept)
        assert not store.quarantined
    with pytest.raises(StoreUnavailableError, match="no store of blobs"):
        await PostgresExecutionArchiveStore(postgres).get("a")


async def test_what_a_crash_left_behind_of_a_run_goes_at_the_start(postgres) -> None:
    async with archive_with_blobs(postgres) as store:
        await store.put(run("a", LARGE), 10)
        await PostgresBlobStore(postgres, POOL.call).put(Owner("archive", "gone"), b"left")
        assert await blobs_of(postgres) == (2, 2)
        await store.start()

        assert await blobs_of(postgres) == (1, 1)
        assert await store.get("a") == run("a", LARGE)
