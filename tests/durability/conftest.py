"""A PostgreSQL for the tests of stores: one server for all of them, emptied before each."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from yukta_rx.errors import ConfigError
from yukta_rx.testing.postgres import postgres_url

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from yukta_rx.durability.postgres.database import Database


@pytest.fixture(scope="session")
def postgres_schema() -> Iterator[str]:
    """The address of a database of ours with the schema in it."""
    from yukta_rx.durability.postgres import migrate

    try:
        server = postgres_url()
        url = server.__enter__()
    except ConfigError as error:
        pytest.skip(str(error))
    try:
        name = f"yukta_test_{id(server) % 1_000_000}"
        asyncio.run(_run(url, f"CREATE DATABASE {name}"))
        own = url.rpartition("/")[0] + f"/{name}"
        try:
            migrate.upgrade(own)
            yield own
        finally:
            asyncio.run(_run(url, f"DROP DATABASE {name} WITH (FORCE)"))
    finally:
        server.__exit__(None, None, None)


@pytest.fixture
async def postgres(postgres_schema: str) -> AsyncIterator[Database]:
    """An empty database that this server leads."""
    from yukta_rx.durability.postgres.database import Database
    from yukta_rx.durability.postgres.fence import raise_epoch
    from yukta_rx.durability.postgres.tables import metadata

    names = ", ".join(table.name for table in metadata.sorted_tables)
    async with Database(postgres_schema, size=4) as database:
        await database.change(lambda made: made.execute(f"TRUNCATE {names} RESTART IDENTITY"))
        database.epoch = await database.change(lambda made: raise_epoch(made, 0, "test"))
        yield database


async def _run(url: str, sql: str) -> None:
    import asyncpg

    made = await asyncpg.connect(url)
    try:
        await made.execute(sql)
    finally:
        await made.close()
