"""Inbox: order, bounds, what is told of losses, samples, streams that go on or cannot."""

from __future__ import annotations

import json
from typing import Any

import pytest

from yukta_rx.app import Engine
from yukta_rx.config.settings import Settings
from yukta_rx.control import seat as seats
from yukta_rx.control.commands import PauseWorkflow
from yukta_rx.control.inbox import Inbox
from yukta_rx.control.seat import Floor, Seat
from yukta_rx.control.supervision import Proposal, event_of
from yukta_rx.errors import EngineError, RateLimitedError
from yukta_rx.metrics import Meters
from yukta_rx.model.events import ExecutionEvent
from yukta_rx.observe.feed import Entry, EventFeed
from yukta_rx.observe.filters import EventFilter
from yukta_rx.testing.clock import VirtualClock, virtual_time

pytestmark = pytest.mark.feature("CTL-07")


class World:
    """A feed, an inbox of three places, and what it lost."""

    def __init__(self, *, framed: bool = False, replay: int = 10) -> None:
        settings = Settings(streaming={"replay_events": replay})
        self.clock = VirtualClock()
        self.feed = EventFeed(self.clock, settings, Meters(), epoch="e")
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
