"""The guarantees of `NodeCheckpointStore`, one test each, for every backend."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.archive import refused
from yukta_rx.durability.stores.checkpoints import OVER_CAP, CheckpointRow, NodeCheckpoint
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
SECOND = CheckpointRow.of(MESSAGES[3:])


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
