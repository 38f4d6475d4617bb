"""Who needs a blob on PostgreSQL, where answers come late, are lost, or say that one is missing."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from tests.contract.execution_log import started
from tests.durability.lossy import Lossy
from tests.durability.test_postgres_claim_check import LARGE, TheLog, opened, same
from yukta_rx.durability.postgres.database import Database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [pytest.mark.feature("DUR-02", "DUR-04"), pytest.mark.durable]


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
