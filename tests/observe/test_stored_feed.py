"""The feed with a durable store: numbers go on over lives, places of earlier ones stay places."""

from __future__ import annotations

import asyncio
import copy
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yukta_rx.durability.memory.events import MemoryEventStore
from yukta_rx.errors import BadRequestError, CursorExpiredError, StoreUnavailableError
from yukta_rx.observe.event_ids import parse_id
from yukta_rx.observe.event_log import RECENT, WAITING
from yukta_rx.observe.filters import EventFilter
from yukta_rx.testing.clock import run_virtual, virtual_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from yukta_rx.durability.stores.events import StoredEvent

pytestmark = pytest.mark.feature("OBS-01")

ALL = EventFilter()


class Store(MemoryEventStore):
    """Survives the scenes of a test; slow, or down, when it is told to be."""

    durable = True

    def __init__(self) -> None:
        super().__init__()
        self.down = False
        self.seconds = 0.0

    async def append(self, events: Sequence[StoredEvent]) -> None:
        await asyncio.sleep(self.seconds)
        if self.down:
            raise StoreUnavailableError("events.jsonl: cannot be written: no space left")
        await super().append(events)

    async def read(self, after: int, limit: int = 100) -> Sequence[StoredEvent]:
        if self.down:
            raise StoreUnavailableError("events.jsonl: cannot be read")
        await asyncio.sleep(self.seconds)
        return await super().read(after, limit)


def made(new_scene: Any, store: Store, **options: Any) -> Any:
    scene = new_scene(**options)
    scene.event_store = store
    return scene


def ids(frames: Sequence[Any]) -> list[str]:
    """Ids of the facts."""
    return [frame.id for frame in frames if not frame.type.startswith("stream.")]


def said(frames: Sequence[Any]) -> list[str]:
    """What the stream says of itself, but for hello."""
    return [frame.type for frame in frames if frame.type.startswith("stream.")][1:]


async def until(stream: Any, now: Any) -> list[Any]:
    """All that comes within a minute."""
    frames: list[Any] = []
    for _ in range(60):
        frames += await now(stream)
        await asyncio.sleep(1)
    return frames


@virtual_time
async def test_numbers_go_on_and_an_older_epoch_is_replayed_like_any_other_place(
    new_scene: Any, now: Any, data: Any, numbers: Any
) -> None:
    store = Store()
    async with made(new_scene, store) as scene:
        scene.publish(*range(1, 6))
        first = scene.feed.epoch
    await asyncio.sleep(1)
    async with made(new_scene, store) as scene:
        second = scene.feed.epoch
        scene.publish(*range(6, 9))
        with scene.feed.subscribe(after=f"{first}:2") as stream:
            scene.publish(9)
            frames = await now(stream)

        assert first != second
        assert numbers(frames) == [3, 4, 5, 6, 7, 8, 9]
        assert ids(frames) == [
            *(f"{first}:{n}" for n in (3, 4, 5)),
            *(f"{second}:{n}" for n in (6, 7, 8, 9)),
        ]
        hello = data(frames[0])
        assert (hello["epoch"], hello["headSeq"], hello["oldestSeq"]) == (second, 8, 1)
        assert frames[0].id == f"{first}:2"
        assert scene.feed.head_seq == 9


@virtual_time
async def test_what_memory_has_let_go_comes_from_the_store(
    new_scene: Any, now: Any, numbers: Any
) -> None:
    store = Store()
    async with made(new_scene, store, streaming__replay_events=10) as scene:
        epoch = scene.feed.epoch
        scene.publish(*range(1, 1001))
        with scene.feed.subscribe(after=f"{epoch}:3") as stream:
            first = await stream.frames(5)
            scene.publish(*range(1001, 1006))
            frames = first + await now(stream)
            scene.publish(1006)
            frames += await now(stream)
            scene.publish(1007)
            frames += await now(stream)
        only = EventFilter.parse(execution_id=["other"])
        scene.publish(1, run="other")
        scene.publish(*range(2000, 2050))
        with scene.feed.subscribe(only, after=f"{epoch}:3") as stream:
            few = await now(stream)

        assert numbers(frames) == list(range(4, 1008))
        assert said(frames) == []
        assert len(first) == 1
        assert numbers(few) == [1]


@virtual_time
async def test_a_place_that_a_crash_took_back_is_told_once(new_scene: Any, now: Any) -> None:
    store = Store()
    async with made(new_scene, store) as scene:
        epoch = scene.feed.epoch
        scene.publish(1, 2, 3)
        await scene.feed.log.written()
        survivor = copy.deepcopy(store)
        # Told to clients, and not written when the process is killed.
        scene.publish(4, 5)
        assert scene.feed.last_id == f"{epoch}:5"
    await asyncio.sleep(1)
    async with made(new_scene, survivor) as scene:
        again = scene.feed.epoch
        scene.publish(6, 7, 8)
        for place, known in ((3, True), (4, False), (5, False), (3, True)):
            with scene.feed.subscribe(after=f"{epoch}:{place}") as stream:
                frames = await now(stream)
            if known:
                assert (said(frames), ids(frames)) == ([], [f"{again}:{n}" for n in (4, 5, 6)])
                continue
            reset = frames[1]
            assert said(frames) == ["stream.reset"]
            assert b'"epoch"' in reset.data
            assert ids(frames) == []
            # The hello moves nothing, so who leaves between the two is told again.
            assert (frames[0].id, reset.id) == (None, f"{again}:6")
            with scene.feed.subscribe(after=reset.id) as stream:
                assert said(await now(stream)) == []


@virtual_time
async def test_a_life_in_which_nothing_happened_keeps_its_places(new_scene: Any, now: Any) -> None:
    store, places = Store(), []
    for life in range(4):
        async with made(new_scene, store) as scene:
            places += [f"{scene.feed.epoch}:{scene.feed.head_seq}", scene.feed.last_id]
            if life == 1:
                scene.publish(1)
        await asyncio.sleep(1)
    async with made(new_scene, store) as scene:
        for place in places:
            with scene.feed.subscribe(after=place) as stream:
                assert said(await now(stream)) == []


@virtual_time
async def test_what_retention_took_is_evicted_and_only_that(new_scene: Any, now: Any) -> None:
    store = Store()
    options = {"streaming__stored_events": 100, "streaming__replay_events": 20}
    async with made(new_scene, store, **options) as scene:
        epoch = scene.feed.epoch
        for number in range(1, 401):
            scene.publish(number)
            await scene.feed.log.written()
        oldest = scene.feed.oldest_seq
        with scene.feed.subscribe(after=f"{epoch}:{oldest - 2}") as stream:
            gone = await now(stream)
        with scene.feed.subscribe(after=f"{epoch}:{oldest - 1}") as stream:
            kept = await now(stream)

        assert 275 <= oldest <= 301
        assert (said(gone), ids(gone)) == (["stream.reset"], [])
        assert b"evicted" in gone[1].data
        assert ids(kept) == [f"{epoch}:{seq}" for seq in range(oldest, 401)]


@virtual_time
async def test_what_goes_while_somebody_reads_it_is_told_as_a_gap(
    new_scene: Any, now: Any, data: Any, numbers: Any
) -> None:
    store = Store()
    options = {"streaming__stored_events": 1000, "streaming__replay_events": 20}
    async with made(new_scene, store, **options) as scene:
        epoch = scene.feed.epoch
        scene.publish(*range(1, 901))
        await scene.feed.log.written()
        with scene.feed.subscribe(after=f"{epoch}:10") as stream:
            first = await stream.frames(10) + await stream.frames(10)
            for number in range(901, 1501):
                scene.publish(number)
                await scene.feed.log.written()
            oldest = scene.feed.oldest_seq
            rest = await now(stream)

        assert numbers(first) == list(range(11, 21))
        assert oldest > 200
        [gap] = [frame for frame in rest if frame.type == "stream.gap"]
        assert data(gap) == {
            "from": 21,
            "to": oldest - 1,
            "dropped": oldest - 21,
            "reason": "retention",
        }
        assert gap.id == f"{epoch}:{oldest - 1}"
        assert rest[0] is gap
        assert numbers(rest) == list(range(oldest, 1501))


@virtual_time
async def test_events_that_are_too_old_go(new_scene: Any) -> None:
    store = Store()
    options = {
        "streaming__stored_events": 10,
        "streaming__stored_for": "1h",
        "streaming__replay_events": 5,
    }
    async with made(new_scene, store, **options) as scene:
        scene.publish(1, 2)
        await scene.clock.sleep(7200)
        scene.publish(*range(3, 20))
        await scene.feed.log.written()
        assert scene.feed.oldest_seq == 10
        assert await store.trim(10) == 10


@virtual_time
async def test_a_stream_whose_store_is_down_ends_and_can_be_resumed(
    new_scene: Any, now: Any
) -> None:
    store = Store()
    async with made(new_scene, store, streaming__replay_events=5) as scene:
        epoch = scene.feed.epoch
        scene.publish(*range(1, 21))
        await scene.feed.log.written()
        store.down = True
        with scene.feed.subscribe(after=f"{epoch}:1") as stream:
            frames = await now(stream)
            assert stream.closed
        with pytest.raises(StoreUnavailableError):
            await scene.feed.page(ALL, f"{epoch}:1", 5)
        store.down = False
        with scene.feed.subscribe(after=frames[0].id) as stream:
            again = await now(stream)

        assert said(frames) == ["stream.closing"]
        assert b"store_unavailable" in frames[-1].data
        assert ids(again) == [f"{epoch}:{seq}" for seq in range(2, 21)]


@virtual_time
async def test_the_end_of_the_feed_ends_who_reads_the_past(new_scene: Any) -> None:
    store = Store()
    async with made(new_scene, store, streaming__replay_events=5) as scene:
        scene.publish(*range(1, 1001))
        await scene.feed.log.written()
        store.seconds = 5
        with scene.feed.subscribe(after=f"{scene.feed.epoch}:1") as stream:
            first = await stream.frames(3)
            scene.feed.close("shutdown")
            rest = []
            while frames := await stream.frames(300):
                rest += frames

        assert [frame.type for frame in first] == ["stream.hello"]
        assert rest[-1].type == "stream.closing"
        assert sum(frame.type == "stream.closing" for frame in rest) == 1


@virtual_time
async def test_who_leaves_while_the_store_is_asked_loses_nothing(
    new_scene: Any, numbers: Any
) -> None:
    store = Store()
    async with made(new_scene, store, streaming__replay_events=5) as scene:
        scene.publish(*range(1, 601))
        await scene.feed.log.written()
        store.seconds = 5
        frames: list[Any] = []
        with scene.feed.subscribe(after=f"{scene.feed.epoch}:1") as stream:
            for patience in (1, 1, 6, 2, 6, 2, 6, 6):
                try:
                    async with asyncio.timeout(patience):
                        frames += await stream.frames(300)
                except TimeoutError:
                    pass
        assert numbers(frames) == list(range(2, 601))


@virtual_time
async def test_pages_go_on_from_the_store_into_memory(new_scene: Any) -> None:
    store = Store()
    async with made(new_scene, store, streaming__replay_events=7) as scene:
        scene.publish(*range(1, 21), run="a")
        scene.publish(*range(21, 41), run="b")
        found, cursor = [], None
        while True:
            page = await scene.feed.page(ALL, cursor, 6)
            assert page.gap is None
            found += [item["data"]["n"] for item in page.items]
            if not page.items:
                break
            cursor = page.next_cursor
        wanted = EventFilter.parse(execution_id=["a"])
        some = await scene.feed.page(wanted, None, 100)

        assert found == list(range(1, 41))
        assert [item["data"]["n"] for item in some.items] == list(range(1, 21))
        assert some.next_cursor == scene.feed.last_id
        with pytest.raises(BadRequestError):
            await scene.feed.page(ALL, "7", 5)
        with pytest.raises(CursorExpiredError):
            await scene.feed.page(ALL, "other:7", 5)


@virtual_time
async def test_a_write_that_fails_is_tried_again_and_nobody_notices(
    new_scene: Any, now: Any, numbers: Any
) -> None:
    store = Store()
    async with made(new_scene, store, streaming__replay_events=5) as scene:
        store.down = True
        with scene.feed.subscribe() as stream:
            scene.publish(*range(1, 11))
            frames = await now(stream)
            assert "no space left" in str(scene.feed.log.fault())
        await asyncio.sleep(1)
        store.down = False
        await asyncio.sleep(5)
        assert scene.feed.log.fault() is None
        assert numbers(frames) == list(range(6, 11))
    assert [seq for seq, _ in await store.read(0, 100)] == list(range(1, 11))


@virtual_time
async def test_what_cannot_be_written_exactly_is_stored_as_it_was_shown(
    new_scene: Any, now: Any
) -> None:
    store = Store()
    async with made(new_scene, store) as scene:
        with scene.feed.subscribe() as stream:
            scene.feed.publish(scene.event("node.status", "n", odd=object(), n=2**70, raw=b"x"))
            _, live = await now(stream)
    await asyncio.sleep(1)
    async with made(new_scene, store) as scene:
        with scene.feed.subscribe(after="x:0") as stream:
            assert said(await now(stream)) == ["stream.reset"]
        epoch = parse_id(live.id).epoch
        with scene.feed.subscribe(after=f"{epoch}:0") as stream:
            _, again = await now(stream)

    assert (again.id, again.data) == (live.id, live.data)


@virtual_time
async def test_a_long_past_is_not_read_at_the_start(new_scene: Any, now: Any) -> None:
    store = Store()
    async with made(new_scene, store) as scene:
        scene.publish(*range(1, RECENT + 501))
        first = scene.feed.epoch
    await asyncio.sleep(1)
    async with made(new_scene, store) as scene:
        assert (scene.feed.oldest_held, scene.feed.oldest_seq) == (501, 1)
        with scene.feed.subscribe(after=f"{first}:10") as stream:
            frames = await now(stream)
        assert ids(frames) == [f"{first}:{seq}" for seq in range(11, RECENT + 501)]


@virtual_time
async def test_runs_are_held_back_while_too_much_waits_for_the_store(new_scene: Any) -> None:
    store = Store()
    store.seconds = 1.0
    async with made(new_scene, store) as scene:
        run = scene.run({"t": "API_TRIGGER", "n": "PASS", "o": "NULL_TERMINAL"}, "t > n > o")
        held: list[bool] = []
        run._hold = SimpleNamespace(set=held.append)
        scene.tracker.track(run)
        scene.emit("execution.started", run=run.execution_id, definitionVersion="v")
        most = 0
        for number in range(200):
            scene.emit(
                "node.message_failed", "n", run.execution_id, text="x" * (WAITING // 50), n=number
            )
            if number % 10 == 0:
                await scene.tracker.drained()
            most = max(most, scene.feed.log._behind.weight)
        await scene.tracker.drained()
        while scene.feed.log._behind.waiting:
            await asyncio.sleep(1)

        assert most > WAITING
        assert held == [True, False]
    assert (await store.span()).newest == scene.feed.head_seq


# -- any order of things


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("publish"), st.integers(1, 12)),
            st.tuples(st.just("written"), st.none()),
            st.tuples(st.just("restart"), st.booleans()),
            st.tuples(st.just("connect"), st.integers(0, 2)),
            st.tuples(st.just("leave"), st.integers(0, 2)),
            st.tuples(st.just("read"), st.integers(0, 2)),
        ),
        max_size=40,
    ),
    st.sampled_from([3, 8, 1000]),
    st.sampled_from([5, 30, 1000]),
)
def test_every_client_gets_each_fact_once_in_order_or_is_told(
    new_scene: Any, now: Any, numbers: Any, steps: list[Any], ring: int, stored: int
) -> None:
    """Whatever happens: clients that come and go, restarts and crashes, small rings and stores.

    Each event carries a number of its own, so one that comes twice, out of order, or is missing
    without a word is seen whatever its id is.
    """

    async def check() -> None:
        store = Store()
        options = {"streaming__replay_events": ring, "streaming__stored_events": stored}
        scene = await made(new_scene, store, **options).__aenter__()
        # Place and last number that each client has; None is a client that has never been here.
        places: list[str | None] = [None] * 3
        last = [0] * 3
        streams: list[Any] = [None] * 3
        facts: dict[str, int] = {}
        count = 0

        def leave(who: int) -> None:
            if streams[who] is not None:
                streams[who].close()
                streams[who] = None

        async def read(who: int) -> None:
            if streams[who] is None:
                return
            for frame in await now(streams[who]):
                if frame.type in ("stream.reset", "stream.gap"):
                    # It knows that something is missing.
                    last[who] = -1
                elif frame.type == "node.status":
                    [number] = numbers([frame])
                    assert facts.setdefault(frame.id, number) == number
                    assert last[who] < 0 or number == last[who] + 1
                    assert number > 0
                    last[who] = number
                places[who] = frame.id or places[who]

        for kind, what in steps:
            if kind == "publish":
                scene.publish(*range(count + 1, count + what + 1))
                count += what
            elif kind == "written":
                await scene.feed.log.written()
            elif kind == "restart":
                survivor = copy.deepcopy(store)
                for who in range(3):
                    leave(who)
                await scene.__aexit__()
                if what:
                    # A crash: what was not written is gone, and so are these events for all.
                    store = survivor
                    kept = await store.read(0, 10_000)
                    lost = count - (kept[-1].event.data["n"] if kept else 0)
                    if lost:
                        # Those who have seen none of them see a row without them.
                        renumber = dict.fromkeys(range(count - lost + 1, count + 1))
                        facts = {id: n for id, n in facts.items() if n not in renumber}
                        taken_back = [n > count - lost for n in last]
                        count -= lost
                        for who, gone in enumerate(taken_back):
                            if gone:
                                # It must be told; see `must`.
                                last[who] = -2
                await asyncio.sleep(1)
                scene = await made(new_scene, store, **options).__aenter__()
            elif kind == "connect" and streams[what] is None:
                place = places[what]
                streams[what] = scene.feed.subscribe(after=place)
                if place is None:
                    last[what] = count
                must = last[what] == -2
                before = last[what]
                first = (await streams[what].frames(2)) if place is not None else []
                told = [frame for frame in first if frame.type == "stream.reset"]
                if must:
                    assert told
                for frame in first:
                    if frame.type == "stream.reset":
                        last[what] = -1
                    elif frame.type == "node.status":
                        [number] = numbers([frame])
                        assert before < 0 or number == before + 1
                        last[what] = number
                    places[what] = frame.id or places[what]
            elif kind == "leave":
                await read(what)
                leave(what)
            elif kind == "read":
                await read(what)
        for who in range(3):
            await read(who)
            if streams[who] is not None and last[who] >= 0:
                assert last[who] == count
            leave(who)
        await scene.__aexit__()

    run_virtual(check())
