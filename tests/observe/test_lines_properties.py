"""Whatever is written in whatever order: lines are kept fairly, and what is missing is told."""

from __future__ import annotations

import re
from collections import Counter, deque
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yukta_rx.model.events import ExecutionEvent
from yukta_rx.model.times import utc_now
from yukta_rx.observe.line_quota import Dropped, LineQuota
from yukta_rx.observe.sparse_ring import SparseRing
from yukta_rx.testing.clock import run_virtual

pytestmark = pytest.mark.feature("OBS-02")

NOW = utc_now()
MARKER = re.compile(r"(\d+) lines dropped here")
NODES = st.sampled_from("abcde")
BURSTS = st.lists(st.tuples(NODES, st.integers(1, 30)), max_size=40)


def line(node: str, text: str) -> ExecutionEvent:
    return ExecutionEvent(
        type="node.log",
        time=NOW,
        session_id="s",
        workflow_id="w",
        execution_id="r1",
        node_id=node,
        data={"stream": "stdout", "level": "INFO", "line": text},
    )


def accounted(said: list[tuple[str, str]], found: list[tuple[str, str]]) -> None:
    """Of each node: its lines in order, and where some are missing a marker with their number."""
    for node in {node for node, _ in said}:
        own = deque(text for of, text in said if of == node)
        for of, text in found:
            if of != node:
                continue
            if marker := MARKER.fullmatch(text):
                for _ in range(int(marker[1])):
                    own.popleft()
            else:
                assert own.popleft() == text
        assert not own


# -- lines that wait


@settings(max_examples=300, deadline=None)
@given(steps=st.lists(st.one_of(st.tuples(NODES, st.integers(1, 15)), st.integers(1, 40))))
def test_every_line_waits_or_is_told_by_one_marker_in_its_place(
    steps: list[tuple[str, int] | int],
) -> None:
    quota = LineQuota(limit=20)
    queue: deque[ExecutionEvent | Dropped] = deque()
    said: list[tuple[str, str]] = []
    found: list[tuple[str, str]] = []

    def hand_on(n: int) -> None:
        for _ in range(min(n, len(queue))):
            event = queue.popleft()
            if isinstance(event, Dropped):
                quota.closed(event)
                event = event.as_event()
            found.append((str(event.node_id), event.data["line"]))
            quota.gone(event)

    for step in steps:
        if isinstance(step, int):
            hand_on(step)
            continue
        node, n = step
        for _ in range(n):
            event = line(node, str(len(said)))
            said.append((node, event.data["line"]))
            if (waits := quota.take(event)) is not None:
                queue.append(waits)
        assert quota.waiting == len(queue) <= 2 * quota.limit + len("abcde")
    hand_on(len(queue))

    accounted(said, found)
    assert quota.waiting == 0
    lost = sum(int(m[1]) for _, text in found if (m := MARKER.fullmatch(text)))
    assert quota.lost("r1") == lost
    # Two markers of a node never follow one another: it had a line accepted between them.
    for node in "abcde":
        own = [bool(MARKER.fullmatch(text)) for of, text in found if of == node]
        assert [True, True] not in [own[at : at + 2] for at in range(len(own))]


# -- lines that are kept


class Reading:
    """A run's log with a bound of 24 lines, written and read as the steps say."""

    keep = 24

    def __init__(self, scene: Any) -> None:
        self.scene = scene
        self.channel = scene.logs.channel("r1", "s")
        self.said: list[tuple[str, str]] = []

    def write(self, node: str, n: int) -> None:
        for _ in range(n):
            self.said.append((node, str(len(self.said))))
            event = self.scene.event("node.log", node, line=self.said[-1][1], stream="stdout")
            assert self.channel.append(event) == len(self.said)

    def check(self) -> None:
        page = self.channel.read(None, 1000)
        cursors = [int(item["cursor"]) for item in page.items]
        assert cursors == sorted(set(cursors))
        first = cursors[0] if cursors else 1
        assert (page.gap.dropped if page.gap else 0) == first - 1
        kept: Counter[str] = Counter()
        markers: dict[str, tuple[int, int]] = {}
        for item, cursor in zip(page.items, cursors, strict=True):
            node = item["nodeId"]
            if marker := MARKER.fullmatch(item["line"]):
                assert node not in markers, "one marker per node"
                assert not kept[node], "it stands before all that is kept of the node"
                markers[node] = cursor, int(marker[1])
            else:
                # A cursor means the same line for ever.
                assert (node, item["line"]) == self.said[cursor - 1]
                kept[node] += 1
        assert sum(kept.values()) <= self.keep
        self.check_missing(first, kept, markers)

    def check_missing(
        self, first: int, kept: Counter[str], markers: dict[str, tuple[int, int]]
    ) -> None:
        written = Counter(node for node, _ in self.said)
        for node, n in written.items():
            assert kept[node] >= min(n, self.keep * 3 // 4 // len(written)), "its share"
            behind = sum(of == node for of, _ in self.said[first - 1 :])
            missing = behind - kept[node]
            told = markers[node][1] if node in markers else 0
            assert missing <= told <= n - kept[node]


@settings(max_examples=150, deadline=None)
@given(bursts=BURSTS)
def test_each_node_keeps_its_share_and_what_is_missing_is_told(new_scene, bursts) -> None:
    async def scenario() -> None:
        async with new_scene(logs__store__max_lines=Reading.keep) as scene:
            reading = Reading(scene)
            for node, n in bursts:
                reading.write(node, n)
                reading.check()
            with reading.channel.follow() as reader:
                reading.channel.end()
                followed = [item["cursor"] async for item in reader if isinstance(item, dict)]
            items = reading.channel.read(None, 1000).items
            assert followed == [item["cursor"] for item in items]
            scene.logs.forget("r1")
            assert scene.logs.budget.used == 0

    run_virtual(scenario())


@settings(max_examples=150, deadline=None)
@given(bursts=BURSTS, every=st.integers(1, 7))
def test_a_follower_that_keeps_up_gets_every_line_once(new_scene, bursts, every) -> None:
    async def scenario() -> None:
        async with new_scene(logs__store__max_lines=Reading.keep) as scene:
            reading = Reading(scene)
            got: list[str] = []
            with reading.channel.follow() as reader:
                for place, (node, n) in enumerate(bursts):
                    reading.write(node, n)
                    if place % every == 0:
                        got += [item["line"] for item in await reader.take(10_000)]
                reading.channel.end()
                got += [item["line"] async for item in reader]
            assert got == [text for _, text in reading.said]

    run_virtual(scenario())


@settings(max_examples=60, deadline=None)
@given(bursts=BURSTS)
def test_bytes_are_freed_fairly_and_never_the_newest_line(new_scene, bursts) -> None:
    async def scenario() -> None:
        async with new_scene() as scene:
            reading = Reading(scene)
            for node, n in bursts:
                reading.write(node, n)
            if len(reading.said) < 2:
                return
            before = scene.logs.budget.used
            assert reading.channel.halve()

            items = reading.channel.read(None, 10_000).items
            assert items[-1]["line"] == reading.said[-1][1]
            assert scene.logs.budget.used < before
            kept = {item["nodeId"] for item in items}
            written = Counter(node for node, _ in reading.said)
            rare = min(written.values())
            if rare * len(written) * 2 < len(reading.said):
                assert {node for node, n in written.items() if n == rare} <= kept

    run_virtual(scenario())


# -- the end


@settings(max_examples=60, deadline=None)
@given(
    said=st.lists(
        st.tuples(NODES, st.integers(1, 12), st.sampled_from(["", "look", "end"])), max_size=40
    )
)
def test_nothing_of_a_run_comes_after_its_end_and_cursors_stay(new_scene, said, data) -> None:
    async def scenario() -> None:
        async with new_scene() as scene:
            scene.tracker._lines.limit = 10
            with scene.feed.subscribe(capacity=5000) as stream:
                scene.start()
                for node, n, then in said:
                    for number in range(n):
                        scene.line(str(number), node)
                    if then == "look":
                        await scene.tracker.drained()
                    elif then == "end":
                        scene.finish()
                scene.finish()
                scene.line("late")
                await scene.tracker.drained()
                frames = await stream.frames(5000)
            own = [data(f) for f in frames if f.type.startswith(("execution.", "node."))]
            kinds = [event["type"] for event in own]
            assert kinds.count("execution.finished") == 1
            assert kinds[-1] == "execution.finished"
            assert scene.tracker._lines.waiting == 0
            items = scene.logs.get("r1").read(None, 10_000).items
            logged = [event["data"] for event in own if event["type"] == "node.log"]
            assert [item["cursor"] for item in items] == [str(n + 1) for n in range(len(items))]
            assert [(i["cursor"], i["line"]) for i in items] == [
                (line["cursor"], line["line"]) for line in logged
            ]

    run_virtual(scenario())


# -- the ring below


class Item:
    def __init__(self, cursor: int) -> None:
        self.cursor = cursor


@given(steps=st.lists(st.sampled_from(["add", "add", "add", "pop", "thin"]), max_size=80))
def test_a_sparse_ring_finds_what_is_kept_by_its_number(steps: list[str]) -> None:
    ring: SparseRing[Item] = SparseRing()
    model: list[int] = []
    for step in steps:
        if step == "add":
            model.append(ring.last + 1)
            ring.append(Item(ring.last + 1), 2)
        elif step == "pop" and model:
            assert ring.pop()[0].cursor == model.pop(0)
        elif step == "thin":
            ring.replace([one for one in ring.items() if one[0].cursor % 3])
            model = [number for number in model if number % 3]

        assert len(ring) == len(model)
        assert ring.weight == 2 * len(model)
        assert ring.first == (model[0] if model else ring.last + 1)
        for number in range(ring.last + 2):
            behind = [one for one in model if one > number]
            assert [item.cursor for item in ring.after(number, 3)] == behind[:3]
            found, looked = ring.find(number, lambda item: item.cursor % 2 == 0, 2)
            even = [one for one in behind if one % 2 == 0][:2]
            assert [item.cursor for item in found] == even
            assert looked == (even[-1] if len(even) == 2 else ring.last)
            item = ring.get(number)
            assert (item.cursor if item else None) == (number if number in model else None)
