"""Input requests in PostgreSQL: what several do at once, and what gets lost, changes one answer."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from tests.contract.input_requests import (
    LIVE,
    NOON,
    InputRequestContract,
    answer,
    early,
    request,
)
from tests.durability.lossy import FIRST_ROW, Lossy
from yukta_rx.durability.postgres.database import Database
from yukta_rx.durability.postgres.fence import raise_epoch
from yukta_rx.durability.postgres.input_requests import PostgresInputRequestStore
from yukta_rx.durability.stores.input_requests import Answer, InputRequest, RequestState
from yukta_rx.errors import (
    ConflictError,
    SignalBufferFullError,
    StaleLeaderError,
    StoreUnavailableError,
    UnserialisablePayloadError,
)
from yukta_rx.metrics import Meters
from yukta_rx.model.message import Message
from yukta_rx.plugins.signals import SignalWaits
from yukta_rx.plugins.waits import Place
from yukta_rx.streams.clock import LoopClock, PausableClock

pytestmark = [pytest.mark.feature("CTL-05"), pytest.mark.durable]

LINEAGE = "line"


@pytest.fixture
def store(postgres: Database) -> PostgresInputRequestStore:
    return PostgresInputRequestStore(postgres)


@pytest.fixture
async def second(postgres: Database) -> Any:
    """Another server's store, of the same leader."""
    async with Database(postgres._url, size=4) as database:
        database.epoch = postgres.epoch
        yield PostgresInputRequestStore(database)


class TestContract(InputRequestContract):
    @pytest.fixture
    def store(self, postgres: Database) -> Any:
        return PostgresInputRequestStore(postgres)

    def lose(self, store: Any) -> None:
        store._database = Database("postgresql://nobody@127.0.0.1:9/nothing")

    async def test_I8_a_failure_raises(self, store: Any) -> None:
        await store.ask(request(1), NOON, LIVE)
        self.lose(store)

        for call in (
            lambda: store.get("r-0001"),
            lambda: store.answer("r-0001", answer()),
            lambda: store.close("r-0001", "run-1", RequestState.EXPIRED),
            lambda: store.ask(request(2), NOON, LIVE),
            lambda: store.keep(early("x"), NOON, 3),
            lambda: store.open_requests(),
            lambda: store.forget(LINEAGE),
        ):
            with pytest.raises(StoreUnavailableError):
                await call()


# --- at once -------------------------------------------------------------------------------------


async def test_of_answers_and_closings_by_two_servers_one_is_taken(store, second) -> None:
    for turn in range(20):
        await store.ask(request(turn), NOON, LIVE)
        name = f"r-{turn:04}"
        calls: list[Any] = [
            *(each.answer(name, answer(f"{n}")) for n in range(4) for each in (store, second)),
            *(each.close(name, "run-1", RequestState.EXPIRED) for each in (store, second)),
        ]
        said = await asyncio.gather(*calls, return_exceptions=True)

        taken = [one for one in said if isinstance(one, InputRequest)]
        assert len(taken) + said.count(True) == 1
        assert sum(isinstance(one, ConflictError) for one in said) == 8 - len(taken)
        found = await store.get(name)
        assert found.state is (RequestState.ANSWERED if taken else RequestState.EXPIRED)
        assert [found] == taken or found.answer is None


async def test_of_a_request_that_nobody_waits_for_one_takes_it_over(store, second) -> None:
    for turn in range(20):
        old = request(turn, execution_id="gone")
        await store.ask(old, NOON, LIVE)
        new = [
            replace(request(100 + 10 * turn + n), message_id=old.message_id, execution_id=run)
            for n, run in enumerate(("run-1", "run-2"))
        ]
        said = await asyncio.gather(
            *(each.ask(one, NOON, LIVE) for each, one in zip((store, second), new, strict=True))
        )

        taken = [one for one in said if one.request_id == old.request_id]
        assert [one.asked_at for one in taken] == [old.asked_at]
        assert len({one.request_id for one in said}) == 2
        assert [await store.get(one.request_id) for one in said] == said


async def test_an_early_signal_is_taken_once_by_whoever_asks_first(store, second) -> None:
    for turn in range(20):
        node = f"n{turn}"
        await store.keep(early("yes", node_id=node), NOON, 3)
        asked = [request(10 * turn + n, node_id=node) for n in range(4)]
        said = await asyncio.gather(
            *((store, second)[n % 2].ask(one, NOON, LIVE) for n, one in enumerate(asked))
        )

        states = sorted(one.state for one in said)
        assert states == [RequestState.ANSWERED, *[RequestState.OPEN] * 3]
        assert [await store.get(one.request_id) for one in said] == said


async def test_no_more_early_signals_are_kept_however_many_come_at_once(store, second) -> None:
    calls = [(store, second)[n % 2].keep(early(str(n), lasts=60 + n), NOON, 5) for n in range(20)]
    said = await asyncio.gather(*calls, return_exceptions=True)

    refused = [one for one in said if isinstance(one, SignalBufferFullError)]
    assert (len(refused), said.count(None)) == (15, 5)
    assert all(60 <= one.retry_after < 80 for one in refused)


async def test_a_message_that_is_asked_and_answered_at_once_waits_or_knows(store, second) -> None:
    """A resumed run asks while somebody answers what its earlier run asked."""
    for turn in range(20):
        old = request(turn, execution_id="gone")
        await store.ask(old, NOON, LIVE)
        again = replace(request(100 + turn), message_id=old.message_id)
        asked, answered = await asyncio.gather(
            store.ask(again, NOON, LIVE), second.answer(old.request_id, answer("yes"))
        )

        found = await store.get(old.request_id)
        assert (found.state, found.execution_id) == (RequestState.ANSWERED, "run-1")
        assert found.answer == answered.answer
        assert asked.request_id == old.request_id
        assert asked.state in (RequestState.OPEN, RequestState.ANSWERED)
        assert await store.get(again.request_id) is None


# --- takeovers and lost connections --------------------------------------------------------------


async def test_a_server_that_leads_no_more_changes_nothing(postgres, store) -> None:
    await store.ask(request(1), NOON, LIVE)
    await store.keep(early("x", signal="other"), NOON, 3)
    await postgres.change(lambda made: raise_epoch(made, postgres.part, "somebody else"))

    for change in (
        lambda: store.ask(request(2), NOON, LIVE),
        lambda: store.answer("r-0001", answer()),
        lambda: store.answer("nobody", answer()),
        lambda: store.close("r-0001", "run-1", RequestState.EXPIRED),
        lambda: store.keep(early("y"), NOON, 3),
        lambda: store.forget(LINEAGE),
    ):
        with pytest.raises(StaleLeaderError):
            await change()
    assert list(await store.open_requests()) == [request(1)]
    assert await postgres.fetchval("SELECT count(*) FROM early_signal") == 1


async def test_what_was_done_is_done_once_where_its_answer_gets_lost(postgres, store) -> None:
    async with Lossy(postgres._url) as way, Database(way.url, size=2) as database:
        database.epoch = postgres.epoch
        lost = PostgresInputRequestStore(database)
        way.lose("COMMIT")
        await lost.keep(early("yes"), NOON, 1)
        way.lose("COMMIT")
        first = await lost.ask(request(1), NOON, LIVE)
        way.lose("COMMIT")
        second = await lost.ask(request(2), NOON, LIVE)
        way.lose("COMMIT")
        answered = await lost.answer("r-0002", answer("no"))
        await lost.ask(request(3), NOON, LIVE)
        way.lose("COMMIT")
        assert await lost.close("r-0003", "run-1", RequestState.CANCELLED)
        assert way.lost == 5

    assert (first.state, second.state) == (RequestState.ANSWERED, RequestState.OPEN)
    assert [await store.get(f"r-000{n}") for n in (1, 2)] == [first, answered]
    assert await store.open_requests() == []
    # Nobody knew, and asks the same again.
    assert await store.ask(request(4), NOON, LIVE) == request(4)
    assert await store.ask(request(4), NOON, LIVE) == request(4)
    assert await store.ask(request(1), NOON, LIVE) == first


# --- values, bounds, rows that cannot be read ----------------------------------------------------


async def test_values_come_back_as_they_were(store) -> None:
    data = {"nul": "a\0b", "big": 2**70, "money": Decimal("1.10"), "t": (1, b"\0"), "f": 1e22}
    odd = request(1, node_id="a\0b", message_id="a\\0000b", session_id="ünï", prompt="\0")
    await store.ask(odd, NOON, LIVE)
    await store.answer("r-0001", answer("yes", data))
    await store.keep(early("x", node_id="a\0b", answer=answer("no", data)), NOON, 3)

    assert await store.get("r-0001") == replace(
        odd,
        state=RequestState.ANSWERED,
        answer=answer("yes", data),
        remaining=None,
        prompt=None,
        payload_preview="",
    )
    again = await store.ask(replace(odd, request_id="r-0002"), NOON, LIVE)
    assert repr(again.answer.data) == repr(data)
    kept = await store.ask(request(3, node_id="a\0b"), NOON, LIVE)
    assert repr(kept.answer) == repr(answer("no", data))
    await store.ask(request(4), NOON, LIVE)
    with pytest.raises(UnserialisablePayloadError):
        await store.answer("r-0004", answer("yes", "\ud800"))
    assert (await store.get("r-0004")).state is RequestState.OPEN
    assert await store.get("\ud800") is None


async def test_of_a_lineage_only_so_many_closed_requests_are_kept(postgres) -> None:
    store = PostgresInputRequestStore(postgres, kept=3)
    for number in range(6):
        await store.ask(request(number), NOON, LIVE)
        if number % 2:
            await store.answer(f"r-{number:04}", answer(str(number)))
        else:
            await store.close(f"r-{number:04}", "run-1", RequestState.EXPIRED)
    await store.keep(early("now"), NOON, 1)
    await store.ask(request(6), NOON, LIVE)
    await store.ask(request(9), NOON, LIVE)
    await store.ask(request(8, lineage="other"), NOON, LIVE)
    await store.answer("r-0008", answer())

    kept = [number for number in range(10) if await store.get(f"r-{number:04}") is not None]
    assert kept == [4, 5, 6, 8, 9]


async def test_expired_signals_go_when_others_come(postgres, store) -> None:
    for number in range(3):
        await store.keep(early(str(number), lasts=1), NOON, 3)
    await store.keep(early("new"), NOON + timedelta(seconds=1), 3)

    assert await postgres.fetchval("SELECT count(*) FROM early_signal") == 1


async def test_what_cannot_be_read_is_said_and_everything_else_is_in_use(postgres, caplog) -> None:
    meters = Meters()
    store = PostgresInputRequestStore(postgres, meters=meters)
    for number in range(1, 4):
        await store.ask(request(number), NOON, LIVE)
    for decision in ("one", "two"):
        await store.keep(early(decision), NOON, 3)
    spoil = "UPDATE input_request SET request = $2 WHERE request_id = $1"
    for name, text in (("r-0001", "no JSON"), ("r-0002", "[]")):
        await postgres.fetch(spoil, name, text)
    await postgres.fetch("UPDATE early_signal SET answer = '7' WHERE seq = 1")

    assert [one.request_id for one in await store.open_requests()] == ["r-0003"]
    for call in (
        lambda: store.get("r-0001"),
        lambda: store.answer("r-0001", answer()),
        lambda: store.close("r-0002", "run-1", RequestState.EXPIRED),
        lambda: store.ask(request(7, message_id="m-2"), NOON, LIVE),
    ):
        with pytest.raises(StoreUnavailableError, match="input_request r-000"):
            await call()
    assert (await store.ask(request(4), NOON, LIVE)).answer == answer("two")
    assert [one.place for one in store.quarantined] == [
        *("input_request r-0001", "input_request r-0002", "early_signal, seq 1")
    ]
    assert meters.counter("yukta.store.quarantined", store="input-requests").value == 3
    assert caplog.text.count("the row is left out") == 3
    assert await postgres.fetchval("SELECT count(*) FROM input_request") == 4


@pytest.mark.parametrize("word", ["approve", "reject"])
async def test_a_message_goes_on_with_what_was_answered_although_nobody_heard_of_it(
    postgres, word
) -> None:
    async with Lossy(postgres._url) as way, Database(way.url, size=2) as database:
        database.epoch = postgres.epoch
        clock = LoopClock(asyncio.get_running_loop())
        waits = SignalWaits(PostgresInputRequestStore(database), clock)
        place, said = Place("s", "w", "run", "line", "n"), []
        node = waits.node(place, PausableClock(clock), lambda kind, _: said.append(kind))
        waiting = asyncio.ensure_future(node.wait("ok", Message.of(1, id="m"), timeout=None))
        while not (asked := waits.approvals(lambda _: True)):
            await asyncio.sleep(0)
        committed = way.hold("COMMIT")
        committed.lost = True
        given = Answer(decision="approve", answered_by="ada", answered_at=NOON)
        answering = asyncio.ensure_future(waits.send(place, "ok", given))
        await committed.given.wait()
        for _ in range(2):
            way.lose(FIRST_ROW)
        committed.go.set()
        with pytest.raises(StoreUnavailableError):
            await answering

        again = waits.send(place, "ok", replace(given, decision=word, answered_at=NOON))
        if word == "approve":
            assert await again == asked[0]["approvalId"]
        else:
            with pytest.raises(ConflictError):
                await again
        assert waits.approvals(lambda _: True) == []
        assert (await waiting).decision == "approve"
        assert said == ["approval.requested", "approval.answered"]
        await waits.close()
