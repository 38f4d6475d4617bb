"""Inbox: order, bounds, what is told of losses, samples, streams that go on or cannot."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.app import Engine
from yukta_rx.config.settings import Settings
from yukta_rx.control import seat as seats
from yukta_rx.control.commands import PauseWorkflow
from yukta_rx.control.inbox import Inbox
from yukta_rx.control.seat import Floor, Seat
from yukta_rx.control.supervision import Proposal, event_of
from yukta_rx.durability.memory.events import MemoryEventStore
from yukta_rx.errors import EngineError, RateLimitedError, StoreUnavailableError
from yukta_rx.metrics import Meters
from yukta_rx.model.events import ExecutionEvent
from yukta_rx.observe.event_log import EventLog
from yukta_rx.observe.feed import Entry, EventFeed
from yukta_rx.observe.filters import EventFilter
from yukta_rx.testing.clock import VirtualClock, virtual_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.feature("CTL-07")


class World:
    """A feed, an inbox of three places, and what it lost."""

    def __init__(
        self, *, framed: bool = False, replay: int = 10, log: EventLog | None = None
    ) -> None:
        settings = Settings(streaming={"replay_events": replay})
        self.clock = VirtualClock()
        self.feed = EventFeed(self.clock, settings, Meters(), epoch="e", log=log)
        self.lost: list[tuple[str | None, int]] = []
        self.inbox = Inbox(
            self.feed,
            EventFilter(),
            lambda event: event.type != "node.retry",
            lambda event, count: self.lost.append((event and event.type, count)),
            framed=framed,
            capacity=3,
        )

    def event(self, kind: str = "node.log", node: str = "n", run: str = "r") -> ExecutionEvent:
        return ExecutionEvent(
            type=kind,
            time=self.clock.wall(),
            session_id="s",
            workflow_id="w",
            execution_id=run,
            node_id=node,
        )

    def publish(self, *nodes: str, kind: str = "node.log") -> None:
        for node in nodes:
            self.feed.publish(self.event(kind, node))

    def offer(self, *nodes: str, kind: str = "node.log") -> None:
        """Publish, and hand to the inbox as the host does."""
        for node in nodes:
            self.publish(node, kind=kind)
            seq = self.feed.head_seq
            entry = self.feed.entry(seq)
            assert entry is not None
            self.inbox.offer(seq, entry)

    def sample(self, node: str, run: str = "r") -> None:
        self.inbox.offer(None, Entry(self.event("node.stats", node, run), None))

    async def nodes(self) -> list[str | None]:
        return [entry.event.node_id for entry in await self.inbox.take()]

    async def frames(self) -> list[tuple[str, Any]]:
        return [(frame.type, json.loads(frame.data)) for frame in await self.inbox.frames()]


@virtual_time
async def test_facts_come_in_order_each_once_and_what_is_not_wanted_not_at_all() -> None:
    world = World()
    world.offer("a", "b")
    world.offer("no", kind="node.retry")
    entry = world.feed.entry(1)
    assert entry is not None
    world.inbox.offer(1, entry)

    assert await world.nodes() == ["a", "b"]
    assert world.inbox.last == 2


@virtual_time
async def test_the_oldest_go_when_too_many_wait_and_it_is_told() -> None:
    world = World()
    world.offer("a", "b", "c", "d", "e")

    assert world.lost == [("node.log", 1), ("node.log", 1)]
    assert await world.nodes() == ["c", "d", "e"]


@virtual_time
async def test_what_tells_of_losses_pushes_nothing_out() -> None:
    world = World()
    world.offer("a", "b", "c")
    world.offer("x", kind="supervisor.dropped")

    assert world.lost == [("supervisor.dropped", 1)]
    assert await world.nodes() == ["a", "b", "c"]


@virtual_time
async def test_what_was_missed_before_it_began_does_not_count_as_waiting() -> None:
    world = World()
    world.publish("a", "b", "c", "d", "e")
    world.inbox.resume(1)
    world.offer("f", "g", "h")

    assert await world.nodes() == ["b", "c", "d", "e", "f", "g", "h"]
    world.offer("i", "j", "k", "l")
    assert world.lost == [("node.log", 1)]


@virtual_time
async def test_what_is_no_longer_kept_when_it_goes_on_is_lost() -> None:
    world = World(replay=2)
    world.publish("a", "b", "c", "d", "e")
    world.inbox.resume(1)

    assert world.lost == [(None, 2)]
    assert await world.nodes() == ["d", "e"]


@virtual_time
async def test_of_samples_the_newest_of_each_key_comes_after_the_facts_and_before_the_end() -> None:
    world = World()
    for node in ("x", "y", "x"):
        world.sample(node)
    world.sample("other", run="q")
    world.offer("a")
    world.offer("end", kind="execution.finished")

    assert await world.nodes() == ["a", "x", "y", "end", "other"]
    world.sample("x")
    world.offer("end", kind="execution.finished")
    assert [entry.event.node_id for entry in await world.inbox.take(1)] == ["x"]
    assert await world.nodes() == ["end"]


@virtual_time
async def test_samples_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yukta_rx.control.inbox.MAX_SAMPLES", 2)
    world = World()
    for node in ("x", "y", "z"):
        world.sample(node)

    assert world.lost == [("node.stats", 1)]
    assert await world.nodes() == ["y", "z"]


@virtual_time
async def test_a_stream_says_hello_its_losses_and_its_end() -> None:
    world = World(framed=True)
    world.publish("a", "b")
    world.inbox.begin("e:1")
    world.offer("c", "d", "e", "f")
    first = await world.frames()
    world.inbox.skipped(7, 9, 3)
    second = await world.frames()
    world.inbox.finish("shutdown")
    last = await world.frames()

    kinds = [kind for kind, _ in first]
    assert kinds == ["stream.hello", "stream.gap", "node.log", "node.log", "node.log", "node.log"]
    assert first[1][1] == {"from": 2, "to": 2, "dropped": 1, "reason": "slow-consumer"}
    assert second == [("stream.gap", {"from": 7, "to": 9, "dropped": 3, "reason": "slow-consumer"})]
    assert last == [("stream.closing", {"reason": "shutdown"})]
    assert await world.frames() == []


@pytest.mark.parametrize(
    ("after", "reason"), [("e:1", "evicted"), ("e:9", "epoch"), ("x", "epoch")]
)
@virtual_time
async def test_a_stream_that_cannot_go_on_says_so(after, reason) -> None:
    world = World(framed=True, replay=2)
    world.publish("a", "b", "c", "d")
    world.inbox.begin(after)
    world.offer("e")

    (hello, _), (reset, data), (event, _) = await world.frames()

    assert (hello, reset, event) == ("stream.hello", "stream.reset", "node.log")
    assert data == {"reason": reason, "oldestSeq": 3}


# --- what only a store still has -----------------------------------------------------------------


class Unreadable(MemoryEventStore):
    """A store that gives no answer to reads, from some moment on."""

    silent = False

    async def read(self, after: int, limit: int = 100) -> Any:
        if self.silent:
            raise StoreUnavailableError("no answer")
        return await super().read(after, limit)


@asynccontextmanager
async def stored(
    store: MemoryEventStore, framed: bool = False, replay: int = 3
) -> AsyncIterator[World]:
    """A world whose feed goes on where an earlier one with the same store ended."""
    settings = Settings(streaming={"replay_events": replay})
    async with EventLog(store, VirtualClock(), settings, Meters()) as log:
        yield World(framed=framed, replay=replay, log=log)
        await log.written()


async def nodes_of(inbox: Inbox, count: int) -> list[str | None]:
    """So many events, in batches of two."""
    found: list[str | None] = []
    while len(found) < count:
        found += [entry.event.node_id for entry in await inbox.take(2)]
    return found


@virtual_time
async def test_one_that_goes_on_reads_the_store_then_memory_and_then_takes_part() -> None:
    async with stored(MemoryEventStore()) as world:
        world.publish(*"abcdefgh")
        world.publish("own", kind="node.retry")
        world.inbox.resume(2)
        first = await nodes_of(world.inbox, 2)
        world.offer("i", "j")
        world.inbox.tell(Entry(world.event(node="outcome"), None))
        rest = await nodes_of(world.inbox, 7)
        world.offer("k")
        last = await nodes_of(world.inbox, 1)

        # What became of a command has no place among the events.
        assert sorted(map(str, rest)) == sorted([*"efghij", "outcome"])
        assert [*first, *(node for node in rest if node != "outcome"), *last] == [*"cdefghijk"]
        assert (world.inbox.last, world.lost) == (world.feed.head_seq, [])


@virtual_time
async def test_a_stream_goes_on_behind_an_event_of_an_earlier_server() -> None:
    store = MemoryEventStore()
    async with stored(store) as world:
        world.publish(*"abcdef")
        id = world.feed.id_of(2)
    async with stored(store, framed=True) as world:
        world.publish("g")
        world.inbox.begin(id)
        seen: list[Any] = []
        while len(seen) < 6:
            seen += [
                (frame.type, frame.id, json.loads(frame.data))
                for frame in await world.inbox.frames()
            ]

        assert [kind for kind, _, _ in seen] == ["stream.hello", *["node.log"] * 5]
        assert [data["nodeId"] for _, _, data in seen[1:]] == [*"cdefg"]
        assert [id for _, id, _ in seen[1:]] == [world.feed.id_of(seq) for seq in range(3, 8)]
        assert world.lost == []


@virtual_time
async def test_what_the_store_has_let_go_meanwhile_is_lost_and_told() -> None:
    store = MemoryEventStore()
    async with stored(store, framed=True) as world:
        world.publish(*"abcdefgh")
        await world.feed.log.written()  # type: ignore[union-attr]
        world.inbox.begin(world.feed.id_of(1))
        [hello] = await world.inbox.frames()
        await store.trim(5, None)
        [gap, *others] = await world.frames()

        assert hello.type == "stream.hello"
        assert gap == ("stream.gap", {"from": 2, "to": 3, "dropped": 2, "reason": "retention"})
        assert [data["nodeId"] for _, data in others] == [*"defgh"]
        assert world.lost == [(None, 2)]


@virtual_time
async def test_a_store_that_gives_no_answer_ends_a_stream_and_costs_others_what_it_has() -> None:
    for framed in (True, False):
        store = Unreadable()
        async with stored(store, framed=framed) as world:
            world.publish(*"abcdef")
            await world.feed.log.written()  # type: ignore[union-attr]
            store.silent = True
            if framed:
                world.inbox.begin(world.feed.id_of(1))
                seen = [*await world.frames(), *await world.frames()]
                assert [kind for kind, _ in seen] == ["stream.hello", "stream.closing"]
                assert seen[1][1] == {"reason": "store_unavailable"}
                assert await world.inbox.take() == []
            else:
                world.inbox.resume(1)
                assert await nodes_of(world.inbox, 3) == [*"def"]
                assert world.lost == [(None, 2)]
            store.silent = False


@virtual_time
async def test_an_inbox_that_ends_while_it_reads_the_past_ends() -> None:
    async with stored(MemoryEventStore(), framed=True) as world:
        world.publish(*"abcdef")
        world.inbox.begin(world.feed.id_of(1))
        await world.inbox.frames()
        world.inbox.finish("shutdown")

        assert await world.frames() == [("stream.closing", {"reason": "shutdown"})]
        assert await world.inbox.take() == []


@virtual_time
async def test_an_inbox_that_ends_gives_what_waits_and_then_nothing() -> None:
    world = World()
    world.offer("a")
    world.inbox.finish("shutdown")

    assert await world.nodes() == ["a"]
    assert await world.nodes() == []


# --- the seat ------------------------------------------------------------------------------------


@virtual_time
async def test_only_so_many_commands_are_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seats, "MAX_IN_FLIGHT", 2)
    async with Engine() as engine:
        one = Seat(Floor(*floor(engine)), "one")
        commands = [PauseWorkflow(execution_id=f"r{n}") for n in range(3)]
        first, second, third = (one.admit(command) for command in commands)
        await one.carry_out(Proposal(commands[0]))
        again = one.admit(commands[2])

    assert (first, second, again) == (None, None, None)
    assert isinstance(third, RateLimitedError)
    assert third.detail == "supervisor one has 2 commands under way"


@virtual_time
async def test_a_defect_is_an_outcome_and_not_the_supervisors_problem(caplog) -> None:
    class Defect:
        async def command(self, command, **who):
            raise RuntimeError("internals")

    async with Engine() as engine:
        settings, clock, feed, _, emit, meters = floor(engine)
        one = Seat(Floor(settings, clock, feed, Defect(), emit, meters), "one")
        inbox = one.open(EventFilter())
        one.admit(PauseWorkflow(execution_id="r"))
        result = await one.carry_out(Proposal(PauseWorkflow(execution_id="r"), command_id="c"))
        [entry] = await inbox.take()

    assert isinstance(result, EngineError)
    assert "internals" not in json.dumps(entry.event.data)
    assert (entry.event.data["commandId"], entry.event.data["outcome"]) == ("c", "REJECTED")
    assert "internals" in caplog.text


def floor(engine: Engine) -> tuple[Any, ...]:
    clock = engine.supervisors.clock
    return engine.settings, clock, engine.feed, engine.gateway, engine._emit, engine.meters


# --- events from outside -------------------------------------------------------------------------


@virtual_time
async def test_an_event_survives_its_json_form() -> None:
    event = World().event()

    assert event_of(event.as_dict()) == event


@pytest.mark.parametrize("form", [{}, {"type": "x"}, {"type": "x", "time": 3}, {"time": "now"}])
def test_what_is_no_event_is_refused(form) -> None:
    with pytest.raises(ValueError, match=r"no event|Invalid isoformat"):
        event_of(form)
