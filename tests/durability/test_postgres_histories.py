"""Conversations in PostgreSQL: two connections at once, sweeps in steps, lost answers."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.histories import CHAT, MANY, NOON, effect, later, texts, turn
from tests.durability.lossy import Lossy
from yukta_rx.durability.postgres import histories as module
from yukta_rx.durability.postgres.database import Database
from yukta_rx.durability.postgres.fence import raise_epoch
from yukta_rx.durability.postgres.histories import PostgresHistoryStore
from yukta_rx.durability.stores.histories import HistoryKey, Turn
from yukta_rx.errors import StaleLeaderError
from yukta_rx.metrics import Meters

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [pytest.mark.feature("DUR-04"), pytest.mark.durable]

FILL = (
    "INSERT INTO session_history (part, epoch, session_id, key, at, text) "
    "SELECT 0, 1, 's', 'k' || n, $2::timestamptz + n * interval '1 second', "
    """'{"role":"user","text":"x"}' FROM generate_series(1, $1::int) AS n"""
)


@asynccontextmanager
async def beside(database: Database, url: str | None = None) -> AsyncIterator[Any]:
    """The same conversations, over other connections."""
    async with Database(url or database._url, size=4) as other:
        other.epoch = database.epoch
        async with PostgresHistoryStore(other) as store:
            yield store


@pytest.fixture
async def store(postgres: Database) -> AsyncIterator[PostgresHistoryStore]:
    async with PostgresHistoryStore(postgres) as store:
        yield store


async def fill(database: Database, count: int) -> None:
    await database.change(lambda made: made.execute(FILL, count, NOON))
    await database.change(lambda made: made.execute("ANALYZE session_history"))


async def test_appends_over_two_connections_leave_the_newest_at_any_moment(postgres, store) -> None:
    seen: list[int] = []
    done = asyncio.Event()

    async def watch() -> None:
        while not done.is_set():
            seen.append(await postgres.fetchval("SELECT count(*) FROM session_history"))

    async with beside(postgres) as other, asyncio.TaskGroup() as group:
        group.create_task(watch())
        both = (store, other)
        await asyncio.gather(*(both[n % 2].append(CHAT, turn(str(n)), 5) for n in range(60)))
        done.set()

    assert max(seen) <= 5
    kept = await texts(store)
    assert len(set(kept)) == 5
    order = await postgres.fetch("SELECT turn FROM session_history ORDER BY turn")
    assert [row["turn"] for row in order] == list(range(56, 61))


async def test_a_sweep_goes_in_steps_and_leaves_what_is_newer(postgres, store) -> None:
    await fill(postgres, 2 * module.SWEPT_AT_ONCE + 300)
    async with PostgresHistoryStore(postgres) as full:
        assert full.kept == 2 * module.SWEPT_AT_ONCE + 300

        assert await full.sweep(later(2 * module.SWEPT_AT_ONCE + 200)) == 1200
        assert full.kept == 100
        assert await postgres.fetchval("SELECT count(*) FROM session_history") == 100
        await full.drop("s")
        assert full.kept == 0


async def test_a_sweep_finds_what_is_old_by_the_index_of_time(postgres) -> None:
    await fill(postgres, 5000)
    made = await postgres.connect()
    try:
        until = later(20)
        plan = await made.fetch(f"EXPLAIN {module.OVERDUE}", 0, until, module.SWEPT_AT_ONCE)
    finally:
        await made.close()
    assert "session_history_at_idx" in "\n".join(row[0] for row in plan)


async def test_a_history_that_gets_a_turn_while_it_is_swept_stays_whole(postgres, store) -> None:
    await store.append(CHAT, turn("old", 0), MANY)
    key = module._lock(store._key(CHAT))
    found, go_on = asyncio.Event(), asyncio.Event()

    async def speak(made: Any) -> None:
        await made.execute(module.LOCK, key)
        found.set()
        await go_on.wait()
        said = '{"role":"user","text":"new"}'
        await made.fetchval(module.APPEND, *store._key(CHAT), MANY, None, 1, later(60), said)

    waits = (
        "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database "
        "WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted"
    )
    async with beside(postgres) as other, asyncio.TaskGroup() as group:
        group.create_task(postgres.write(speak))
        await found.wait()
        sweeping = group.create_task(other.sweep(later(30)))
        while not await postgres.fetchval(waits):
            assert not sweeping.done()
        go_on.set()
    assert sweeping.result() == 0
    assert await texts(store) == ["old", "new"]


async def test_a_server_that_does_not_lead_any_more_changes_nothing(postgres, store) -> None:
    await store.append(CHAT, turn("old"), MANY)
    await postgres.change(lambda made: raise_epoch(made, 0, "somebody else"))

    for attempt in (
        lambda: store.append(CHAT, turn("late"), MANY, effect=effect("a")),
        lambda: store.clear(CHAT, effect("b")),
        lambda: store.sweep(later(60)),
        lambda: store.drop("s"),
        lambda: store.forget("line"),
    ):
        with pytest.raises(StaleLeaderError):
            await attempt()

    assert await texts(store) == ["old"]
    assert store.kept == 1
    assert await postgres.fetchval("SELECT count(*) FROM effect") == 0


async def test_a_turn_whose_answer_is_lost_is_there_once(postgres) -> None:
    async with Lossy(postgres._url) as way, beside(postgres, way.url) as store:
        for number in range(3):
            way.lose("COMMIT")
            await store.append(CHAT, turn(str(number)), MANY)
        assert way.lost == 3
        assert await texts(store) == ["0", "1", "2"]
        assert store.kept == 1


async def test_any_name_and_any_text_are_there_after_a_restart(postgres, store) -> None:
    keys = [HistoryKey("s", key) for key in ("a\0b", "a\\0000b", "\ud800", "名前 😀" * 100, "")]
    said = Turn("rôle \0", 'x"\\u0000 \0 😀 \u2028', later(0.000_001))
    for key in keys:
        await store.append(key, said, MANY)

    async with beside(postgres) as again:
        assert [list(await again.load(key, MANY)) for key in keys] == [[said]] * len(keys)
        assert again.kept == len(keys)


async def test_a_damaged_turn_stops_no_other_and_is_counted_once(postgres) -> None:
    meters = Meters()
    async with PostgresHistoryStore(postgres, meters) as store:
        for number in range(3):
            await store.append(CHAT, turn(str(number)), MANY)
        await postgres.change(
            lambda made: made.execute("UPDATE session_history SET text = '[1]' WHERE turn = 2")
        )

        for _ in range(2):
            assert await texts(store) == ["0", "2"]
        [fault] = store.quarantined
        assert str(fault).startswith("session_history, session s, key chat, turn 2: is no turn")
        counter = meters.counter("yukta.store.quarantined", store="session-memory")
        assert counter.value == 1
