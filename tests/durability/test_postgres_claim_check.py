"""Large payloads kept apart on PostgreSQL by the stores of results, starts and starts that wait."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.execution_log import (
    COMPACT_AFTER,
    RETAINED,
    compacted,
    finished,
    key,
    of,
    started,
)
from tests.contract.results import last, result
from tests.durability.test_claim_check import (
    KEPT,
    LARGE,
    LIMIT,
    NOW,
    POOL,
    SMALL,
    TAG,
    TEXT,
    Kind,
    Log,
    Queue,
    Results,
    same,
)
from yukta_rx.durability.postgres.blobs import PostgresBlobStore
from yukta_rx.durability.postgres.execution_log import PostgresExecutionLogStore
from yukta_rx.durability.postgres.queued_starts import PostgresQueuedStartStore
from yukta_rx.durability.postgres.results import PART, PostgresResultStore
from yukta_rx.durability.stores.blobs import Owner
from yukta_rx.errors import StoreUnavailableError
from yukta_rx.model.claim import Claim

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from yukta_rx.durability.postgres.database import Database

pytestmark = [pytest.mark.feature("DUR-02", "DUR-04", "DUR-05"), pytest.mark.durable]


class TheResults(Results):
    rows = "SELECT string_agg(result, '') FROM execution_result"

    def open(self, database: Any, **apart: Any) -> Any:
        return PostgresResultStore(database, **apart)


class TheLog(Log):
    rows = "SELECT string_agg(event, '') FROM execution_log"

    def open(self, database: Any, **apart: Any) -> Any:
        return PostgresExecutionLogStore(database, RETAINED, COMPACT_AFTER, **apart)

    async def drop(self, store: Any, run: str) -> None:
        await store.append([finished(run)])
        for number in range(RETAINED):
            name = f"after {run} {number}"
            await store.append_start(started(name))
            await store.append([finished(name)])
        await compacted(store)
        await store.settled()
        assert await store.start_of(run) is None


class TheQueue(Queue):
    rows = "SELECT string_agg(start, '') FROM queued_start"

    def open(self, database: Any, **apart: Any) -> Any:
        store = PostgresQueuedStartStore(database, **apart)

        @asynccontextmanager
        async def begun() -> AsyncIterator[Any]:
            await store.start()
            yield store

        return begun()


KINDS = pytest.mark.parametrize(
    "kind", [TheResults(), TheLog(), TheQueue()], ids=lambda kind: kind.owner
)


@asynccontextmanager
async def opened(kind: Kind, database: Database, limit: int = LIMIT) -> AsyncIterator[Any]:
    blobs = PostgresBlobStore(database, POOL.call)
    await blobs.start()
    async with kind.open(database, blobs=blobs, claim_bytes=limit) as store:
        yield store, blobs


async def size_of(database: Database) -> int:
    """Bytes of all blobs that are there."""
    blobs = PostgresBlobStore(database, POOL.call)
    await blobs.start()
    return blobs.size


async def lose_blob(database: Database) -> None:
    await database.change(lambda made: made.execute("DELETE FROM blob"))


@KINDS
async def test_a_large_payload_is_a_reference_in_its_row_and_comes_back(
    postgres: Database, kind: Any
) -> None:
    async with opened(kind, postgres) as (store, _):
        await kind.put(store, "run", LARGE)
        await kind.put(store, "other", SMALL)
        assert same(await kind.get(store, "run"), LARGE)
    written = await postgres.fetchval(kind.rows)
    assert written.encode().count(TAG) == 1
    assert "x" * 100 not in written
    async with opened(kind, postgres) as (store, blobs):
        assert same(await kind.get(store, "run"), LARGE)
        assert same(await kind.get(store, "other"), SMALL)
        assert blobs.size == len(TEXT)


@KINDS
async def test_a_payload_that_looks_like_a_reference_stays_one(
    postgres: Database, kind: Any
) -> None:
    for limit in (LIMIT, 0):
        async with opened(kind, postgres, limit) as (store, _):
            await kind.put(store, f"run-{limit}", KEPT)
    async with opened(kind, postgres) as (store, _):
        assert [await kind.get(store, f"run-{limit}") for limit in (LIMIT, 0)] == [KEPT, KEPT]


@KINDS
async def test_what_an_earlier_version_wrote_is_read_as_it_is(
    postgres: Database, kind: Any
) -> None:
    async with kind.open(postgres) as store:
        await kind.put(store, "run", LARGE)
    assert "x" * LIMIT in await postgres.fetchval(kind.rows)
    async with opened(kind, postgres) as (store, blobs):
        assert same(await kind.get(store, "run"), LARGE)
        await kind.drop(store, "run")
        assert blobs.size == 0


@KINDS
async def test_blobs_go_with_the_run_and_with_no_other(postgres: Database, kind: Any) -> None:
    async with opened(kind, postgres) as (store, _):
        await kind.put(store, "a", LARGE)
        await kind.put(store, "b", LARGE)
        await kind.drop(store, "a")
        assert same(await kind.get(store, "b"), LARGE)
        await kind.drop(store, "b")
        assert await size_of(postgres) == 0


@KINDS
async def test_what_a_crash_left_behind_goes_at_the_start(postgres: Database, kind: Any) -> None:
    async with opened(kind, postgres) as (store, blobs):
        await kind.put(store, "run", LARGE)
        await blobs.put(Owner(kind.owner, "crashed.0"), b"before its row was written")
        await blobs.put(Owner("elsewhere", "crashed"), b"of another store")
    async with opened(kind, postgres) as (store, _):
        assert await size_of(postgres) == len(TEXT) + len(b"of another store")
        assert same(await kind.get(store, "run"), LARGE)


@KINDS
async def test_a_blob_that_is_not_there_is_named(postgres: Database, kind: Any) -> None:
    async with opened(kind, postgres) as (store, _):
        await kind.put(store, "run", LARGE)
        await kind.put(store, "other", SMALL)
        await lose_blob(postgres)

        with pytest.raises(StoreUnavailableError, match=r"payload of .*run") as refused:
            await kind.get(store, "run")
        assert f"blob {KEPT.sha256} of {KEPT.size} bytes is missing" in str(refused.value)
        assert same(await kind.get(store, "other"), SMALL)
        await kind.drop(store, "run")


@KINDS
async def test_nothing_is_read_without_the_store_of_blobs(postgres: Database, kind: Any) -> None:
    async with opened(kind, postgres) as (store, _):
        await kind.put(store, "run", LARGE)
    async with kind.open(postgres) as store:
        with pytest.raises(StoreUnavailableError, match=f"{KEPT.sha256}.*no store of blobs"):
            await kind.get(store, "run")


# --- what is special about each ------------------------------------------------------------------


async def test_a_start_that_its_key_refuses_leaves_no_blob(postgres: Database) -> None:
    async with opened(TheLog(), postgres) as (store, _):
        await store.append_start(started("a"), key("a"))
        assert await store.append_start(started("b", LARGE), key("b")) == key("a")

        assert (await size_of(postgres), await store.start_of("b")) == (0, None)


async def test_a_log_is_shown_although_a_start_payload_is_gone(postgres: Database) -> None:
    async with opened(TheLog(), postgres) as (store, _):
        await TheLog().put(store, "run", LARGE)
        await store.append([finished("run")])
        await lose_blob(postgres)

        assert [event.TYPE for event in await of(store, "run")] == [
            *("RUN_STARTED", "IDEMPOTENCY_KEY", "RUN_FINISHED")
        ]
        [run] = await store.runs()
        assert run.started.execution_id == "run"


async def test_a_start_that_waits_is_withdrawn_with_its_payload(postgres: Database) -> None:
    async with opened(TheQueue(), postgres) as (store, _):
        await TheQueue().put(store, "run", LARGE)
        assert await store.remove("run")
        assert await size_of(postgres) == 0


async def test_results_that_are_cut_take_their_payloads_along(postgres: Database) -> None:
    async with opened(TheResults(), postgres) as (store, _):
        for n in (1, PART, 2 * PART, 2 * PART + 1):
            await store.append("run", [result(n, {**LARGE, "n": n})])
        assert await store.cut("run", 2 * PART - 1) == 2 * PART - 1
        found = (await store.read("run")).items
        assert [one.payload["n"] for one in found] == [2 * PART, 2 * PART + 1]
        left = await postgres.fetch("SELECT run FROM blob_owner")
        assert {row["run"] for row in left} == {"run.2"}


async def test_a_result_that_came_as_a_reference_keeps_what_it_refers_to(
    postgres: Database,
) -> None:
    async with opened(TheResults(), postgres) as (store, blobs):
        owner = Owner("checkpoints", "run")
        kept = await blobs.put(owner, TEXT)
        written = Claim(kept.sha256, kept.size, owner="run")
        pending = Claim.of({**LARGE, "n": 2}, lambda _blob: None)
        gone = Claim("0" * 64, 10, owner="run")
        await store.append("run", [result(1, written), result(2, pending), result(3, SMALL)])
        await store.end("run", [result(4, gone), last(5)], NOW)
        await blobs.forget(owner)

        first, second, third = (await store.read("run", limit=3)).items
        assert same(first.payload, LARGE)
        assert same(second.payload, {**LARGE, "n": 2})
        assert third.payload == SMALL
        with pytest.raises(StoreUnavailableError, match=f"result 4 of run run: blob {'0' * 64}"):
            await store.read("run", after=3)
        assert list(await store.trim(0)) == ["run"]
        assert await size_of(postgres) == 0
