"""The guarantees of `EffectStore`, one test each, for every backend."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.durability.stores.effects import EffectKey

if TYPE_CHECKING:
    from yukta_rx.durability.stores.effects import EffectStore


def effect(name: str = "charge", **other: str) -> EffectKey:
    """An effect of message `m` of node `n` in the lineage `line`."""
    return EffectKey("line", "n", "m", name)._replace(**other)


class EffectContract:
    """Subclass it with a fixture `store`, and say how the backend loses its answer."""

    in_memory = False
    """Whether reads go on when the backend is lost, because all of it is in memory."""

    def lose(self, store: Any) -> None:
        """From here on the backend gives no answer."""
        pytest.skip("this backend cannot lose its answer")

    async def test_E1_what_was_recorded_is_found_byte_for_byte(self, store: EffectStore) -> None:
        results = [b"null", b'{"a": 1.0,"b":[ ]}', '"ä "'.encode(), b'"' + b"x" * 100_000 + b'"']
        for number, result in enumerate(results):
            assert await store.find(effect(str(number))) is None
            assert await store.record(effect(str(number)), result) == result

        found = [await store.find(effect(str(number))) for number in range(len(results))]
        assert found == results
        assert store.kept == len(results)

    async def test_E2_of_all_records_of_one_key_one_stands(self, store: EffectStore) -> None:
        assert await store.record(effect(), b"1") == b"1"
        assert await store.record(effect(), b"2") == b"1"

        said = await asyncio.gather(
            *(store.record(effect("many"), b"%d" % number) for number in range(5))
        )

        assert len(set(said)) == 1
        assert await store.find(effect("many")) == said[0]
        assert await store.find(effect()) == b"1"

    async def test_E3_keys_that_differ_in_any_part_are_two(self, store: EffectStore) -> None:
        keys = [
            effect(),
            effect(lineage="line2"),
            effect(node_id="n2"),
            effect(message_id="m2"),
            effect("charge2"),
            EffectKey("line", "n", "m\0a", "b"),
            EffectKey("line", "n", "m", "a\0b"),
            EffectKey("line", "n\0m", "a", "b"),
        ]
        for number, key in enumerate(keys):
            await store.record(key, b"%d" % number)

        found = [await store.find(key) for key in keys]
        assert found == [b"%d" % number for number in range(len(keys))]

    async def test_E4_forgetting_takes_one_lineage_and_all_of_it(self, store: EffectStore) -> None:
        own = [effect(name, node_id=node) for name in "ab" for node in "xy"]
        for key in own:
            await store.record(key, b"1")
            await store.record(key._replace(lineage="line2"), b"2")

        await store.forget("line")
        await store.forget("never was")

        assert [await store.find(key) for key in own] == [None] * 4
        assert [await store.find(key._replace(lineage="line2")) for key in own] == [b"2"] * 4
        assert store.kept == 4
        assert await store.record(own[0], b"3") == b"3"

    async def test_E5_no_answer_is_never_not_done(self, store: EffectStore) -> None:
        await store.record(effect(), b"1")
        self.lose(store)
        reads = [(store.find, effect(), b"1"), (store.find, effect("new"), None)]
        for ask, about, known in reads:
            if self.in_memory:
                assert await ask(about) == known
            else:
                with pytest.raises(Exception):  # noqa: B017, PT011  (each has its own)
                    await ask(about)

        for change in (
            lambda: store.record(effect("new"), b"1"),
            lambda: store.forget("line"),
        ):
            with pytest.raises(Exception):  # noqa: B017, PT011  (each backend has its own)
                await change()
        if self.in_memory:
            assert [await store.find(effect(name)) for name in ("charge", "new")] == [b"1", None]
