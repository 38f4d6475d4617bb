"""What is kept of runs in memory: children go with their parent, and no other run for them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yukta_rx.observe.shelf import Shelf
from yukta_rx.testing.clock import VirtualClock, virtual_time

pytestmark = pytest.mark.feature("OBS-01", "ENG-07")


@dataclass
class Thing:
    name: str
    in_use: bool = False


class World:
    """A shelf, and what went from it."""

    def __init__(self, *, capacity: int = 100, ttl: float = 60, renew: bool = False) -> None:
        self.clock = VirtualClock()
        self.gone: list[str] = []
        self.crowded = 0
        self.shelf: Shelf[Thing] = Shelf(
            self.clock,
            ttl=ttl,
            capacity=capacity,
            gone=lambda thing: self.gone.append(thing.name),
            renew=renew,
        )
        self.shelf.on_crowded = self.count

    def count(self) -> None:
        self.crowded += 1

    def put(self, name: str, parent: str | None = None, *, ended: bool = True) -> Thing:
        thing = Thing(name)
        self.shelf.put(name, thing, parent)
        if ended:
            self.shelf.retire(name)
        return thing

    @property
    def kept(self) -> list[str]:
        return sorted(thing.name for thing in self.shelf.values())


@virtual_time
async def test_however_many_children_there_are_no_other_run_goes_for_them() -> None:
    world = World(capacity=3)
    world.put("other")
    world.put("parent", ended=False)
    for n in range(10):
        world.put(f"c{n}", "parent")

    assert world.kept == ["c7", "c8", "c9", "other", "parent"]
    assert world.crowded == 7


@virtual_time
async def test_children_go_with_their_parent_at_any_depth_and_those_in_use_or_live_later() -> None:
    world = World(capacity=2)
    for name in ("used", "live"):
        world.put(name, "a", ended=name == "used").in_use = name == "used"
    world.put("a1", "a", ended=False)
    world.put("a11", "a1")
    world.shelf.retire("a1")
    world.put("a")
    world.put("b")
    world.put("c")

    assert sorted(world.gone) == ["a", "a1", "a11"]
    assert world.kept == ["b", "c", "live", "used"]
    world.shelf.retire("live")
    await world.clock.advance(60)
    assert world.kept == ["used"]


@virtual_time
async def test_children_make_room_before_others_do() -> None:
    world = World()
    world.put("old")
    world.put("parent")
    world.put("child", "parent")

    assert world.shelf.drop_oldest()
    assert world.kept == ["old", "parent"]
    assert world.shelf.drop_oldest()
    assert world.kept == ["parent"]


@virtual_time
async def test_a_child_goes_after_its_time_whether_its_parent_goes_on_or_not() -> None:
    world = World(renew=True)
    world.put("parent", ended=False)
    world.put("a", "parent")
    await world.clock.advance(30)
    world.put("b", "parent")
    world.put("root")
    await world.clock.advance(29)
    world.shelf.get("a")
    await world.clock.advance(31)

    assert sorted(world.gone) == ["b", "root"]
    await world.clock.advance(28)
    assert sorted(world.gone) == ["b", "root"]
    await world.clock.advance(1)
    assert sorted(world.gone) == ["a", "b", "root"]
    assert world.kept == ["parent"]


STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "retire", "forget", "drop"]), st.integers(0, 11)),
    max_size=60,
)


@given(STEPS, st.integers(1, 4))
@virtual_time
async def test_the_bounds_hold_whatever_comes(steps: list[tuple[str, int]], capacity: int) -> None:
    world = World(capacity=capacity)
    live: set[str] = set()
    known: set[str] = set()
    for step, n in steps:
        # 0 to 3 are roots, the others have one of those, or a child, as their parent.
        name, parent = f"r{n}", None if n < 4 else f"r{n - 4}"
        if step == "put" and name not in known:
            world.put(name, parent, ended=False)
            live.add(name)
        elif step == "retire":
            world.shelf.retire(name)
            live.discard(name)
        elif step == "forget" and name not in live:
            world.shelf.forget(name)
        elif step == "drop":
            world.shelf.drop_oldest()
        known = set(world.kept)
        assert live <= known
        assert len(world.shelf) == len(known)
        for group in ({f"r{n}" for n in range(4)}, {f"r{n}" for n in range(4, 12)}):
            assert len(known & group) <= max(capacity, len(live & group))
