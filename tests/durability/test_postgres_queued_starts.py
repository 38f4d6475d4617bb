"""Starts that wait, in PostgreSQL: each is claimed once, whoever asks and whatever gets lost."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from tests.contract.queued_starts import QueuedStartContract, names, start
from tests.durability.lossy import Lossy
from yukta_rx.durability.postgres.database import Database
from yukta_rx.durability.postgres.fence import raise_epoch
from yukta_rx.durability.postgres.queued_starts import PostgresQueuedStartStore
from yukta_rx.errors import StaleLeaderError, StoreUnavailableError, UnserialisablePayloadError
from yukta_rx.metrics import Meters

pytestmark = [pytest.mark.feature("ADM-01", "DUR-05"), pytest.mark.durable]


@pytest.fixture
def store(postgres: Database) -> PostgresQueuedStartStore:
    return PostgresQueuedStartStore(postgres)


class TestContract(QueuedStartContract):
    @pytest.fixture
    def store(self, postgres: Database) -> Any:
        return PostgresQueuedStartStore(postgres)

    def lose(self, store: Any) -> None:
        store._database = Database("postgresql://nobody@127.0.0.1:9/nothing")


async def test_each_start_is_claimed_once_by_two_servers(postgres, store) -> None:
    async with Database(postgres._url, size=4) as database:
        database.epoch = postgres.epoch
        stores = (store, PostgresQueuedStartStore(database))
        waiting = [f"r{n:03}" for n in range(100)]
        await asyncio.gather(*(store.put(start(name)) for name in waiting))

        asked = [(name, each) for name in waiting for each in stores for _ in range(2)]
        said = await asyncio.gather(*(each.claim(name) for name, each in asked))

        assert sorted(one.execution_id for one in said if one is not None) == waiting
        assert await names(store) == []


async def test_a_claim_or_a_withdrawal_gets_it_and_never_both(postgres, store) -> None:
    for n in range(50):
        await store.put(start("a", priority=n))
        calls: list[Any] = [store.claim("a"), store.remove("a"), store.set_priority("a", 7)]
        claimed, removed, _ = await asyncio.gather(*calls)
        assert (claimed is not None) != removed


@pytest.fixture
async def lossy(postgres: Database) -> Any:
    """A store on a way on which answers get lost, and that way."""
    async with Lossy(postgres._url) as way, Database(way.url, size=2) as database:
        database.epoch = postgres.epoch
        yield PostgresQueuedStartStore(database), way


async def test_what_was_taken_is_not_lost_with_the_answer(store, lossy) -> None:
    lost, way = lossy
    way.lose("COMMIT")
    await lost.put(start("a"))
    way.lose("COMMIT")
    assert await lost.set_priority("a", 3)
    way.lose("COMMIT")
    assert await lost.claim("a") == start("a", priority=3)
    await lost.put(start("b"))
    way.lose("COMMIT")
    assert await lost.remove("b")

    assert way.lost == 4
    assert await names(store) == []
    assert await lost.claim("a") is None


async def test_a_server_that_leads_no_more_takes_nothing(postgres, store) -> None:
    await store.put(start("a"))
    await postgres.change(lambda made: raise_epoch(made, postgres.part, "somebody else"))

    for change in (
        lambda: store.put(start("b")),
        lambda: store.claim("a"),
        lambda: store.remove("a"),
        lambda: store.set_priority("a", 1),
        # Nothing that waits is an answer of the leader, too.
        lambda: store.claim("never"),
    ):
        with pytest.raises(StaleLeaderError):
            await change()
    assert list(await store.list()) == [start("a")]


async def test_values_come_back_as_they_were(store) -> None:
    request = {"payload": {"nul": "a\0b", "big": 2**70, "money": Decimal("1.10"), "t": (1, b"\0")}}
    puts = [
        start("a\0b", request=request),
        start("a\\0000b", after=1, priority=0.1),
        start("ünï'; --", after=2, priority=1e300),
        start("c", after=3, priority=float("-inf")),
    ]
    for put in puts:
        await store.put(put)

    listed = list(await store.list())
    assert listed == puts
    assert [repr(one.request) for one in listed] == [repr(one.request) for one in puts]
    with pytest.raises(UnserialisablePayloadError):
        await store.put(start("d", request={"payload": "\ud800"}))
    for put in puts:
        assert await store.claim(put.execution_id) == put


async def test_a_start_that_cannot_be_read_is_left_where_it_is_and_said(postgres, caplog) -> None:
    meters = Meters()
    store = PostgresQueuedStartStore(postgres, meters=meters)
    for n, name in enumerate("abcd"):
        await store.put(start(name, after=n))
    spoil = "UPDATE queued_start SET start = $2 WHERE execution_id = $1"
    for name, text in (("a", "no JSON"), ("c", "{}"), ("d", "[]")):
        await postgres.fetch(spoil, name, text)

    assert await names(store) == ["b"]
    assert await names(store) == ["b"]
    with pytest.raises(StoreUnavailableError, match="queued_start, run c: "):
        await store.claim("c")
    assert await postgres.fetchval("SELECT count(*) FROM queued_start") == 4
    assert [one.place for one in store.quarantined] == [
        *("queued_start, run a", "queued_start, run c", "queued_start, run d")
    ]
    assert meters.counter("yukta.store.quarantined", store="queued-starts").value == 3
    assert caplog.text.count("the row is left out") == 3
    assert await store.remove("a")


async def test_what_is_put_again_waits_at_its_place(store) -> None:
    for name in "ab":
        await store.put(start(name))
    await store.put(start("a", priority=5))

    assert list(await store.list()) == [replace(start("a"), priority=5), start("b")]
