"""The store of input requests of each backend against the contract, and that against bad ones."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
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
from yukta_rx.durability.file._journaled import Journaled
from yukta_rx.durability.file.input_requests import FileInputRequestStore
from yukta_rx.durability.memory import input_requests as module
from yukta_rx.durability.memory.input_requests import MemoryInputRequestStore
from yukta_rx.durability.stores.input_requests import RequestState
from yukta_rx.errors import ConflictError

pytestmark = pytest.mark.feature("CTL-05")


class Lost(dict[Any, Any]):
    """Memory that gives no answer."""

    def get(self, *args: Any) -> Any:
        raise OSError("no answer")


class TestMemory(InputRequestContract):
    """In memory."""

    @pytest.fixture
    def store(self) -> MemoryInputRequestStore:
        return MemoryInputRequestStore()

    def lose(self, store: Any) -> None:
        store._requests = Lost()


class TestFile(InputRequestContract):
    """In a file."""

    @pytest.fixture
    async def store(self, tmp_path: Path) -> Any:
        async with FileInputRequestStore(tmp_path) as store:
            journal = store._journal
            yield store
            store._journal = journal

    def lose(self, store: Any) -> None:
        store._journal = Journaled(Path("gone"), "gone", store._state)


# --- the suite itself ----------------------------------------------------------------------------


class ShowsOldForm(MemoryInputRequestStore):
    breaks = "I1"

    async def answer(self, request_id: str, answer: Any) -> Any:
        answered = await super().answer(request_id, answer)
        # Long data is cut on its way in, and the answer shows what was meant.
        if isinstance(answer.data, dict):
            self._put(replace(answered, answer=replace(answer, data={})))
        return answered


class AsksAgain(MemoryInputRequestStore):
    breaks = "I2"

    async def ask(self, request: Any, now: Any, live: Any) -> Any:
        if request.request_id == "r-0007":
            self._by_key.pop(request.key, None)
        return await super().ask(request, now, live)


class TakesEveryAnswer(MemoryInputRequestStore):
    breaks = "I3"

    async def answer(self, request_id: str, answer: Any) -> Any:
        try:
            return await super().answer(request_id, answer)
        except ConflictError:
            found = self._requests[request_id]
            if found.state is not RequestState.ANSWERED:
                raise
            return self._put(replace(found, answer=answer))


class ClosesWhatOthersAsk(MemoryInputRequestStore):
    breaks = "I4"

    async def close(self, request_id: str, execution_id: str, state: Any) -> bool:
        found = self._requests.get(request_id)
        return await super().close(request_id, found.execution_id if found else "", state)


class CountsExpired(MemoryInputRequestStore):
    breaks = "I5"

    async def keep(self, signal: Any, now: Any, limit: int) -> None:
        # As if it were always noon.
        await super().keep(signal, min(now, NOON), limit)


class ListsNewestFirst(MemoryInputRequestStore):
    breaks = "I6"

    async def open_requests(self) -> Any:
        return (await super().open_requests())[::-1]


class ForgetsHalf(MemoryInputRequestStore):
    breaks = "I7"

    async def forget(self, lineage: str) -> None:
        early = self._early.copy()
        await super().forget(lineage)
        self._early = early
        if lineage == "line":
            self._early.setdefault("line", {})


class TakesSilenceForNothing(MemoryInputRequestStore):
    breaks = "I8"

    async def get(self, request_id: str) -> Any:
        try:
            return await super().get(request_id)
        except OSError:
            return None


BROKEN: Any = (
    *(ShowsOldForm, AsksAgain, TakesEveryAnswer, ClosesWhatOthersAsk),
    *(CountsExpired, ListsNewestFirst, ForgetsHalf, TakesSilenceForNothing),
)
RULES = [name for name in dir(InputRequestContract) if name.startswith("test_I")]


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.breaks)
async def test_suite_catches(kind: Any) -> None:
    failed = []
    for name in RULES:
        try:
            await getattr(TestMemory(), name)(kind())
        except (AssertionError, pytest.fail.Exception, Exception):
            failed.append(name.split("_")[1])

    assert failed == [kind.breaks]


def test_every_guarantee_has_a_test_and_a_store_that_breaks_it() -> None:
    rules = sorted(name.split("_")[1] for name in RULES)

    assert rules == sorted(kind.breaks for kind in BROKEN)
    assert len(rules) == 8


# --- memory stays bounded ------------------------------------------------------------------------


async def test_of_a_lineage_only_so_many_closed_requests_are_kept(monkeypatch) -> None:
    monkeypatch.setattr(module, "KEPT", 3)
    store = MemoryInputRequestStore()
    for number in range(6):
        await store.ask(request(number), NOON, LIVE)
        await store.answer(f"r-{number:04}", answer(str(number)))
    await store.ask(request(9), NOON, LIVE)

    kept = [number for number in range(10) if await store.get(f"r-{number:04}") is not None]

    assert kept == [3, 4, 5, 9]
    assert (await store.ask(request(8, message_id="m-0"), NOON, LIVE)).request_id == "r-0008"
    assert (await store.ask(request(7, message_id="m-4"), NOON, LIVE)).answer == answer("4")


async def test_nothing_is_left_of_what_is_forgotten() -> None:
    store = MemoryInputRequestStore()
    for number in range(20):
        await store.ask(request(number), NOON, LIVE)
        await store.keep(early(str(number), signal="other"), NOON, 100)
        if number % 3 == 0:
            await store.answer(f"r-{number:04}", answer())
        if number % 3 == 1:
            await store.close(f"r-{number:04}", "run-1", RequestState.CANCELLED)

    await store.forget("line")

    assert not any(vars(store).values())


async def test_the_error_of_a_full_node_says_when_there_is_room_again() -> None:
    store = MemoryInputRequestStore()
    await store.keep(early("x", lasts=90), NOON, 1)

    with pytest.raises(Exception, match="keeps 1 signals") as caught:
        await store.keep(early("y"), NOON + timedelta(seconds=30), 1)

    assert caught.value.retry_after == 60
