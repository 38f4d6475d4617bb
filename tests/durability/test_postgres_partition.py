"""Who leads a partition of a database: one server, and the next at once when it is gone."""

from __future__ import annotations

import asyncio

import pytest

from yukta_rx.durability.postgres.database import Database
from yukta_rx.durability.postgres.partition import PartitionLock
from yukta_rx.errors import StoreUnavailableError

pytestmark = [pytest.mark.feature("DUR-04"), pytest.mark.durable]


@pytest.fixture
def calls() -> list[str]:
    return []


@pytest.fixture
def lock(calls):
    def make(database: Database, name: str) -> PartitionLock:
        return PartitionLock(
            database,
            name,
            lost=lambda: calls.append("lost"),
            regained=lambda: calls.append("regained"),
            stale=lambda: calls.append("stale"),
        )

    return make


async def cut(database: Database, pid: int) -> None:
    await database.fetchval("SELECT pg_terminate_backend($1)", pid)


async def until(calls: list[str], word: str) -> None:
    async with asyncio.timeout(30):
        while word not in calls:
            await asyncio.sleep(0.01)


async def test_one_server_leads_and_a_second_one_is_told_who(postgres, postgres_schema, lock):
    async with lock(postgres, "first server"):
        epoch = postgres.epoch
        async with Database(postgres_schema, size=2) as other:
            with pytest.raises(StoreUnavailableError, match="first server"):
                async with lock(other, "second server"):
                    pass
        assert postgres.epoch == epoch
    async with Database(postgres_schema, size=2) as other, lock(other, "second server") as led:
        assert led.held
        assert other.epoch == epoch + 1


async def test_a_connection_that_is_lost_is_followed_by_another_with_the_same_epoch(
    postgres, lock, calls
):
    async with lock(postgres, "first server") as led:
        epoch = postgres.epoch
        await cut(postgres, led._connection.get_server_pid())
        await until(calls, "regained")
        assert calls == ["lost", "regained"]
        assert led.held
        assert postgres.epoch == epoch


async def test_who_comes_back_after_another_one_led_is_told_to_stop(
    postgres, postgres_schema, lock, calls
):
    async with lock(postgres, "first server") as led:
        # Another one gets the lock between the loss and the next attempt.
        led._take = refused
        await cut(postgres, led._connection.get_server_pid())
        await until(calls, "lost")
        async with Database(postgres_schema, size=2) as other, lock(other, "second server"):
            await until(calls, "stale")
        assert calls == ["lost", "stale"]
        assert not led.held


async def refused(_patience: float) -> None:
    raise StoreUnavailableError("not yet")
