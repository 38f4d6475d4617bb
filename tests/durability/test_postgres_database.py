"""Connections, the fence and the writer, against a real PostgreSQL."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.durability.lossy import Lossy
from yukta_rx.durability.postgres._writer import Writer
from yukta_rx.durability.postgres.database import Database
from yukta_rx.durability.postgres.fence import check, fenced, raise_epoch
from yukta_rx.errors import StaleLeaderError, StoreUnavailableError

pytestmark = [pytest.mark.feature("DUR-04"), pytest.mark.durable]

PUT = (
    "INSERT INTO kv_entry (part, epoch, session_id, key, value) SELECT $1, $2, $3, given.key, 'v' "
    "FROM unnest($4::text[]) AS given (key), fence ON CONFLICT DO NOTHING"
)


async def put(made: Any, keys: list[str], postgres: Any) -> int:
    rows = await made.fetch(fenced(PUT), postgres.part, postgres.epoch, "s", keys)
    return check(rows, postgres.part, postgres.epoch)


async def put_plainly(made: Any, keys: list[str], postgres: Any) -> None:
    """As a statement of a transaction that holds the fence."""
    plain = PUT.replace(", fence ON", " ON")
    await made.execute(plain, postgres.part, postgres.epoch, "s", keys)


async def keys_of(postgres: Any) -> list[str]:
    return [row["key"] for row in await postgres.fetch("SELECT key FROM kv_entry ORDER BY key")]


async def test_a_fenced_statement_and_a_fenced_transaction_write_while_the_epoch_stands(
    postgres,
) -> None:
    await postgres.write(lambda made: made.execute("DELETE FROM kv_entry"))
    made = await postgres.connect()
    try:
        assert await put(made, ["a", "b"], postgres) == 2
        assert await put(made, ["a", "c"], postgres) == 1
        await postgres.change(lambda other: raise_epoch(other, postgres.part, "somebody else"))
        with pytest.raises(StaleLeaderError):
            await put(made, ["d"], postgres)
        with pytest.raises(StaleLeaderError):
            await postgres.write(lambda other: other.execute("DELETE FROM kv_entry"))
    finally:
        await made.close()
    assert await keys_of(postgres) == ["a", "b", "c"]


@pytest.mark.parametrize("statement", [put, put_plainly])
async def test_a_takeover_waits_for_the_write_that_is_under_way(postgres, statement) -> None:
    held = asyncio.Event()
    go_on = asyncio.Event()

    async def slow(made: Any) -> None:
        await statement(made, ["late"], postgres)
        held.set()
        await go_on.wait()

    async with asyncio.TaskGroup() as group:
        writing = group.create_task(postgres.write(slow))
        await held.wait()
        taking = group.create_task(
            postgres.change(lambda other: raise_epoch(other, postgres.part, "somebody else"))
        )
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        while not await postgres.fetchval(waits):
            assert not taking.done()
        go_on.set()
    assert writing.done()
    assert taking.result() == postgres.epoch + 1
    assert await keys_of(postgres) == ["late"]


async def test_a_writer_commits_what_waits_in_batches(postgres) -> None:
    batches: list[int] = []

    async def write(made: Any, rows: Any) -> None:
        batches.append(len(rows))
        await put(made, list(rows), postgres)

    async with Writer(postgres, "test", write) as writer:
        done = [writer.put(f"{n:04}") for n in range(2500)]
        await asyncio.gather(*done)
        assert len(writer) == 0
    assert await postgres.fetchval("SELECT count(*) FROM kv_entry") == 2500
    assert max(batches) == 1000
    assert sum(batches) == 2500


async def test_a_writer_goes_on_with_another_connection_and_repeats_what_had_no_answer(
    postgres,
) -> None:
    cut = [True]

    async def write(made: Any, rows: Any) -> None:
        await put(made, list(rows), postgres)
        if cut:
            cut.pop()
            # Committed, and the answer is lost.
            await made.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    async with Writer(postgres, "test", write) as writer:
        await writer.put("a")
        await writer.put("b")
    assert await keys_of(postgres) == ["a", "b"]


async def test_rows_of_a_stale_leader_fail_and_are_counted(postgres) -> None:
    failed: list[Any] = []

    async def write(made: Any, rows: Any) -> None:
        await put(made, list(rows), postgres)

    told = lambda rows, error: failed.append((list(rows), type(error)))  # noqa: E731 (one line)
    async with Writer(postgres, "test", write, told) as writer:
        await postgres.change(lambda other: raise_epoch(other, postgres.part, "somebody else"))
        with pytest.raises(StaleLeaderError):
            await writer.put("a")
        assert writer.stale == 1
    assert failed == [(["a"], StaleLeaderError)]
    assert await keys_of(postgres) == []


async def test_a_read_goes_on_after_its_connection_was_lost(postgres) -> None:
    await postgres.fetchval("SELECT 1")
    await postgres.change(
        lambda made: made.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND application_name = 'yukta'"
        )
    )
    assert await postgres.fetchval("SELECT 1") == 1


async def test_what_gives_no_answer_is_not_an_empty_answer(postgres) -> None:
    with pytest.raises(StoreUnavailableError) as caught:
        async with Database("postgresql://nobody@127.0.0.1:9/nothing"):
            pass
    assert caught.value.members["store"] == "postgres"
    async with Database(postgres._url) as other:
        pass
    with pytest.raises(StoreUnavailableError):
        await other.fetch("SELECT 1")


async def test_transactions_that_get_in_each_others_way_are_done_again(postgres) -> None:
    await postgres.write(lambda made: put(made, ["a"], postgres))
    both = asyncio.Barrier(2)
    tries = []

    async def work(made: Any) -> None:
        tries.append(1)
        first, second = ("a", "b") if len(tries) % 2 else ("b", "a")
        await made.execute("SELECT pg_advisory_xact_lock(hashtext($1))", first)
        if len(tries) <= 2:
            await both.wait()
        await made.execute("SELECT pg_advisory_xact_lock(hashtext($1))", second)

    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(postgres.write(work))
    assert len(tries) == 3


async def test_a_row_that_cannot_be_written_takes_no_other_with_it(postgres) -> None:
    async def write(made: Any, rows: Any) -> None:
        await put(made, list(rows), postgres)

    async with Writer(postgres, "test", write) as writer:
        done = [writer.put(key) for key in ("a", "has\0no place", "b")]
        said = await asyncio.gather(*done, return_exceptions=True)
    assert [type(one).__name__ for one in said] == [
        *("NoneType", "CharacterNotInRepertoireError", "NoneType")
    ]
    assert await keys_of(postgres) == ["a", "b"]


@pytest.fixture
async def lossy(postgres: Any) -> Any:
    """A database on a way on which answers get lost, and that way."""
    async with Lossy(postgres._url) as way, Database(way.url, size=2) as database:
        database.epoch = postgres.epoch
        yield database, way


async def test_a_transaction_whose_answer_is_lost_is_done_once(postgres, lossy) -> None:
    database, way = lossy
    tries: list[int] = []

    async def work(made: Any) -> int:
        tries.append(1)
        await put(made, [f"k{len(tries)}"], postgres)
        return len(tries)

    way.lose("COMMIT")
    assert await database.write(work) == 1
    assert await keys_of(postgres) == ["k1"]
    assert way.lost == 1


async def test_a_transaction_whose_connection_is_lost_before_the_commit_is_done_again(
    postgres,
) -> None:
    tries: list[int] = []

    async def work(made: Any) -> int:
        tries.append(1)
        await put(made, [f"k{len(tries)}"], postgres)
        if len(tries) == 1:
            await made.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        return len(tries)

    assert await postgres.write(work) == 2
    assert await keys_of(postgres) == ["k2"]


async def test_what_no_leader_owns_is_not_done_again_once_the_commit_was_sent(lossy) -> None:
    database, way = lossy
    way.lose("COMMIT")
    with pytest.raises(StoreUnavailableError):
        await database.change(lambda made: made.execute("SELECT 1"))
    assert way.lost == 1
