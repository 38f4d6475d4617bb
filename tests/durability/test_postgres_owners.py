"""Who needs a blob on PostgreSQL, where answers come late, are lost, or say that one is missing."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from tests.contract.archive import run
from tests.contract.checkpoints import mark
from tests.contract.execution_log import finished, key, started
from tests.contract.results import result
from tests.durability.lossy import FIRST_ROW, Lossy
from tests.durability.test_postgres_blobs import archive_with_blobs
from tests.durability.test_postgres_claim_check import (
    LARGE,
    LIMIT,
    NOW,
    PART,
    POOL,
    TEXT,
    TheLog,
    TheResults,
    opened,
    same,
)
from yukta_rx.durability.postgres._writer import ATTEMPTS
from yukta_rx.durability.postgres.blobs import PostgresBlobStore
from yukta_rx.durability.postgres.checkpoints import PostgresNodeCheckpointStore
from yukta_rx.durability.postgres.database import LOSSES, Database
from yukta_rx.durability.stores.blobs import Owner
from yukta_rx.durability.stores.checkpoints import CheckpointRow
from yukta_rx.errors import StoreUnavailableError
from yukta_rx.model.claim import Claim
from yukta_rx.model.message import Message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [pytest.mark.feature("DUR-02", "DUR-04"), pytest.mark.durable]


BLOCKED = "SELECT count(*) FROM pg_locks WHERE NOT granted"
OWNED = "SELECT count(*) FROM blob_owner"


@asynccontextmanager
async def over(postgres: Database) -> AsyncIterator[tuple[Database, Lossy]]:
    """The same database, led by the same, over a way on which answers can be kept back."""
    async with Lossy(postgres._url) as way, Database(way.url, size=4) as database:
        database.epoch = postgres.epoch
        yield database, way


async def test_a_start_that_is_written_while_others_are_let_go_keeps_its_payload(
    postgres: Database,
) -> None:
    async with over(postgres) as (database, way), opened(TheLog(), database) as (store, _):
        kept = way.hold("COMMIT")
        writing = asyncio.ensure_future(store.append_start(started("run", LARGE)))
        await kept.given.wait()
        # The payload is there, its row is not: so far it is as a crash leaves it.
        looked = way.hold("SELECT 1")
        sweeping = asyncio.ensure_future(store._payloads.sweep())
        await looked.given.wait()
        kept.go.set()
        await writing
        looked.go.set()
        await sweeping

        assert same((await store.start_of("run")).payload, LARGE)


async def test_a_payload_that_is_missing_leaves_no_other_of_its_run_without_an_owner(
    postgres: Database,
) -> None:
    blobs = PostgresBlobStore(postgres, POOL.call)
    store = PostgresNodeCheckpointStore(postgres, blobs=blobs, claim_bytes=LIMIT)
    await store.start()
    source = Owner("checkpoints", "source")
    kept = await blobs.put(source, TEXT)
    there = Claim(kept.sha256, kept.size, owner="source")
    gone = Claim("0" * 64, LIMIT + 1, owner="source")
    for number, claim in enumerate((there, gone)):
        store.append("new", "node", CheckpointRow.of([(None, Message.of(claim, id=f"m{number}"))]))
    await mark(store, "new", "node")
    await blobs.forget(source)

    rows = store.read("new", "node")
    first = await anext(rows)
    assert same(first.batches[0][1][0].payload, LARGE)
    with pytest.raises(StoreUnavailableError, match=f"blob {'0' * 64}"):
        await anext(rows)
    await store.close()


async def test_what_is_shared_gets_its_owner_although_something_else_is_missing(
    postgres: Database,
) -> None:
    blobs = PostgresBlobStore(postgres, POOL.call)
    old, new = Owner("results", "old"), Owner("results", "new")
    kept = await blobs.put(old, TEXT)

    with pytest.raises(StoreUnavailableError, match="is missing") as refused:
        await blobs.share(new, (kept.sha256, "0" * 64))
    await blobs.forget(old)
    assert refused.value.members["sha256"] == "0" * 64
    assert await blobs.get(kept) == TEXT


async def test_a_start_whose_write_was_heard_of_by_nobody_has_its_payload(
    postgres: Database,
) -> None:
    async with over(postgres) as (database, way), opened(TheLog(), database) as (store, _):
        await store.append_start(started("first"))
        kept = way.hold("COMMIT")
        writing = asyncio.ensure_future(store.append_start(started("run", LARGE)))
        await kept.given.wait()
        for _ in range(ATTEMPTS):
            way.lose("SELECT 1")
        kept.go.set()
        with pytest.raises(StoreUnavailableError):
            await writing

        assert same((await store.start_of("run")).payload, LARGE)


async def test_a_start_that_nobody_waits_for_any_more_keeps_its_payload(
    postgres: Database,
) -> None:
    async with opened(TheLog(), postgres) as (store, _):
        async with postgres._acquired() as made, made.transaction():
            await made.execute("LOCK TABLE execution_log")
            writing = asyncio.ensure_future(store.append_start(started("run", LARGE)))
            while not await made.fetchval(BLOCKED):
                pass
            writing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await writing
            await store._payloads.sweep()
        await store.append([finished("run")])

        assert same((await store.start_of("run")).payload, LARGE)


async def test_a_start_that_was_given_up_before_it_was_written_leaves_no_payload(
    postgres: Database,
) -> None:
    async with opened(TheLog(), postgres) as (store, blobs):
        async with postgres._acquired() as made, made.transaction():
            await made.execute("LOCK TABLE execution_log")
            first = asyncio.ensure_future(store.append_start(started("a"), key("a")))
            second = asyncio.ensure_future(store.append_start(started("b", LARGE), key("b")))
            while not (await made.fetchval(OWNED) and await made.fetchval(BLOCKED)):
                pass
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
        assert await first is None
        await store._payloads.sweep()

        assert (await store.start_of("b"), blobs.size) == (None, 0)


async def test_a_run_whose_end_nobody_heard_of_leaves_no_payload(postgres: Database) -> None:
    async with over(postgres) as (database, way):
        blobs = PostgresBlobStore(database, POOL.call)
        store = PostgresNodeCheckpointStore(database, blobs=blobs, claim_bytes=LIMIT)
        await store.start()
        row = CheckpointRow.of([(None, Message.of(LARGE, id="m"))])
        await mark(store, "run", "node", row)
        assert store.bytes > len(TEXT)
        way.lose(FIRST_ROW)
        await store.clear("run")

        assert (way.lost, store.bytes) == (1, 0)
        assert await postgres.fetchval(OWNED) == 0
        await store.close()


async def test_what_went_for_a_run_of_which_nobody_heard_is_told_with_the_next_one(
    postgres: Database,
) -> None:
    async with over(postgres) as (database, way):
        archive = archive_with_blobs(database)
        for name in "ab":
            await archive.put(run(name, LARGE), 2)
        for _ in range(LOSSES):
            way.lose(FIRST_ROW)
        with pytest.raises(StoreUnavailableError):
            await archive.put(run("c"), 2)
        assert list(await archive.ids()) == ["b", "c"]

        assert list(await archive.put(run("d"), 2)) == ["a", "b"]
        assert list(await archive.put(run("e"), 2)) == ["c"]
        assert await postgres.fetchval(OWNED) == 0


# --- who reads what goes meanwhile ---------------------------------------------------------------


async def test_results_that_go_while_they_are_read_are_not_there(postgres: Database) -> None:
    async with opened(TheResults(), postgres) as (store, _):
        await store.append("run", [result(1, LARGE), result(2, LARGE)])
        await store.end("run", [], NOW)
        async with over(postgres) as (database, way), opened(TheResults(), database) as (late, _):
            read = way.hold("SELECT 2")
            reading = asyncio.ensure_future(late.read("run"))
            await read.given.wait()
            assert await store.trim(0) == ["run"]
            read.go.set()

            assert await reading is None


async def test_results_that_are_cut_while_they_are_read_leave_the_others(
    postgres: Database,
) -> None:
    async with opened(TheResults(), postgres) as (store, _):
        await store.append("run", [result(1, LARGE), result(2 * PART, {**LARGE, "n": 2})])
        async with over(postgres) as (database, way), opened(TheResults(), database) as (late, _):
            read = way.hold("SELECT 2")
            reading = asyncio.ensure_future(late.read("run"))
            await read.given.wait()
            assert await store.cut("run", 2 * PART - 1) == 2 * PART - 1
            read.go.set()

            assert [one.cursor for one in (await reading).items] == [2 * PART]


async def test_a_start_that_goes_while_it_is_read_is_not_there(postgres: Database) -> None:
    async with opened(TheLog(), postgres) as (store, _):
        await store.append_start(started("run", LARGE))
        async with over(postgres) as (database, way), opened(TheLog(), database) as (late, _):
            read = way.hold("SELECT 1")
            reading = asyncio.ensure_future(late.start_of("run"))
            await read.given.wait()
            await TheLog().drop(store, "run")
            read.go.set()

            assert await reading is None
