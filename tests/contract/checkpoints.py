"""The guarantees of `NodeCheckpointStore`, one test each, for every backend."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.archive import refused
from yukta_rx.durability.stores.checkpoints import (
    OVER_CAP,
    WRITE_FAILED,
    CheckpointRow,
    NodeCheckpoint,
)
from yukta_rx.errors import StoreUnavailableError
from yukta_rx.model.message import Message, derive_from_many, trigger_message

if TYPE_CHECKING:
    from yukta_rx.durability.stores.checkpoints import NodeCheckpointStore

CAUSE = trigger_message("lineage", "in", 7, {"n": 7})
OTHER = trigger_message("lineage", "in", 8, None)
MESSAGES = (
    (None, trigger_message("lineage", "a", 0, {"n": 1, "big": 2**70})),
    ("side", CAUSE.derive("a", 3, ["x", None, b"\x00\xff"], {"k": "v"})),
    ("error", CAUSE.derive("a", 4, {"text": "é\n\u2028"}).numbered(3)),
    (None, derive_from_many([CAUSE, OTHER], "a", 0, (1, 2))),
    (None, Message.of("own", id="chosen")),
)
FIRST = CheckpointRow.of(MESSAGES[:3], ((CAUSE.id, 2), ("silent", 0)))
SECOND = CheckpointRow.of(MESSAGES[3:], ((OTHER.id, 2),), "a group")


def number(n: int) -> CheckpointRow:
    """A row of one message."""
    return CheckpointRow.of(((None, trigger_message("lineage", "a", n, {"n": n})),))


def shown(rows: list[CheckpointRow]) -> list[Any]:
    """All that has to come back."""
    return [
        (
            [
                (port, m.id, m.payload, dict(m.headers), m.attempt, m.causes)
                for port, m in row.messages
            ],
            list(row.inputs),
            row.group,
        )
        for row in rows
    ]


async def rows_of(store: NodeCheckpointStore, run: str, node: str) -> list[CheckpointRow]:
    """All rows of a node."""
    return [row async for row in store.read(run, node)]


async def mark(
    store: NodeCheckpointStore, run: str, node: str, row: CheckpointRow | None = None
) -> None:
    """Mark a node and wait for it."""
    marked = store.mark_complete(run, node, row)
    if marked is not None:
        await marked


async def numbers_of(store: NodeCheckpointStore, run: str, node: str) -> list[int]:
    """The numbers in the messages of a node."""
    return [msg.payload["n"] for row in await rows_of(store, run, node) for _, msg in row.messages]


async def state_of(store: NodeCheckpointStore, run: str, node: str) -> NodeCheckpoint:
    """What is known of a node."""
    return (await store.states(run)).get(node, NodeCheckpoint())


class CheckpointContract:
    """Subclass it with a fixture `store`, and say how the backend fails."""

    def lose(self, store: Any) -> None:
        """From here on the backend gives no answer."""
        pytest.skip("this backend cannot lose its answer")

    def refuse(self, store: Any) -> None:
        """From here on the backend keeps no row."""
        pytest.skip("this backend keeps every row")

    async def restarted(self, store: Any) -> Any:
        """The store as the next process finds it; itself where nothing outlives the process."""
        assert not store.durable, "say how this backend is opened again"
        return store

    async def crashed(self, store: Any) -> list[Any]:
        """The store as crashes in the middle of its writing leave it; none if it is not durable.

        For files: cut off behind each of their records, and opened.
        """
        assert not store.durable, "say what a crash leaves of this backend"
        return []

    async def test_C1_rows_come_back_as_they_were_in_their_order(
        self, store: NodeCheckpointStore
    ) -> None:
        assert store.append("run", "a", FIRST)
        assert store.append("run", "a", SECOND)
        for n in range(20):
            store.append("run", "b", number(n))
        await mark(store, "run", "a")
        await mark(store, "run", "b")

        assert shown(await rows_of(store, "run", "a")) == shown([FIRST, SECOND])
        assert await numbers_of(store, "run", "b") == list(range(20))

    async def test_C2_a_node_is_complete_with_its_mark_and_its_last_row(
        self, store: NodeCheckpointStore
    ) -> None:
        store.append("run", "a", number(1))
        before = await state_of(store, "run", "a")
        await mark(store, "run", "a", number(2))
        await mark(store, "run", "silent")

        assert not before.complete
        assert (await state_of(store, "run", "a")).complete
        assert await numbers_of(store, "run", "a") == [1, 2]
        assert (await state_of(store, "run", "silent")).complete
        assert await rows_of(store, "run", "silent") == []

    async def test_C3_the_states_of_a_run_are_those_of_its_own_nodes(
        self, store: NodeCheckpointStore
    ) -> None:
        store.append("run", "a", number(1))
        store.append("run", "A", number(2))
        store.append("Run", "other", number(3))
        store.mark_incomplete("run", "lost", OVER_CAP)
        await mark(store, "run", "silent")

        assert set(await store.states("run")) == {"a", "A", "lost", "silent"}
        assert set(await store.states("Run")) == {"other"}
        assert dict(await store.states("none")) == {}

    async def test_C4_what_is_not_kept_whole_is_not_kept_at_all(
        self, store: NodeCheckpointStore
    ) -> None:
        store.append("run", "a", number(1))
        self.refuse(store)
        taken = [store.append("run", "a", number(n)) for n in range(2, 5)]
        await mark(store, "run", "a", number(5))

        state = await state_of(store, "run", "a")
        assert taken == [False, False, False]
        assert not state.complete
        assert state.reason
        assert await rows_of(store, "run", "a") == []

    async def test_C5_a_node_that_was_given_up_is_never_complete(
        self, store: NodeCheckpointStore
    ) -> None:
        store.append("run", "a", number(1))
        store.mark_incomplete("run", "a", "write_failed")
        store.mark_incomplete("run", "fresh", "write_failed")
        for node, row in (("a", number(2)), ("fresh", None)):
            with suppress(StoreUnavailableError):
                await mark(store, "run", node, row)

        for node in ("a", "fresh"):
            state = await state_of(store, "run", node)
            assert (state.complete, state.reason) == (False, "write_failed")
            assert await rows_of(store, "run", node) == []

    async def test_C6_a_complete_node_stays_as_it_was_marked(
        self, store: NodeCheckpointStore
    ) -> None:
        await mark(store, "run", "a", number(1))
        store.append("run", "a", number(2))
        store.mark_incomplete("run", "a", "write_failed")
        await mark(store, "run", "a", number(3))

        assert await state_of(store, "run", "a") == NodeCheckpoint(True, None, 1)
        assert await numbers_of(store, "run", "a") == [1]

    async def test_C7_a_run_is_forgotten_whole_and_no_other(
        self, store: NodeCheckpointStore
    ) -> None:
        for run in ("run", "runs"):
            await mark(store, run, "a", number(1))
            store.append(run, "b", number(2))

        await store.clear("run")
        await store.clear("run")

        assert dict(await store.states("run")) == {}
        assert await rows_of(store, "run", "a") == []
        assert set(await store.states("runs")) == {"a", "b"}
        assert await numbers_of(store, "runs", "a") == [1]

    async def test_C8_no_answer_is_never_an_empty_one(self, store: NodeCheckpointStore) -> None:
        await mark(store, "run", "a", number(1))
        self.lose(store)

        await refused(store.states("run"))
        await refused(rows_of(store, "run", "a"))

    async def test_C9_what_is_written_of_an_unfinished_node_can_be_read(
        self, store: NodeCheckpointStore
    ) -> None:
        store.append("run", "a", number(1))
        store.append("run", "a", CheckpointRow.of((), [("one", 0), ("two", 0)]))
        store.append("run", "b", number(3))
        store.append("run", "lost", number(4))
        store.mark_incomplete("run", "lost", WRITE_FAILED)
        for node in ("a", "b"):
            if (written := store.written("run", node)) is not None:
                await written
        assert store.written("run", "a") is None
        at_once = shown(await rows_of(store, "run", "a"))

        store = await self.restarted(store)
        assert at_once == shown(await rows_of(store, "run", "a"))
        assert at_once == shown([number(1), CheckpointRow.of((), [("one", 0), ("two", 0)])])
        assert await numbers_of(store, "run", "b") == [3]
        assert await state_of(store, "run", "a") == NodeCheckpoint(False, None, 1, 2)
        assert (await state_of(store, "run", "lost")).reason == WRITE_FAILED
        assert await rows_of(store, "run", "lost") == []

    async def test_C10_after_a_crash_nothing_is_missing_in_front_of_what_is_there(
        self, store: NodeCheckpointStore
    ) -> None:
        for n in range(6):
            store.append("run", "ab"[n % 2], number(n))
            if n == 3:
                await mark(store, "run", "c", number(10))
        await mark(store, "run", "a", number(11))
        for node in "ab":
            if (written := store.written("run", node)) is not None:
                await written

        order = [("a", 0), ("b", 1), ("a", 2), ("b", 3), ("c", 10), ("a", 4), ("b", 5), ("a", 11)]
        for left in await self.crashed(store):
            states = await left.states("run")
            count = sum(state.messages for state in states.values())
            there = [node for node, _ in order[:count]]
            assert {name: state.messages for name, state in states.items()} == Counter(there)
            done = {name for name, state in states.items() if state.complete}
            assert done == {node for node, n in order[:count] if n >= 10}

    async def test_C11_a_run_may_begin_with_what_another_has(
        self, store: NodeCheckpointStore
    ) -> None:
        await mark(store, "old", "whole", number(1))
        store.append("old", "part", number(2))
        store.append("old", "left", number(3))
        store.append("old", "lost", number(8))
        store.mark_incomplete("old", "lost", WRITE_FAILED)
        await store.carry_over("old", "new", ("whole", "part", "lost", "silent"))
        store = await self.restarted(store)

        assert dict(await store.states("new")) == {
            "whole": NodeCheckpoint(True, None, 1),
            "part": NodeCheckpoint(False, None, 1),
            "lost": NodeCheckpoint(False, WRITE_FAILED),
        }
        store.append("old", "part", number(4))
        store.append("new", "part", number(5))
        store.append("new", "left", number(6))
        store.append("new", "part", number(7))
        await mark(store, "new", "part")
        assert await numbers_of(store, "new", "whole") == [1]
        assert await numbers_of(store, "new", "part") == [2, 5, 7]
        assert await state_of(store, "new", "left") == NodeCheckpoint(False, None, 1)
        assert await state_of(store, "old", "part") == NodeCheckpoint(False, None, 2)

        await store.clear("old")
        store = await self.restarted(store)
        assert await numbers_of(store, "new", "whole") == [1]
        assert await numbers_of(store, "new", "part") == [2, 5, 7]
        assert (await state_of(store, "new", "part")).complete
        assert dict(await store.states("old")) == {}
