"""A PostgreSQL for the tests of stores: one server for all of them, emptied before each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.databases import empty_database, server_or_skip

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from yukta_rx.durability.postgres.database import Database


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The address of a server where databases may be made."""
    with server_or_skip() as url:
        yield url


@pytest.fixture(scope="session")
def postgres_schema(postgres_server: str) -> Iterator[str]:
    """The address of a database of ours with the schema in it."""
    from yukta_rx.durability.postgres import migrate

    with empty_database(postgres_server) as url:
        migrate.upgrade(url)
        yield url


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
