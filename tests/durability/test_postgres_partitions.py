"""Two partitions of one database: the stores of one know nothing of the other's rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.definitions import record
from tests.contract.histories import CHAT, MANY, later, texts, turn
from tests.contract.sessions import change
from yukta_rx.durability.postgres.database import Database
from yukta_rx.durability.postgres.definitions import PostgresWorkflowDefinitionStore
from yukta_rx.durability.postgres.fence import raise_epoch
from yukta_rx.durability.postgres.histories import PostgresHistoryStore
from yukta_rx.durability.postgres.key_values import PostgresKeyValueStore
from yukta_rx.durability.postgres.sessions import PostgresSessionConfigStore
from yukta_rx.durability.stores.effects import EffectKey
from yukta_rx.durability.stores.key_values import Value
from yukta_rx.durability.stores.sessions import SessionChange

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [pytest.mark.feature("DUR-04"), pytest.mark.durable]

ONCE = EffectKey("line", "n", "m", "op")


@pytest.fixture
async def other(postgres: Database) -> AsyncIterator[Database]:
    """Another partition, led by another server."""
    async with Database(postgres._url, size=4, part=7) as database:
        for _ in range(3):
            database.epoch = await database.change(lambda made: raise_epoch(made, 7, "other"))
        yield database


async def test_workflows_and_sessions(postgres: Any, other: Any) -> None:
    for database in (postgres, other):
        definitions = PostgresWorkflowDefinitionStore(database, 2)
        sessions = PostgresSessionConfigStore(definitions)
        await sessions.commit([change("s", "w")])
        for number in range(2, 5):
            [made] = await definitions.write("s", [record("w", number)])
        assert made.version == 4
        assert [one.version for one in await definitions.versions("s", "w")] == [4, 3]
        await definitions.annotate("s", "w", 3, f"of {database.part}")

    gone = SessionChange(session_id="s", gone=True, remove=("w",))
    await PostgresSessionConfigStore(PostgresWorkflowDefinitionStore(other)).commit([gone])

    left = PostgresWorkflowDefinitionStore(postgres)
    assert [one.session_id for one in await PostgresSessionConfigStore(left).list()] == ["s"]
    kept = [(one.version, one.note) for one in await left.versions("s", "w")]
    assert kept == [(4, None), (3, "of 0")]


async def test_values(postgres: Any, other: Any) -> None:
    async with PostgresKeyValueStore(postgres) as here, PostgresKeyValueStore(other) as there:
        for store in (here, there):
            assert await store.incr("s", "n", 1, cap=1, effect=ONCE) == 1
        await there.put("s", "n", 5, cap=1)
        await there.forget("line")
        assert await here.get("s", "n") == Value(1)
        assert await here.incr("s", "n", 1, cap=1, effect=ONCE) == 1
        await there.clear("s")
        assert await here.get("s", "n") == Value(1)
        assert (here.kept, there.kept) == (1, 0)


async def test_conversations(postgres: Any, other: Any) -> None:
    async with PostgresHistoryStore(postgres) as here, PostgresHistoryStore(other) as there:
        for store in (here, there):
            await store.append(CHAT, turn("x"), MANY, effect=ONCE)
        await there.append(CHAT, turn("y", 60), 1)
        assert await texts(there) == ["y"]
        assert await here.sweep(later(-1)) == 0
        assert await there.sweep(later(100)) == 1
        await there.drop("s")
        assert await texts(here) == ["x"]
        assert (here.kept, there.kept) == (1, 0)
