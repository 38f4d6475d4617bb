"""The checkpoint and blob stores on PostgreSQL: the contracts, takeovers, crashes, a freeze."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.checkpoints import (
    CheckpointContract,
    mark,
    number,
    numbers_of,
    rows_of,
    shown,
    state_of,
)
from tests.durability.lost_answers import losing_answers, lost_database, take_over
from yukta_rx.durability.postgres import migrate
from yukta_rx.durability.postgres.checkpoints import PostgresNodeCheckpointStore
from yukta_rx.durability.postgres.database import Database
from yukta_rx.durability.postgres.fence import raise_epoch
from yukta_rx.durability.stores.checkpoints import (
    DAMAGED,
    UNSERIALISABLE,
    WRITE_FAILED,
    CheckpointRow,
    NodeCheckpoint,
)
from yukta_rx.errors import ConfigError, StaleLeaderError, StoreUnavailableError
from yukta_rx.metrics import Meters
from yukta_rx.model.message import Message
from yukta_rx.streams.pool import BlockingPool
from yukta_rx.testing.postgres import postgres_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from yukta_rx.testing.postgres import PostgresServer

pytestmark = [pytest.mark.feature("DUR-04"), pytest.mark.durable]

POOL = BlockingPool(2)


@asynccontextmanager
async def opened(postgres: Database, **options: Any) -> AsyncIterator[PostgresNodeCheckpointStore]:
    store = PostgresNodeCheckpointStore(postgres, **options)
    await store.start()
    try:
        yield store
    finally:
        await store.close()


def row_of(*payloads: Any) -> CheckpointRow:
    messages = [(None, Message.of(p, {"h": n}, id=f"m{n}")) for n, p in enumerate(payloads)]
    return CheckpointRow.of(messages, [("in", len(payloads))])


# --- the contract --------------------------------------------------------------------------------

NOTE = """
CREATE TABLE seen (nth bigint GENERATED ALWAYS AS IDENTITY, xact xid8, state jsonb);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO seen (xact, state) VALUES (pg_current_xact_id(), to_jsonb(NEW)); RETURN NEW;
END $$;
CREATE TRIGGER note AFTER INSERT OR UPDATE ON node_checkpoint_state
    FOR EACH ROW EXECUTE FUNCTION note()
"""
FORGET = "DROP TRIGGER note ON node_checkpoint_state; DROP FUNCTION note; DROP TABLE seen"

LEFT = """
INSERT INTO node_checkpoint_state
SELECT DISTINCT ON (was.node_id) was.* FROM seen, jsonb_populate_record(
    NULL::node_checkpoint_state, seen.state || jsonb_build_object('execution_id', $2::text)) AS was
WHERE seen.xact <= $1::text::xid8 ORDER BY was.node_id, seen.nth DESC
"""


class Left:
    """What was committed up to a moment, as a run of its own."""

    def __init__(self, store: Any, name: str) -> None:
        self._store = store
        self._name = name

    async def states(self, _: str) -> Any:
        return await self._store.states(self._name)


class TestPostgres(CheckpointContract):
    """On PostgreSQL; also with a transaction for each record."""

    @pytest.fixture(params=[1, 3, 1000])
    async def store(self, request: Any, postgres: Database) -> AsyncIterator[Any]:
        self.postgres, self.most = postgres, request.param
        self.others: list[Any] = [await self._opened()]
        crashes = "C10" in request.node.name
        if crashes:
            await postgres.change(lambda made: made.execute(NOTE))
        yield self.others[0]
        for store in self.others:
            await store.close()
        if crashes:
            await postgres.change(lambda made: made.execute(FORGET))

    async def _opened(self) -> PostgresNodeCheckpointStore:
        store = PostgresNodeCheckpointStore(self.postgres, most_rows=self.most)
        await store.start()
        return store

    def lose(self, store: Any) -> None:
        store._database = lost_database()

    def refuse(self, store: Any) -> None:
        store._take = lambda output, _row, **_: store._give_up(output, UNSERIALISABLE)

    async def restarted(self, store: Any) -> Any:
        await store.close()
        self.postgres.epoch = await take_over(self.postgres)
        self.others.append(await self._opened())
        return self.others[-1]

    async def crashed(self, store: Any) -> list[Any]:
        seen = "SELECT DISTINCT xact::text::bigint AS xact FROM seen ORDER BY 1"
        commits = [str(row["xact"]) for row in await self.postgres.fetch(seen)]
        assert len(commits) == 8 if self.most == 1 else len(commits) > 1
        for xact in commits:
            await self.postgres.change(lambda made, x=xact: made.execute(LEFT, x, f"run@{x}"))
        return [Left(store, f"run@{xact}") for xact in commits]


# --- who leads -----------------------------------------------------------------------------------


async def test_what_comes_after_a_takeover_is_refused_and_counted_and_nothing_is_written(
    postgres,
) -> None:
    async with opened(postgres) as store:
        await mark(store, "run", "a", number(1))
        await take_over(postgres)
        store.append("run", "b", number(2))
        with pytest.raises(StaleLeaderError):
            await mark(store, "run", "b", number(3))
        assert store.stale == 2
        with pytest.raises(StaleLeaderError):
            await store.carry_over("run", "other", ["a"])
        with pytest.raises(StaleLeaderError):
            await store.clear("run")

    assert await postgres.fetchval("SELECT count(*) FROM node_checkpoint") == 1
    kept = "SELECT execution_id || node_id FROM node_checkpoint_state"
    assert [row[0] for row in await postgres.fetch(kept)] == ["runa"]


async def test_what_comes_for_a_node_of_an_earlier_process_that_is_complete_changes_nothing(
    postgres,
) -> None:
    async with opened(postgres) as store:
        await mark(store, "run", "a", number(1))
        store.append("run", "b", number(2))
    postgres.epoch = await take_over(postgres)
    async with opened(postgres) as store:
        store.append("run", "a", number(7))
        await mark(store, "run", "a", number(8))
        store.append("run", "b", number(3))
        await mark(store, "run", "b")

        assert await state_of(store, "run", "a") == NodeCheckpoint(True, None, 1)
        assert await numbers_of(store, "run", "a") == [1]
        assert await numbers_of(store, "run", "b") == [2, 3]
        assert not store.append("run", "a", number(9))
        assert store.mark_complete("run", "a") is None


# --- answers that are lost -----------------------------------------------------------------------


async def test_what_was_committed_without_an_answer_is_said_again_and_counts_once(
    postgres,
) -> None:
    async with losing_answers(postgres) as (database, way), opened(database) as store:
        for n in range(1, 6):
            store.append("run", "a", number(n - 1))
            written = store.written("run", "a")
            assert written is not None
            way.losing = n % 2
            await written
            assert way.losing == 0
            assert await postgres.fetchval("SELECT count(*) FROM node_checkpoint") == n
        way.losing = 1
        await mark(store, "run", "a", number(5))

        assert await state_of(store, "run", "a") == NodeCheckpoint(True, None, 6)
        assert await numbers_of(store, "run", "a") == list(range(6))
        held = await postgres.fetchval("SELECT sum(octet_length(row)) FROM node_checkpoint")
        assert held == await postgres.fetchval("SELECT bytes FROM node_checkpoint_state")


async def test_outputs_that_cannot_be_written_are_given_up_before_anything_else_is_written(
    postgres,
) -> None:
    async with opened(postgres, patience=0) as store:
        assert store._writer is not None
        await mark(store, "run", "a", number(0))
        there, store._writer._database = store._writer._database, lost_database()
        await store._writer._disconnect()
        store.append("run", "b", number(1))
        with pytest.raises(StoreUnavailableError):
            await mark(store, "run", "c", number(2))
        assert not store.append("run", "b", number(3))
        with pytest.raises(StoreUnavailableError, match="node b of run run"):
            store.written("run", "b")
        assert (await state_of(store, "run", "b")).reason == WRITE_FAILED

        store._writer._database = there
        await mark(store, "run", "d", number(4))
        known = await postgres.fetch(
            "SELECT node_id, complete, reason FROM node_checkpoint_state ORDER BY 1"
        )
    assert [tuple(row) for row in known] == [
        *(("a", True, None), ("b", False, WRITE_FAILED)),
        *(("c", False, WRITE_FAILED), ("d", True, None)),
    ]


# --- values --------------------------------------------------------------------------------------


async def test_any_name_and_any_value_come_back_as_they_were(postgres) -> None:
    names = ["a/b", "x\0y", "\ud800", "\\0000", "é\u2028", "x" * 3000, "'; --"]
    rows = [
        row_of("a\0b", {"\0": [float("nan"), -0.0, 1e22, 2**70, b"\xff"]}),
        row_of("\\u0000", "é" * 100),
    ]
    async with opened(postgres) as store:
        for name in names:
            for row in rows:
                store.append(name, name, row)
            await mark(store, name, name)
        sizes = await postgres.fetchrow(
            "SELECT (SELECT sum(octet_length(row)) FROM node_checkpoint) AS rows,"
            " (SELECT sum(bytes) FROM node_checkpoint_state) AS told"
        )
        assert store.bytes == sizes["rows"] == sizes["told"]
        assert await store.runs() == set(names)
    postgres.epoch = await take_over(postgres)
    async with opened(postgres) as store:
        assert await store.runs() == set(names)
        for name in names:
            assert set(await store.states(name)) == {name}
            assert repr(shown(await rows_of(store, name, name))) == repr(shown(rows))


async def test_a_long_output_is_read_page_by_page(postgres) -> None:
    async with opened(postgres) as store:
        for n in range(3000):
            store.append("run", "a", number(n))
        await mark(store, "run", "a")
        assert await numbers_of(store, "run", "a") == list(range(3000))
        reading = store.read("run", "a")
        assert shown([await anext(reading)]) == shown([number(0)])
        await store.clear("run")
        with pytest.raises(StoreUnavailableError, match="3000 messages"):
            async for _ in reading:
                pass


@pytest.mark.parametrize("step", [1, 2, 500])
async def test_large_runs_are_copied_and_forgotten_in_steps(postgres, step) -> None:
    async with opened(postgres, step=step) as store:
        for n in range(5):
            store.append("old", "ab"[n % 2], number(n))
        await mark(store, "old", "a")
        store.mark_incomplete("old", "c", WRITE_FAILED)
        await store.carry_over("old", "new", ["a", "b", "c", "d"])
        await store.clear("old")

        assert dict(await store.states("old")) == {}
        assert dict(await store.states("new")) == {
            "a": NodeCheckpoint(True, None, 3),
            "b": NodeCheckpoint(False, None, 2),
            "c": NodeCheckpoint(False, WRITE_FAILED),
        }
        assert await numbers_of(store, "new", "a") == [0, 2, 4]
        held = store.bytes
        assert held == await postgres.fetchval("SELECT sum(octet_length(row)) FROM node_checkpoint")
        await store.clear("new")
        assert store.bytes == 0
    assert await postgres.fetchval("SELECT count(*) FROM node_checkpoint_state") == 0


async def test_a_damaged_row_is_shown_and_its_output_is_given_up_for_good(postgres) -> None:
    meters = Meters()
    async with opened(postgres, meters=meters) as store:
        store.append("run", "a", number(1))
        await mark(store, "run", "a", number(2))
        await mark(store, "run", "b", number(3))
        await postgres.change(
            lambda made: made.execute("UPDATE node_checkpoint SET row = '{' WHERE node_id = 'a'")
        )
        for _ in range(2):
            with contextlib.suppress(StoreUnavailableError):
                assert await rows_of(store, "run", "a") == []
        [shown_row] = store.quarantined
        assert "run run, node a" in shown_row.place
        assert meters.counter("yukta.store.quarantined", store="restart").value == 1
        assert await state_of(store, "run", "a") == NodeCheckpoint(False, DAMAGED)
    async with opened(postgres) as store:
        assert await state_of(store, "run", "a") == NodeCheckpoint(False, DAMAGED)
        assert await numbers_of(store, "run", "b") == [3]


# --- a server of its own -------------------------------------------------------------------------


@asynccontextmanager
async def led(server: PostgresServer) -> AsyncIterator[Database]:
    async with Database(server.url) as database:
        database.epoch = await database.change(lambda made: raise_epoch(made, 0, "test"))
        yield database


@pytest.fixture
def server() -> Any:
    try:
        with postgres_server(("max_connections=20",)) as made:
            migrate.upgrade(made.url)
            yield made
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.mark.slow
async def test_a_frozen_server_holds_nodes_back_and_nothing_is_lost(server) -> None:
    async with led(server) as database, opened(database) as store:
        numbers = count()
        store.append("run", "a", number(next(numbers)))
        written = store.written("run", "a")
        assert written is not None
        await written
        await POOL.call(server.freeze)
        text = "x" * 100_000
        while not store.full:
            store.append("run", "a", row_of({"n": next(numbers), "text": text}))
        held = asyncio.ensure_future(store.room())
        marked = store.mark_complete("run", "a", number(next(numbers)))
        assert marked is not None
        # Longer than a statement may take: it is given up, and said again.
        asked = (database.fetch("SELECT 1"), store.states("run"))
        said = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(one) for one in said] == [StoreUnavailableError] * 2
        assert not held.done()
        await POOL.call(server.thaw)
        await marked
        await held

        assert await numbers_of(store, "run", "a") == list(range(next(numbers)))
        assert (await state_of(store, "run", "a")).complete


@pytest.mark.slow
async def test_what_was_acknowledged_is_there_after_a_kill_and_what_waits_follows(server) -> None:
    async with led(server) as database:
        async with opened(database) as store:
            for n in range(50):
                await mark(store, "run", f"n{n}", number(n))
            await POOL.call(server.kill)
            store.append("run", "late", number(100))
            marked = store.mark_complete("run", "late", number(101))
            assert marked is not None
            await POOL.call(server.start)
            await marked
        database.epoch = await take_over(database)
        async with opened(database) as store:
            states = await store.states("run")
            assert {name for name, one in states.items() if one.complete} == {
                "late",
                *(f"n{n}" for n in range(50)),
            }
            assert await numbers_of(store, "run", "late") == [100, 101]
            assert await numbers_of(store, "run", "n49") == [49]
