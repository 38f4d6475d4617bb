"""Values in PostgreSQL: counts and caps over two connections, lost answers, damaged rows."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from tests.durability.lossy import Lossy
from yukta_rx.durability.postgres.database import Database
from yukta_rx.durability.postgres.fence import raise_epoch
from yukta_rx.durability.postgres.key_values import PostgresKeyValueStore
from yukta_rx.durability.stores.effects import EffectKey
from yukta_rx.durability.stores.key_values import Value
from yukta_rx.errors import KeyValueFullError, StaleLeaderError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [pytest.mark.feature("DUR-04"), pytest.mark.durable]

CAP = 1000
ROWS = "SELECT count(*) FROM kv_entry WHERE session_id = $1"
COUNTED = "SELECT entries FROM kv_count WHERE session_id = $1"


@asynccontextmanager
async def beside(database: Database, url: str | None = None) -> AsyncIterator[Any]:
    """The same values, over other connections."""
    async with Database(url or database._url, size=4) as other:
        other.epoch = database.epoch
        async with PostgresKeyValueStore(other) as store:
            yield store


@pytest.fixture
async def store(postgres: Database) -> AsyncIterator[PostgresKeyValueStore]:
    async with PostgresKeyValueStore(postgres) as store:
        yield store


def effect(name: str) -> EffectKey:
    return EffectKey("line", "n", "m", name)


async def test_of_32_puts_at_once_as_many_find_room_as_there_is(postgres, store) -> None:
    async with beside(postgres) as other:
        both = (store, other)
        said = await asyncio.gather(
            *(both[n % 2].put("s", f"k{n}", n, cap=5) for n in range(32)), return_exceptions=True
        )

    assert sum(one is None for one in said) == 5
    assert sum(isinstance(one, KeyValueFullError) for one in said) == 27
    assert await postgres.fetchval(ROWS, "s") == 5
    assert await postgres.fetchval(COUNTED, "s") == 5


async def test_no_increment_over_two_connections_is_lost(postgres, store) -> None:
    async with beside(postgres) as other:
        both = (store, other)
        sums = await asyncio.gather(*(both[n % 2].incr("s", "n", 1, cap=CAP) for n in range(200)))

    assert sorted(sums) == list(range(1, 201))
    assert await store.get("s", "n") == Value(200)


@pytest.mark.slow
async def test_the_number_of_keys_stays_right_whatever_comes_at_once(postgres, store) -> None:
    chosen = random.Random(8)
    async with beside(postgres) as other:

        def change(number: int) -> Any:
            one = (store, other)[number % 2]
            key = f"k{chosen.randrange(6)}"
            match chosen.randrange(8):
                case 0:
                    return one.remove("s", key, effect=effect(f"e{number % 30}"))
                case 1 | 2:
                    return one.remove("s", key)
                case 3:
                    return one.incr("s", key, 1, cap=4)
                case 4:
                    return one.clear("s")
                case 5:
                    return one.put("s", key, 1, cap=4, effect=effect(f"e{number % 30}"))
                case _:
                    return one.put("s", key, 1, cap=4)

        said = await asyncio.gather(*map(change, range(300)), return_exceptions=True)

    wrong = {type(one) for one in said if isinstance(one, BaseException)}
    assert wrong <= {KeyValueFullError}
    there = await postgres.fetchval(ROWS, "s")
    assert there <= 4
    assert (await postgres.fetchval(COUNTED, "s") or 0) == there
    async with PostgresKeyValueStore(postgres) as again:
        assert again.kept == there


async def test_an_effect_is_done_once_by_whichever_connection_comes_first(postgres, store) -> None:
    async with beside(postgres) as other:
        both = (store, other)
        for name in ("new", "there"):
            sums = await asyncio.gather(
                *(both[n % 2].incr("s", "n", 1, cap=CAP, effect=effect(name)) for n in range(10))
            )
            assert len(set(sums)) == 1
    assert await store.get("s", "n") == Value(2)


async def test_a_server_that_does_not_lead_any_more_changes_nothing(postgres, store) -> None:
    await store.put("s", "k", 1, cap=CAP)
    await postgres.change(lambda made: raise_epoch(made, 0, "somebody else"))

    for attempt in (
        lambda: store.put("s", "k", 2, cap=CAP, effect=effect("a")),
        lambda: store.put("s", "new", 2, cap=CAP),
        lambda: store.incr("s", "k", 1, cap=CAP, effect=effect("b")),
        lambda: store.remove("s", "k", effect=effect("c")),
        lambda: store.clear("s"),
        lambda: store.forget("line"),
    ):
        with pytest.raises(StaleLeaderError):
            await attempt()

    assert await store.get("s", "k") == Value(1)
    assert await postgres.fetchval("SELECT count(*) FROM effect") == 0
    assert store.kept == await postgres.fetchval(COUNTED, "s") == 1


async def test_a_count_whose_answer_is_lost_is_made_once(postgres) -> None:
    async with Lossy(postgres._url) as way, beside(postgres, way.url) as store:
        sums = []
        for _ in range(3):
            way.lose("COMMIT")
            sums.append(await store.incr("s", "n", 1, cap=CAP))
        way.lose("COMMIT")
        gone = await store.remove("s", "n", effect=effect("gone"))

        assert way.lost == 4
        assert sums == [1, 2, 3]
        assert gone == Value(3)
        assert store.kept == 0
        assert await store.remove("s", "n", effect=effect("gone")) == Value(3)


@pytest.mark.slow
async def test_a_change_that_is_cancelled_at_any_moment_is_made_once(postgres, store) -> None:
    for number in range(60):
        turns = number**2 // 2

        async def count(number: int = number) -> int:
            return await store.incr("s", f"k{number % 2}", 1, cap=CAP, effect=effect(str(number)))

        task = asyncio.create_task(count())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait((task,))
        # Whoever was cut off does it again.
        assert await count() == number // 2 + 1

    assert [await store.get("s", f"k{n}") for n in (0, 1)] == [Value(30)] * 2
    assert await postgres.fetchval(COUNTED, "s") == store.kept == 2


async def test_any_key_and_any_value_are_there_after_a_restart(postgres, store) -> None:
    keys = ["a\0b", "a\\0000b", "\\", "\\\\", "\ud800", "\udfff\0", "名前 😀", " ", "é", "e\u0301"]
    keys += ["😀" * 500, "\0" * 500]
    values: list[Any] = [
        *(2**64, -(10**40), 0.1, -0.0, Decimal("1.10"), "a\0\\u0000", b"\0\xff", (1, 2)),
        *(datetime(2026, 3, 1, 12, 0, 0, 123_456, tzinfo=UTC), date(1, 1, 1), UUID(int=7)),
        timedelta(microseconds=1),
    ]
    for key, value in zip(keys, values, strict=True):
        await store.put("s", key, value, cap=CAP)
        await store.incr("\0", key, 1, cap=CAP, effect=EffectKey("\0", "n", "m", key))

    async with beside(postgres) as again:
        found = [await again.get("s", key) for key in keys]
        assert [repr(one) for one in found] == [repr(Value(value)) for value in values]
        once = [
            await again.incr("\0", key, 1, cap=CAP, effect=EffectKey("\0", "n", "m", key))
            for key in keys
        ]
        assert once == [1] * len(keys)
        assert again.kept == 2 * len(keys)


async def test_a_damaged_value_is_refused_by_name_until_another_is_put(postgres, store) -> None:
    for key in ("k", "other"):
        await store.put("s", key, 1, cap=CAP)
    await postgres.change(
        lambda made: made.execute("UPDATE kv_entry SET value = '{' WHERE key = 'k'")
    )

    for ask in (
        lambda: store.get("s", "k"),
        lambda: store.incr("s", "k", 1, cap=CAP, effect=effect("a")),
        lambda: store.remove("s", "k", effect=effect("b")),
    ):
        with pytest.raises(StoreUnavailableError, match="kv_entry, session s, key k: cannot"):
            await ask()
    assert await postgres.fetchval("SELECT count(*) FROM effect") == 0
    assert await store.get("s", "other") == Value(1)
    await store.put("s", "k", 2, cap=CAP)
    assert await store.remove("s", "k") == Value(2)
    assert store.kept == 1
