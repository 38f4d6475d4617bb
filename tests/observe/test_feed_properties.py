"""Whatever the order of publishing, reading, leaving and coming back, no fact is lost untold."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
            case "node.status":
                seq = int(data["id"].partition(":")[2])
                assert seq == self.following(published), "the next one that is wanted"
                assert data["data"]["seq"] == seq
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
