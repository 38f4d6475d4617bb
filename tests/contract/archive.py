"""The guarantees of `ExecutionArchiveStore`, one test each, for every backend."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.definitions import document
from yukta_rx.definitions.parse import parse_definition
from yukta_rx.durability.stores.archive import ArchivedRun
from yukta_rx.model.status import TaskStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from yukta_rx.durability.stores.archive import ExecutionArchiveStore


def run(execution_id: str, payload: Any = None, lineage: str = "lineage of it") -> ArchivedRun:
    """A run that has ended."""
    return ArchivedRun(
        execution_id=execution_id,
        session_id="s",
        definition=parse_definition(document("w", {"n": 1})),
        lineage=lineage,
        base_dir=Path("/flows"),
        payload={"n": 2**70, "yukta.priority": 3} if payload is None else payload,
        options={"onTerminalFailure": "FINISH_OTHERS"},
        labels={"team": "a"},
        status=TaskStatus.FAILURE,
        nodes={"in": TaskStatus.SUCCESS, "out": TaskStatus.TIMED_OUT},
        ended_at=datetime(2026, 3, 1, 12, 0, 0, 125_000, tzinfo=UTC),
    )


async def refused(asked: Awaitable[Any]) -> None:
    """Fail unless the question raises; each backend has an error of its own."""
    try:
        answer = await asked
    except Exception:
        return
    raise AssertionError(f"answered {answer!r}")


class ArchiveContract:
    """Subclass it with a fixture `store`, and say how the backend loses its answer."""

    def lose(self, store: Any) -> None:
        """From here on the backend gives no answer."""
        pytest.skip("this backend cannot lose its answer")

    async def test_A1_a_run_is_there_with_all_its_members_once_it_was_put(
        self, store: ExecutionArchiveStore
    ) -> None:
        await store.put(run("a"), 10)

        found = await store.get("a")
        assert found is not None
        assert found == run("a")
        assert (found.status, found.nodes["out"]) == (TaskStatus.FAILURE, TaskStatus.TIMED_OUT)
        assert found.definition.version == run("a").definition.version
        assert await store.get("b") is None
        assert "a" in await store.ids()

    async def test_A2_only_the_newest_stay_and_the_others_are_named(
        self, store: ExecutionArchiveStore
    ) -> None:
        gone = [list(await store.put(run(name), 2)) for name in ("c", "a", "d", "b")]
        fewer = await store.put(run("e"), 1)
        none = await store.put(run("f"), 0)

        assert gone == [[], [], ["c"], ["a"]]
        assert list(fewer) == ["d", "b"]
        assert set(none) == {"e", "f"}
        for name in "abcdef":
            assert await store.get(name) is None

    async def test_A3_a_run_that_is_put_again_is_the_newest(
        self, store: ExecutionArchiveStore
    ) -> None:
        for name in ("a", "b"):
            await store.put(run(name), 2)
        await store.put(run("a", "again"), 2)
        gone = await store.put(run("c"), 2)

        found = await store.get("a")
        assert list(gone) == ["b"]
        assert found is not None
        assert found.payload == "again"

    async def test_A4_the_ids_are_in_order_the_oldest_first(
        self, store: ExecutionArchiveStore
    ) -> None:
        for name in ("c", "a", "b"):
            await store.put(run(name), 10)

        assert list(await store.ids()) == ["c", "a", "b"]

    async def test_A5_a_run_is_forgotten_and_no_other(self, store: ExecutionArchiveStore) -> None:
        for name in ("a", "A"):
            await store.put(run(name), 10)
        await store.remove("a")
        await store.remove("a")

        assert await store.get("a") is None
        assert await store.get("A") == run("A")
        assert list(await store.ids()) == ["A"]

    async def test_A6_no_answer_is_never_an_empty_one(self, store: ExecutionArchiveStore) -> None:
        await store.put(run("a"), 10)
        self.lose(store)

        for ask in (
            lambda: store.get("a"),
            store.ids,
            lambda: store.put(run("b"), 10),
            lambda: store.remove("a"),
        ):
            await refused(ask())
