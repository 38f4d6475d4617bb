"""Whatever the order of publishing, reading, leaving and coming back, no fact is lost untold."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yukta_rx.model.codec import loads_external
from yukta_rx.model.sse_parser import SseParser
from yukta_rx.observe.filters import EventFilter
from yukta_rx.testing.clock import run_virtual

RUNS = ("r0", "r1")

CLIENTS = st.integers(0, 1)
ACTIONS = st.one_of(
    st.tuples(st.just("publish"), st.integers(0, 1), st.integers(1, 6)),
    st.tuples(st.just("read"), CLIENTS, st.integers(1, 5)),
    st.tuples(st.just("come"), CLIENTS, st.just(0)),
    # Who leaves has read something as a rule, and misses something.
    st.tuples(st.just("read and leave"), CLIENTS, st.integers(1, 5)),
    st.tuples(st.just("leave"), CLIENTS, st.just(0)),
    st.tuples(st.just("sample"), st.integers(0, 1), st.integers(1, 3)),
    st.tuples(st.just("wait"), st.just(0), st.integers(1, 700)),
)


@dataclass
class Client:
    """A client that remembers the last id, as a browser does, and checks what it is told."""

    wanted: EventFilter
    capacity: int
    stream: Any = None
    last_id: str | None = None
    # Everything up to here is accounted for: seen, told as missing, or before it came.
    place: int = 0
    seen: list[int] = field(default_factory=list)
    lost: int = 0
    greeted: bool = True
    must_reset: bool = False

    def come(self, feed: Any) -> None:
        if self.stream is None:
            after = self.last_id
            self.stream = feed.subscribe(self.wanted, after=after, capacity=self.capacity)
            self.greeted = False
            if after is None:
                self.place = feed.head_seq
            else:
                self.must_reset = int(after.partition(":")[2]) + 1 < feed.oldest_seq

    def leave(self) -> None:
        if self.stream is not None:
            self.stream.close()
            self.stream = None

    def check(self, frame: Any, data: Any, published: dict[int, str]) -> None:
        """Take a frame in; `published` has the run of every fact by its number."""
        assert self.greeted == (frame.type != "stream.hello"), "hello comes first and once"
        self.greeted = True
        assert not self.must_reset or frame.type in ("stream.hello", "stream.reset")
        if frame.id is not None:
            self.last_id = frame.id
        match frame.type:
            case "stream.reset":
                assert self.must_reset, "one reset, and only where the place is not known"
                self.must_reset = False
                self.place = int(frame.id.partition(":")[2])
            case "stream.gap":
                missing = self.between(data["from"], data["to"], published)
                assert missing[0] == data["from"] == self.following(published)
                assert missing[-1] == data["to"]
                assert len(missing) == data["dropped"]
                self.place = data["to"]
                self.lost += len(missing)
            case "node.status" | "execution.finished":
                seq = int(data["id"].partition(":")[2])
                assert seq == self.following(published), "the next one that is wanted"
                assert data["data"].get("seq", seq) == seq
                self.place = seq
                self.seen.append(seq)

    def fits(self, run: str) -> bool:
        return not self.wanted.execution_ids or run in self.wanted.execution_ids

    def between(self, first: int, last: int, published: dict[int, str]) -> list[int]:
        return [seq for seq in range(first, last + 1) if self.fits(published[seq])]

    def following(self, published: dict[int, str]) -> int | None:
        after = range(self.place + 1, len(published) + 1)
        return next((seq for seq in after if self.fits(published[seq])), None)


@pytest.mark.feature("OBS-01")
@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    actions=st.lists(ACTIONS, min_size=10, max_size=60),
    ring=st.integers(1, 20),
    capacities=st.tuples(st.integers(1, 8), st.integers(1, 8)),
    wanted=st.tuples(st.sets(st.sampled_from(RUNS)), st.sets(st.sampled_from(RUNS))),
)
def test_case_27_each_fact_comes_once_in_order_or_its_loss_is_told(
    new_scene, now, data, actions, ring, capacities, wanted
) -> None:
    async def play() -> None:
        async with new_scene(streaming__replay_events=ring) as scene:
            feed = scene.feed
            published: dict[int, str] = {}
            clients = [
                Client(EventFilter(execution_ids=frozenset(runs)), capacity)
                for runs, capacity in zip(wanted, capacities, strict=True)
            ]
            for action, which, amount in actions:
                match action:
                    case "publish":
                        for _ in range(amount):
                            seq = feed.head_seq + 1
                            published[seq] = RUNS[which]
                            feed.publish(scene.event("node.status", "n", RUNS[which], seq=seq))
                    case "sample":
                        feed.publish(scene.event("node.stats", f"n{amount}", RUNS[which]))
                    case "wait":
                        await asyncio.sleep(amount / 1000)
                    case "come":
                        clients[which].come(feed)
                    case "leave":
                        clients[which].leave()
                    case "read" | "read and leave" if clients[which].stream is not None:
                        await take(clients[which], amount, published)
                        if action != "read":
                            clients[which].leave()
            for client in clients:
                client.come(feed)
                for frame in await now(client.stream):
                    client.check(frame, data(frame), published)
                assert client.following(published) is None, "nothing is left untold"
                assert client.seen == sorted(set(client.seen)), "no fact twice"
                client.leave()
            assert feed.cap.open == 0

    async def take(client: Client, limit: int, published: dict[int, str]) -> None:
        try:
            async with asyncio.timeout(1e-6):
                frames = await client.stream.frames(limit)
        except TimeoutError:
            return
        assert len(frames) <= limit
        for frame in frames:
            client.check(frame, data(frame), published)

    run_virtual(play())


@pytest.mark.feature("OBS-01")
@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(rounds=st.lists(st.integers(0, 64), max_size=30), extra=st.integers(0, 100))
def test_who_keeps_up_never_loses_a_fact(new_scene, now, numbers, rounds, extra) -> None:
    async def play() -> None:
        async with new_scene(streaming__replay_events=128) as scene:
            seen: list[int] = []
            number = 0
            scene.publish(*range(-extra, 0))
            with scene.feed.subscribe(capacity=64) as stream:
                for amount in rounds:
                    scene.publish(*range(number, number + amount))
                    number += amount
                    seen += numbers(await now(stream))

            assert seen == list(range(number))

    run_virtual(play())


# -- streams that are written to without a task

STREAMS = 5
STREAM = st.integers(0, STREAMS - 1)
STREAM_ACTIONS = st.one_of(
    st.tuples(st.just("publish"), st.integers(0, 1), st.integers(1, 12)),
    st.tuples(st.just("turn"), st.just(0), st.integers(1, 3)),
    st.tuples(st.just("stall"), STREAM, st.just(0)),
    st.tuples(st.just("go on"), STREAM, st.just(0)),
    st.tuples(st.just("come"), STREAM, st.just(0)),
    st.tuples(st.just("leave"), STREAM, st.just(0)),
    st.tuples(st.just("sample"), st.integers(0, 1), st.integers(1, 3)),
    st.tuples(st.just("finish"), st.integers(0, 1), st.just(0)),
    st.tuples(st.just("wait"), st.just(0), st.integers(1, 6000)),
)


def packed(frames: Any) -> bytes:
    return b"".join([frame.sse() for frame in frames])


class Socket:
    """Where a stream's bytes go; while it stalls, one write more is taken and no other."""

    pack = staticmethod(packed)

    def __init__(self, capacity: int, wanted: EventFilter, heartbeat: bool) -> None:
        self.client = Client(wanted, capacity)
        self.heartbeat = heartbeat
        self.going = asyncio.Event()
        self.going.set()
        self.task: asyncio.Task[None] | None = None
        self.unread = b""
        self.parser = SseParser()
        self.shared = 0
        self.samples: dict[tuple[str, str], int] = {}

    def take(self, data: bytes) -> bool:
        if not self.going.is_set():
            return False
        self.unread += data
        self.shared += 1
        return True

    def come(self, feed: Any) -> None:
        client = self.client
        if self.task is not None:
            return
        after = client.last_id
        client.stream = feed.subscribe(
            client.wanted, after=after, capacity=client.capacity, heartbeat=self.heartbeat
        )
        client.greeted = False
        client.must_reset = False
        if after is None:
            client.place = feed.head_seq
        else:
            client.must_reset = int(after.partition(":")[2]) + 1 < feed.oldest_seq
        self.parser = SseParser(client.last_id or "")
        client.stream.connect(self)
        self.task = asyncio.create_task(self.serve())

    async def serve(self) -> None:
        with self.client.stream as stream:
            while frames := await stream.frames():
                self.unread += packed(frames)
                await self.going.wait()

    async def leave(self, published: dict[int, str]) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
            self.client.stream.close()  # the task may not have begun
            self.task = None
            self.read(published)

    def read(self, published: dict[int, str]) -> None:
        events, self.unread = self.parser.feed(self.unread), b""
        for event in events:
            shown = loads_external(event.data.encode())
            self.client.check(event, shown, published)
            if event.type == "node.stats":
                key, n = (shown["executionId"], shown["nodeId"]), shown["data"]["n"]
                assert n >= self.samples.get(key, 0), "samples never go back"
                self.samples[key] = n


@pytest.mark.feature("OBS-01")
@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    actions=st.lists(STREAM_ACTIONS, min_size=10, max_size=80),
    ring=st.sampled_from((2, 20, 200)),
    capacities=st.lists(st.sampled_from((1, 8, 256)), min_size=STREAMS, max_size=STREAMS),
    wanted=st.lists(st.sampled_from([(), (), ("r0",)]), min_size=STREAMS, max_size=STREAMS),
    beats=st.lists(st.booleans(), min_size=STREAMS, max_size=STREAMS),
)
def test_streams_that_share_writes_get_each_fact_once_in_order_or_are_told(
    new_scene, actions, ring, capacities, wanted, beats
) -> None:
    async def play() -> None:
        async with new_scene(streaming__replay_events=ring) as scene:
            feed = scene.feed
            published: dict[int, str] = {}
            sockets = [
                Socket(capacity, EventFilter(execution_ids=frozenset(runs)), beat)
                for capacity, runs, beat in zip(capacities, wanted, beats, strict=True)
            ]

            taken = 0

            def sample(node: str, run: str) -> None:
                nonlocal taken
                taken += 1
                feed.publish(scene.event("node.stats", node, run, n=taken))

            def publish(kind: str, run: str) -> None:
                seq = feed.head_seq + 1
                published[seq] = run
                feed.publish(scene.event(kind, None, run, seq=seq))

            for action, which, amount in actions:
                match action:
                    case "publish":
                        for _ in range(amount):
                            publish("node.status", RUNS[which])
                    case "finish":
                        publish("execution.finished", RUNS[which])
                    case "sample":
                        sample(f"n{amount}", RUNS[which])
                    case "turn":
                        for _ in range(amount):
                            await asyncio.sleep(0)
                    case "wait":
                        await asyncio.sleep(amount / 1000)
                    case "stall":
                        sockets[which].going.clear()
                    case "go on":
                        sockets[which].going.set()
                    case "come":
                        sockets[which].come(feed)
                    case "leave":
                        await sockets[which].leave(published)
            for socket in sockets:
                socket.going.set()
                socket.come(feed)
            await asyncio.sleep(10)
            for run in RUNS:
                sample("n1", run)
            await asyncio.sleep(1)
            for socket in sockets:
                socket.read(published)
                assert socket.samples["r0", "n1"] == taken - 1, "the newest has come"
                assert socket.samples.get(("r1", "n1"), taken) == taken
                client = socket.client
                assert client.following(published) is None, "nothing is left untold"
                assert client.stream.position == feed.last_id
                assert client.seen == sorted(set(client.seen)), "no fact twice"
                await socket.leave(published)
            assert feed.cap.open == 0
            assert not feed.listening
            assert not feed._circles
            assert not feed._alone

    run_virtual(play())


@pytest.mark.feature("OBS-01")
def test_streams_that_keep_up_are_written_to_once_per_turn_and_without_their_tasks(
    new_scene,
) -> None:
    async def play() -> None:
        async with new_scene() as scene:
            feed = scene.feed
            sockets = [Socket(256, EventFilter(), False) for _ in range(10)]
            for socket in sockets:
                socket.come(feed)
            await asyncio.sleep(0.1)
            writes = [socket.unread for socket in sockets]
            assert all(b"stream.hello" in data for data in writes)
            scene.publish(*range(5))
            assert [socket.unread for socket in sockets] == writes
            assert feed._subscriptions
            assert not feed._alone
            await asyncio.sleep(0)
            await asyncio.sleep(0)

            assert {socket.shared for socket in sockets} == {1}
            assert {socket.unread.count(b"event: node.status") for socket in sockets} == {5}
            sockets[0].going.clear()
            scene.publish(5)
            await asyncio.sleep(0)
            assert len(feed._alone) == 1, "who cannot take it goes on alone"
            sockets[0].going.set()
            await asyncio.sleep(0.1)
            assert not feed._alone, "and is back when it has everything"
            assert {socket.unread.count(b"event: node.status") for socket in sockets} == {6}
            for socket in sockets:
                socket.unread = b""
                await socket.leave({})

    run_virtual(play())


def stats_in(socket: Socket) -> list[int]:
    """The `n` of the samples that were written, -1 for the end of a run."""
    events = SseParser().feed(socket.unread)
    kinds = {"node.stats": lambda shown: shown["data"]["n"], "execution.finished": lambda _: -1}
    return [
        kinds[event.type](loads_external(event.data.encode()))
        for event in events
        if event.type in kinds
    ]


@pytest.mark.feature("OBS-01")
def test_samples_are_merged_for_all_who_share_writes_and_come_before_the_end_of_their_run(
    new_scene,
) -> None:
    async def play() -> None:
        async with new_scene() as scene:
            sockets = [Socket(256, EventFilter(), False) for _ in range(3)]
            for socket in sockets:
                socket.come(scene.feed)
            await asyncio.sleep(0.1)
            for n in range(5):
                scene.feed.publish(scene.event("node.stats", "n", n=n))
            await asyncio.sleep(0.1)
            for n in range(5, 8):
                scene.feed.publish(scene.event("node.stats", "n", n=n))
            await asyncio.sleep(0.1)
            assert [stats_in(socket) for socket in sockets] == [[4]] * 3
            scene.feed.publish(scene.event("execution.finished", None))
            await asyncio.sleep(0.6)

            assert [stats_in(socket) for socket in sockets] == [[4, 7, -1]] * 3
            assert [socket.shared for socket in sockets] == [3] * 3
            assert not scene.feed._alone
            for socket in sockets:
                socket.unread = b""
                await socket.leave({})

    run_virtual(play())


@pytest.mark.feature("OBS-01")
def test_a_sample_that_a_stream_kept_for_itself_does_not_come_after_a_newer_one(
    new_scene,
) -> None:
    async def play() -> None:
        async with new_scene() as scene:
            feed = scene.feed
            first, second = (Socket(256, EventFilter(), False) for _ in range(2))
            first.come(feed)
            await asyncio.sleep(0.1)
            feed.publish(scene.event("node.stats", "n", n=1))
            await asyncio.sleep(0.3)
            second.come(feed)
            await asyncio.sleep(0.05)
            # While it is alone for a moment, a sample is due later than that of the others.
            feed.part(second.client.stream)
            feed.publish(scene.event("node.stats", "n", n=2))
            scene.publish(1)
            await asyncio.sleep(0.01)
            assert second.client.stream.has_samples
            assert not feed._alone
            feed.publish(scene.event("node.stats", "n", n=3))
            await asyncio.sleep(2)

            assert stats_in(first) == [1, 3]
            assert stats_in(second) == [1, 3]
            for socket in (first, second):
                socket.unread = b""
                await socket.leave({})

    run_virtual(play())
