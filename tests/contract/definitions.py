"""The guarantees of `WorkflowDefinitionStore`, one test each, for every backend."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.definitions.parse import parse_definition
from yukta_rx.durability.stores.definitions import RETAINED_VERSIONS, WorkflowRecord

if TYPE_CHECKING:
    from yukta_rx.durability.stores.definitions import WorkflowDefinitionStore

NOON = datetime(2026, 3, 1, 12, 0, 0, 125_000, tzinfo=UTC)
BIG = 2**64 + 1


def document(workflow_id: str, config: Any = None) -> dict[str, Any]:
    """A workflow of two nodes, the first with this configuration."""
    return {
        "workflowId": workflow_id,
        "nodes": [
            {"nodeId": "in", "type": "API_TRIGGER", "config": config or {}},
            {"nodeId": "out", "type": "NULL_TERMINAL"},
        ],
        "edges": [{"source": "in", "target": "out"}],
    }


def record(workflow_id: str, number: Any = "", session_id: str = "s") -> WorkflowRecord:
    """A workflow whose content differs with `number`."""
    return WorkflowRecord(
        session_id=session_id,
        definition=parse_definition(document(workflow_id, {"n": number})),
        created_at=NOON,
        updated_at=NOON,
        actor=f"ada {number}",
    )


def number_of(found: WorkflowRecord | None) -> Any:
    """What made the content of a record differ."""
    return None if found is None else found.definition.nodes[0].plugin_config["n"]


class DefinitionContract:
    """Subclass it with a fixture `store`, and say how the backend loses its answer."""

    def lose(self, store: Any) -> None:
        """From here on the backend gives no answer."""
        pytest.skip("this backend cannot lose its answer")

    async def test_D1_every_read_shows_a_write_once_it_has_returned(
        self, store: WorkflowDefinitionStore
    ) -> None:
        for number in (1, 2):
            [written] = await store.write("s", [record("w", number)])

            assert await store.get("s", "w") == written
            assert list(await store.list("s")) == [written]
            assert (await store.versions("s", "w"))[0] == written
            assert await store.version("s", "w", written.version) == written
            assert number_of(written) == number
        await store.write("s", [], ["w"])
        assert await store.get("s", "w") is None

    async def test_D2_a_write_is_all_or_nothing(self, store: WorkflowDefinitionStore) -> None:
        await store.write("s", [record("old", 1), record("gone", 1)])

        wrong: Any = [record("new", 1), record("old", 2), None]
        with pytest.raises(Exception):  # noqa: B017, PT011  (each backend has its own)
            await store.write("s", wrong, ["gone"])

        ids = {item.workflow_id for item in await store.list("s")}
        assert ids == {"old", "gone"}
        assert len(await store.versions("s", "old")) == 1

    async def test_D3_lists_are_in_order(self, store: WorkflowDefinitionStore) -> None:
        await store.write("s", [record(name, 1) for name in ("c", "a", "B", "a.b", "a-b")])
        for number in (2, 3):
            await store.write("s", [record("a", number)])

        names = [item.workflow_id for item in await store.list("s")]
        assert names == sorted(["c", "a", "B", "a.b", "a-b"])
        numbers = [number_of(item) for item in await store.versions("s", "a")]
        assert numbers == [3, 2, 1]

    async def test_D4_no_answer_is_never_an_empty_one(self, store: WorkflowDefinitionStore) -> None:
        await store.write("s", [record("w", 1)])
        self.lose(store)

        for ask in (
            lambda: store.get("s", "w"),
            lambda: store.list("s"),
            lambda: store.versions("s", "w"),
            lambda: store.version("s", "w", 1),
            lambda: store.write("s", [record("w", 2)]),
            lambda: store.annotate("s", "w", 1, "x"),
        ):
            with pytest.raises(Exception):  # noqa: B017, PT011  (each backend has its own)
                await ask()

    async def test_D5_numbers_only_grow_also_over_a_removal(
        self, store: WorkflowDefinitionStore
    ) -> None:
        batches = await asyncio.gather(
            *(store.write("s", [record("w", number), record(f"x{number}", 1)]) for number in "abc")
        )
        numbers = sorted(batch[0].version for batch in batches)
        await store.write("s", [], ["w"])
        [again] = await store.write("s", [record("w", "d")])
        [both] = await store.write("s", [record("w", "e")], ["w"])
        [other] = await store.write("s", [record("fresh", 1)])

        assert len(set(numbers)) == 3
        assert numbers[0] >= 1
        assert numbers[-1] < again.version < both.version
        assert other.version >= 1

    async def test_D6_the_newest_stay_and_those_with_a_note(
        self, store: WorkflowDefinitionStore
    ) -> None:
        made = []
        for number in range(RETAINED_VERSIONS):
            made += await store.write("s", [record("w", number)])
        await store.annotate("s", "w", made[1].version, "good")
        for number in range(100, 105):
            made += await store.write("s", [record("w", number)])

        kept = [item.version for item in await store.versions("s", "w")]
        newest = [item.version for item in made[-RETAINED_VERSIONS:]]
        assert kept == [*reversed(newest), made[1].version]
        assert await store.version("s", "w", made[0].version) is None
        await store.annotate("s", "w", made[1].version, None)
        assert len(await store.versions("s", "w")) == RETAINED_VERSIONS

    async def test_D7_the_same_again_adds_no_version(self, store: WorkflowDefinitionStore) -> None:
        [first] = await store.write("s", [record("w", "x")])
        again = await store.write("s", [record("w", "x"), record("other", 1)])

        assert again[0] == first
        assert len(await store.versions("s", "w")) == 1

    async def test_D8_a_note_changes_its_version_and_nothing_else(
        self, store: WorkflowDefinitionStore
    ) -> None:
        first, *_ = await store.write("s", [record("w", "x")])
        second, *_ = await store.write("s", [record("w", "y"), record("other", 1)])

        noted = await store.annotate("s", "w", first.version, "grüße")
        assert noted is not None
        assert noted.note == "grüße"
        kept = [(item.version, item.note) for item in await store.versions("s", "w")]
        assert kept == [(second.version, None), (first.version, "grüße")]
        assert [item.actor for item in await store.versions("s", "w")] == ["ada y", "ada x"]
        emptied = await store.annotate("s", "w", first.version, "")
        assert emptied is not None
        assert emptied.note is None
        assert await store.annotate("s", "w", 10_000, "x") is None
        assert await store.annotate("s", "nowhere", 1, "x") is None

    async def test_D9_a_removed_workflow_leaves_nothing(
        self, store: WorkflowDefinitionStore
    ) -> None:
        first, _ = await store.write("s", [record("w", "x"), record("other", 1)])
        await store.write("s", [record("w", "y")])
        await store.write("s", [], ["w", "never-there"])

        assert list(await store.versions("s", "w")) == []
        assert await store.version("s", "w", first.version) is None
        assert [item.workflow_id for item in await store.list("s")] == ["other"]

    async def test_D10_content_comes_back_to_the_digit(
        self, store: WorkflowDefinitionStore
    ) -> None:
        values = [1, 1.0, BIG, -0.0, 0, "\u2028 \u00e9 \u0000", [2, 1], {"b": 1, "a": None}]
        for value in values:
            put = record("w", value)
            await store.write("s", [put])
            found = await store.get("s", "w")

            assert found is not None
            assert found.definition_version == put.definition_version, value
            assert found.document == put.document
        assert len(await store.versions("s", "w")) == len(values)
