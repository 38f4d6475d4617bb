"""The guarantees of `InputRequestStore`, one test each, for every backend."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from yukta_rx.durability.stores.input_requests import (
    Answer,
    EarlySignal,
    InputRequest,
    RequestState,
)
from yukta_rx.errors import ConflictError, NotFoundError, SignalBufferFullError

if TYPE_CHECKING:
    from yukta_rx.durability.stores.input_requests import InputRequestStore

NOON = datetime(2026, 3, 1, 12, 0, 0, 125_000, tzinfo=UTC)
LIVE = ("run-1", "run-2")


def request(number: int = 1, **other: Any) -> InputRequest:
    """A request for message `m-<number>`, asked by a run that goes on."""
    made = InputRequest(
        request_id=f"r-{number:04}",
        session_id="s",
        workflow_id="w",
        execution_id="run-1",
        lineage="line",
        node_id="ask",
        message_id=f"m-{number}",
        signal="go",
        asked_at=NOON + timedelta(seconds=number),
        remaining=60.0,
        prompt="Go?",
        payload_preview='{"n":1}',
    )
    return replace(made, **other)


def answer(decision: str = "approve", data: Any = None, by: str = "ada") -> Answer:
    """What somebody said."""
    return Answer(decision=decision, data=data, answered_by=by, answered_at=NOON)


def early(decision: str, *, lasts: float = 600, **other: Any) -> EarlySignal:
    """A signal that is worth something for so many seconds from noon on."""
    expires_at = NOON + timedelta(seconds=lasts)
    made = EarlySignal(
        lineage="line",
        node_id="ask",
        signal="go",
        answer=answer(decision),
        expires_at=expires_at,
    )
    return replace(made, **other)


class InputRequestContract:
    """Subclass it with a fixture `store`, and say how the backend loses its answer."""

    def lose(self, store: Any) -> None:
        """From here on the backend gives no answer."""
        pytest.skip("this backend cannot lose its answer")

    async def test_I1_every_read_shows_a_write_once_it_has_returned(
        self, store: InputRequestStore
    ) -> None:
        asked = await store.ask(request(1), NOON, LIVE)

        assert asked == request(1)
        assert await store.get("r-0001") == asked
        assert list(await store.open_requests()) == [asked]

        given = answer("yes", {"a": [1, None, "x" * 9000]})
        answered = await store.answer("r-0001", given)

        assert (answered.state, answered.answer) == (RequestState.ANSWERED, given)
        assert await store.get("r-0001") == answered
        assert list(await store.open_requests()) == []
        assert await store.get("r-0002") is None

    async def test_I2_asking_finds_an_answer_or_an_open_request_or_an_early_signal(
        self, store: InputRequestStore
    ) -> None:
        # Answered before: the same answer, also for another run of the lineage.
        await store.ask(request(1), NOON, LIVE)
        await store.answer("r-0001", answer("yes", 1))
        again = await store.ask(request(7, message_id="m-1", execution_id="run-2"), NOON, LIVE)
        assert (again.request_id, again.execution_id) == ("r-0001", "run-2")
        assert again.answer == answer("yes", 1)
        assert await store.get("r-0007") is None

        # Open, asked by a run that is gone: taken over. By one that goes on: left alone.
        first = await store.ask(request(2, execution_id="gone", remaining=5.0), NOON, LIVE)
        other = request(8, message_id="m-2", execution_id="run-2")
        taken = await store.ask(other, NOON, LIVE)
        assert taken == replace(first, execution_id="run-2")
        beside = await store.ask(request(9, message_id="m-2"), NOON, LIVE)
        assert beside.request_id == "r-0009"

        # Came early: the oldest of that name that still counts, and each once.
        await store.keep(early("too old", lasts=-1), NOON - timedelta(hours=1), 100)
        for decision in ("one", "two"):
            await store.keep(early(decision), NOON, 100)
        await store.keep(early("else", signal="stop"), NOON, 100)
        found = [await store.ask(request(n), NOON, LIVE) for n in (3, 4, 5)]
        said = [None if one.answer is None else one.answer.decision for one in found]
        assert said == ["one", "two", None]
        assert found[0].state is RequestState.ANSWERED

        # Expired and cancelled ones answer nothing.
        await store.close("r-0005", "run-1", RequestState.EXPIRED)
        new = await store.ask(request(6, message_id="m-5"), NOON, LIVE)
        assert (new.request_id, new.state) == ("r-0006", RequestState.OPEN)

    async def test_I3_of_several_answers_exactly_one_is_taken(
        self, store: InputRequestStore
    ) -> None:
        await store.ask(request(1), NOON, LIVE)

        tries = [store.answer("r-0001", answer(str(n))) for n in range(5)]
        said = await asyncio.gather(*tries, return_exceptions=True)

        taken = [one for one in said if isinstance(one, InputRequest)]
        refused = [one for one in said if isinstance(one, ConflictError)]
        assert (len(taken), len(refused)) == (1, 4)
        assert {error.code for error in refused} == {"already_answered"}
        assert await store.get("r-0001") == taken[0]
        with pytest.raises(NotFoundError) as caught:
            await store.answer("r-0002", answer())
        assert caught.value.code == "approval_not_found"

    async def test_I4_closing_changes_only_what_is_open_and_ones_own(
        self, store: InputRequestStore
    ) -> None:
        for number in (1, 2):
            await store.ask(request(number), NOON, LIVE)
        await store.answer("r-0001", answer("yes"))

        assert not await store.close("r-0001", "run-1", RequestState.EXPIRED)
        assert not await store.close("r-0002", "run-2", RequestState.CANCELLED)
        assert not await store.close("r-0003", "run-1", RequestState.CANCELLED)
        assert await store.close("r-0002", "run-1", RequestState.EXPIRED)
        assert not await store.close("r-0002", "run-1", RequestState.CANCELLED)

        found = [await store.get(f"r-000{number}") for number in (1, 2)]
        states = [one.state for one in found if one is not None]
        assert states == [RequestState.ANSWERED, RequestState.EXPIRED]
        with pytest.raises(ConflictError):
            await store.answer("r-0002", answer())

    async def test_I5_a_node_keeps_so_many_early_signals_and_no_expired_one(
        self, store: InputRequestStore
    ) -> None:
        for number in range(3):
            await store.keep(early(str(number), lasts=10 * (number + 1)), NOON, 3)

        with pytest.raises(SignalBufferFullError):
            await store.keep(early("one more"), NOON, 3)
        await store.keep(early("elsewhere", node_id="other"), NOON, 3)
        await store.keep(early("else", lineage="other"), NOON, 3)
        later = NOON + timedelta(seconds=15)
        await store.keep(early("fits again"), later, 3)

        found = [await store.ask(request(n), later, LIVE) for n in (1, 2, 3, 4)]
        said = [None if one.answer is None else one.answer.decision for one in found]
        assert said == ["1", "2", "fits again", None]

    async def test_I6_open_requests_are_listed_oldest_first(self, store: InputRequestStore) -> None:
        for number in (1, 2, 3, 4):
            await store.ask(request(number), NOON, LIVE)
        await store.close("r-0002", "run-1", RequestState.CANCELLED)

        assert [one.request_id for one in await store.open_requests()] == [
            "r-0001",
            "r-0003",
            "r-0004",
        ]

    async def test_I7_forgetting_removes_one_lineage_and_nothing_else(
        self, store: InputRequestStore
    ) -> None:
        for number, lineage in ((1, "line"), (2, "line"), (3, "other")):
            await store.ask(request(number, lineage=lineage), NOON, LIVE)
        await store.answer("r-0001", answer())
        await store.answer("r-0003", answer())
        for lineage in ("line", "other"):
            await store.keep(early(lineage, lineage=lineage), NOON, 100)

        await store.forget("line")
        await store.forget("never heard of")

        assert [await store.get(f"r-000{n}") is None for n in (1, 2, 3)] == [True, True, False]
        assert list(await store.open_requests()) == []
        asked = [
            await store.ask(request(n, lineage=lineage, message_id="m-3"), NOON, LIVE)
            for n, lineage in ((4, "line"), (5, "other"))
        ]
        assert [one.state for one in asked] == [RequestState.OPEN, RequestState.ANSWERED]
        kept = await store.ask(request(6, lineage="other"), NOON, LIVE)
        assert kept.answer == answer("other")

    async def test_I8_a_failure_raises(self, store: InputRequestStore) -> None:
        await store.ask(request(1), NOON, LIVE)
        self.lose(store)

        for call in (
            lambda: store.get("r-0001"),
            lambda: store.answer("r-0001", answer()),
            lambda: store.close("r-0001", "run-1", RequestState.EXPIRED),
        ):
            with pytest.raises(Exception, match=r"no answer|is not open"):
                await call()
