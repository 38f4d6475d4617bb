"""Connections that one after another uses, against a real PostgreSQL."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import pytest

from yukta_rx.durability.postgres._pool import Pool
from yukta_rx.durability.postgres.database import Database
from yukta_rx.errors import StoreUnavailableError

pytestmark = [pytest.mark.feature("DUR-04"), pytest.mark.durable]

PID = "SELECT pg_backend_pid()"


@pytest.fixture
async def opened(postgres_schema):
    """Makes pools; they are closed behind the test."""
    async with AsyncExitStack() as stack:

        def pool(size: int = 2, patience: float = 0, **options: Any) -> Pool:
            made = Pool(Database(postgres_schema)._connected, size, patience, **options)
            stack.push_async_callback(made.close)
            return made

        yield pool


async def pid_of(pool: Pool) -> int:
    async with pool.taken() as made:
        return await made.fetchval(PID)


async def test_the_connection_that_was_used_last_is_used_next(opened) -> None:
    pool = opened()
    async with pool.taken(), pool.taken() as last:
        pid = await last.fetchval(PID)
        assert (len(pool), pool.idle) == (2, 0)
    # The outer one came back last.
    assert await pid_of(pool) != pid
    assert (len(pool), pool.idle) == (2, 2)


async def test_who_finds_all_in_use_waits_for_one_but_not_for_ever(opened) -> None:
    pool = opened()
    async with pool.taken(), pool.taken():
        with pytest.raises(TimeoutError):
            await pid_of(pool)
    assert await pid_of(pool)
    assert pool.waiting == 0


async def test_of_many_at_once_no_more_than_its_size_have_one(postgres_schema) -> None:
    pool = Pool(Database(postgres_schema)._connected, 3, 60)
    most = 0

    async def use() -> None:
        nonlocal most
        async with pool.taken() as made:
            most = max(most, len(pool) - pool.idle)
            await made.fetchval(PID)

    await asyncio.gather(*(use() for _ in range(30)))
    assert (most, len(pool)) == (3, 3)
    await pool.close()


SLEEPING = """
SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'SELECT pg_sleep%'
"""


async def test_what_is_given_up_in_the_middle_ends_and_its_connection_with_it(opened) -> None:
    pool, other = opened(1, patience=60), opened(1)

    pids: list[int] = []

    async def use() -> None:
        async with pool.taken() as made, made.transaction():
            pids.append(await made.fetchval(PID))
            await made.execute("SELECT pg_sleep(60)")

    async def sleeping() -> int:
        async with other.taken() as made:
            return await made.fetchval(SLEEPING)

    async with asyncio.TaskGroup() as group:
        using = group.create_task(use())
        while not await sleeping():
            assert not using.done()
        using.cancel()
    assert await pid_of(pool) not in pids
    while await sleeping() or len(pool) > 1:
        pass


async def test_a_transaction_that_was_left_open_ends_with_its_connection(opened) -> None:
    pool = opened(1)
    async with pool.taken() as made:
        pid = await made.fetchval(PID)
        await made.execute("BEGIN")
    assert await pid_of(pool) != pid


async def test_where_one_connection_is_lost_no_other_one_is_tried(opened) -> None:
    pool = opened(3)
    async with pool.taken() as first, pool.taken() as other:
        pids = {await first.fetchval(PID), await other.fetchval(PID)}
    with pytest.raises(asyncpg.PostgresError):
        async with pool.taken() as made:
            await made.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    assert (len(pool), pool.idle) == (0, 0)
    assert await pid_of(pool) not in pids


async def test_what_nobody_used_for_long_is_let_go(opened) -> None:
    pool = opened(idle=0)
    assert await pid_of(pool) != await pid_of(pool)
    assert len(pool) == 1


async def test_a_connection_that_cannot_be_made_takes_no_place(postgres_schema) -> None:
    async def refused() -> Any:
        raise ConnectionRefusedError

    pool = Pool(refused, 1, 0)
    for _ in range(2):
        with pytest.raises(ConnectionRefusedError):
            await pid_of(pool)
    await pool.close()


async def test_a_close_waits_for_who_has_one_and_then_nobody_gets_any(postgres_schema) -> None:
    pool = Pool(Database(postgres_schema)._connected, 1, 0)
    async with pool.taken() as made:
        closing = asyncio.ensure_future(pool.close())
        assert await made.fetchval("SELECT 1") == 1
        assert not closing.done()
    await closing
    assert len(pool) == 0
    with pytest.raises(TimeoutError):
        await pid_of(pool)


async def test_a_pool_that_is_cut_off_gives_none(opened) -> None:
    pool = opened(1)
    async with pool.taken() as made:
        pool.terminate()
        assert made.is_closed()
    with pytest.raises(StoreUnavailableError):
        await pid_of(pool)
