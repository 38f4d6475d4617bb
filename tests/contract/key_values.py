"""The guarantees of `KeyValueStore`, one test each, for every backend."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.durability.stores.effects import EffectKey
from yukta_rx.durability.stores.key_values import LARGEST, SMALLEST, Value
from yukta_rx.errors import BadInputError, KeyValueFullError, UnserialisablePayloadError

if TYPE_CHECKING:
    from yukta_rx.durability.stores.key_values import KeyValueStore

MANY = 100
VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2**70, 1.0, -0.0, 1e300, "", "a\0b", "ä€😀"),
    *([], {}, [1, 1.0, "1", None, True], {"b": {"a": []}, "": 0}, "x" * 9000, b"\x00\xff"),
]


def effect(name: str, lineage: str = "line") -> EffectKey:
    """Something that is done for message `m` of node `n`."""
    return EffectKey(lineage, "n", "m", name)


async def value(store: KeyValueStore, key: str, session_id: str = "s") -> Any:
    """What stands under a key, `...` if nothing does."""
    found = await store.get(session_id, key)
    return ... if found is None else found.value


class KeyValueContract:
    """Subclass it with a fixture `store`, and say how the backend loses its answer."""

    in_memory = False
    """Whether reads go on when the backend is lost, because all of it is in memory."""

    def lose(self, store: Any) -> None:
        """From here on the backend gives no answer."""
        pytest.skip("this backend cannot lose its answer")

    async def test_K1_every_value_comes_back_as_it_was(self, store: KeyValueStore) -> None:
        for number, one in enumerate(VALUES):
            await store.put("s", str(number), one, cap=MANY)
        await store.put("s", "0", "changed", cap=MANY)
        assert await store.remove("s", "1") == Value(True)

        found = [await value(store, str(number)) for number in range(len(VALUES))]

        assert list(map(repr, found)) == list(map(repr, ["changed", ..., *VALUES[2:]]))
        with pytest.raises(UnserialisablePayloadError):
            await store.put("s", "2", {"a": [object()]}, cap=MANY)
        assert await value(store, "2") is False
        assert store.kept == len(VALUES) - 1

    async def test_the_number_of_keys_is_right_when_many_change_at_once(
        self, store: KeyValueStore
    ) -> None:
        names = [(f"s{n % 2}", f"k{n}") for n in range(10)]
        await asyncio.gather(*(store.put(*name, 1, cap=MANY) for name in names))
        assert store.kept == 10
        await asyncio.gather(*(store.remove(*name) for name in names[:4]))
        assert store.kept == 6
        await asyncio.gather(store.clear("s0"), store.clear("s1"))
        assert store.kept == 0

    async def test_K2_no_increment_is_lost(self, store: KeyValueStore) -> None:
        sums = await asyncio.gather(*(store.incr("s", "n", 1, cap=MANY) for _ in range(50)))

        assert sorted(sums) == list(range(1, 51))
        assert await store.incr("s", "n", -100, cap=MANY) == -50
        assert await value(store, "n") == -50
        assert await store.incr("s", "zero", 0, cap=MANY) == 0
        assert await value(store, "zero") == 0

    async def test_K3_only_whole_numbers_are_counted(self, store: KeyValueStore) -> None:
        held = {"text": "1", "float": 1.0, "truth": True, "null": None, "most": LARGEST}
        held["least"] = SMALLEST
        for key, one in held.items():
            await store.put("s", key, one, cap=MANY)

        for key in held:
            with pytest.raises(BadInputError, match=key):
                await store.incr("s", key, -1 if key == "least" else 1, cap=MANY)
        with pytest.raises(BadInputError, match="64 bits"):
            await store.incr("s", "new", 2**63, cap=MANY)

        assert {key: await value(store, key) for key in held} == held
        assert await value(store, "new") is ...
        assert await store.incr("s", "most", -1, cap=MANY) == LARGEST - 1

    async def test_K4_a_session_never_has_more_keys_than_it_may(self, store: KeyValueStore) -> None:
        puts = [store.put("s", f"k{number}", number, cap=5) for number in range(16)]
        counts = [store.incr("s", f"n{number}", 1, cap=5) for number in range(16)]
        said = await asyncio.gather(*puts, *counts, return_exceptions=True)

        refused = [one for one in said if isinstance(one, KeyValueFullError)]
        keys = [f"k{number}" for number in range(16)] + [f"n{number}" for number in range(16)]
        there = [key for key in keys if await value(store, key) is not ...]
        assert (len(refused), len(there)) == (27, 5)

        await store.put("s", there[0], "changed", cap=5)
        assert await value(store, there[0]) == "changed"
        await store.remove("s", there[0])
        await store.put("s", "new", 1, cap=5)
        with pytest.raises(KeyValueFullError, match="newer"):
            await store.put("s", "newer", 1, cap=5)
        await store.put("other", "newer", 1, cap=5)

    async def test_K5_sessions_know_nothing_of_each_other(self, store: KeyValueStore) -> None:
        for session_id, one in (("s", 1), ("t", 2), ("s.k", 3)):
            await store.put(session_id, "k", one, cap=MANY)
        await store.incr("t", "k", 10, cap=MANY)
        await store.remove("s.k", "k")

        assert await value(store, "k", "s") == 1
        assert await value(store, "k", "t") == 12
        assert await value(store, "k", "s.k") is ...

    async def test_K6_an_effect_that_is_known_changes_nothing(self, store: KeyValueStore) -> None:
        put, count, gone = effect("put"), effect("count"), effect("gone")
        none = effect("none")
        await store.put("s", "p", 1, cap=MANY, effect=put)
        assert await store.incr("s", "n", 5, cap=MANY, effect=count) == 5
        await store.put("s", "g", [1], cap=MANY)
        assert await store.remove("s", "g", effect=gone) == Value([1])
        assert await store.remove("s", "never", effect=none) is None
        # Then others change all of it.
        for key in ("p", "n", "g", "never"):
            await store.put("s", key, 100, cap=MANY)

        await store.put("s", "p", 1, cap=MANY, effect=put)
        assert await store.incr("s", "n", 5, cap=MANY, effect=count) == 5
        assert await store.remove("s", "g", effect=gone) == Value([1])
        assert await store.remove("s", "never", effect=none) is None

        assert [await value(store, key) for key in ("p", "n", "g", "never")] == [100] * 4
        same = [store.incr("s", "m", 1, cap=MANY, effect=effect("same")) for _ in range(5)]
        assert await asyncio.gather(*same) == [1] * 5

    async def test_K7_forgetting_and_clearing_take_what_they_are_for(
        self, store: KeyValueStore
    ) -> None:
        for lineage in ("line", "line2"):
            for session_id in ("s", "t"):
                name = effect(session_id, lineage)
                await store.incr(session_id, "n", 1, cap=MANY, effect=name)

        await store.forget("line")
        await store.forget("never was")
        assert [await value(store, "n", name) for name in "st"] == [2, 2]
        assert await store.incr("s", "n", 1, cap=MANY, effect=effect("s")) == 3
        assert await store.incr("s", "n", 1, cap=MANY, effect=effect("s", "line2")) == 2

        await store.clear("s")
        await store.clear("never was")
        assert await value(store, "n", "s") is ...
        assert await value(store, "n", "t") == 2
        assert await store.incr("s", "n", 1, cap=MANY, effect=effect("s")) == 3

    async def test_K2_an_increment_comes_before_all_values_go_or_after(
        self, store: KeyValueStore
    ) -> None:
        for order in (1, -1):
            await store.put("s", "n", 5, cap=1)
            calls: list[Any] = [store.clear("s"), store.incr("s", "n", 1, cap=1)][::order]
            said = await asyncio.gather(*calls)

            assert (said[::order][1], await value(store, "n")) in ((6, ...), (1, 1))

    async def test_K8_no_answer_is_never_an_empty_one(self, store: KeyValueStore) -> None:
        await store.put("s", "k", 1, cap=MANY)
        self.lose(store)
        if not self.in_memory:
            with pytest.raises(Exception):  # noqa: B017, PT011  (each backend has its own)
                await store.get("s", "k")

        for change in (
            lambda: store.put("s", "k", 2, cap=MANY),
            lambda: store.put("s", "new", 2, cap=MANY),
            lambda: store.incr("s", "k", 1, cap=MANY),
            lambda: store.incr("s", "k", 1, cap=MANY, effect=effect("a")),
            lambda: store.remove("s", "k"),
            lambda: store.clear("s"),
        ):
            with pytest.raises(Exception):  # noqa: B017, PT011  (each backend has its own)
                await change()
        if self.in_memory:
            assert (await value(store, "k"), await value(store, "new")) == (1, ...)
