"""Writing to streams beside runs that have work: joined, whole and in order."""

from __future__ import annotations

import asyncio
import re

import pytest

from yukta_rx.observe.circle import MOST
from yukta_rx.plugins.contract import processor
from yukta_rx.testing.clock import virtual_time

pytestmark = pytest.mark.feature("OBS-01")

COUNT = 3000
IDS = re.compile(rb"^id: e:(\d+)$", re.MULTILINE)


@processor("SAYS", blocking=False, pure=True)
def says(msg, _cfg, ctx):
    """Write a line, which is a fact, per message."""
    ctx.log(str(msg.payload))
    return msg


def line(count=COUNT, every_ms=0):
    trigger = ("SEQUENCE_TRIGGER", {"count": count, "intervalMs": every_ms})
    return {"t": trigger, "p": "SAYS", "out": "NULL_TERMINAL"}


def joined(frames) -> bytes:
    return b"".join([frame.sse() for frame in frames])


class Wire:
    """Takes what is written for a stream that has everything."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.pack = joined

    def take(self, data: bytes) -> bool:
        self.writes.append(data)
        return True

    @property
    def ids(self) -> list[int]:
        return [int(number) for number in IDS.findall(b"".join(self.writes))]


async def waiting(scene, group, wires):
    """Streams that have everything and wait, so that they share writes."""
    streams = [scene.feed.subscribe() for _ in wires]
    for stream, wire in zip(streams, wires, strict=True):
        stream.connect(wire)
        await stream.frames()
        group.create_task(stream.frames())
    await asyncio.sleep(1)
    return streams


@virtual_time
async def test_what_is_said_in_a_storm_is_written_in_few_pieces_and_all_of_it(new_scene) -> None:
    async with new_scene() as scene, asyncio.TaskGroup() as group:
        wires = [Wire(), Wire(), Wire()]
        streams = await waiting(scene, group, wires)
        done: list[int] = []

        @processor("SAYS", blocking=False, pure=True)
        def says_and_looks(msg, _cfg, ctx):
            """Write a line, and see how often was written so far."""
            done.append(len(wires[0].writes))
            return says(msg, _cfg, ctx)

        run = scene.run(line(), "t > p > out", says_and_looks)
        await run.execute()
        # Time stands still meanwhile, so that a tenth of it never comes after the first write.
        assert done[-1] <= 2
        await scene.tracker.drained()
        await asyncio.sleep(1)

        for wire in wires:
            assert wire.ids == list(range(1, scene.feed.head_seq + 1))
            # As many in each as may wait, but for the first ones and the last.
            assert len(wire.writes) <= len(wire.ids) / MOST + 20
        assert scene.feed.head_seq > COUNT
        assert [stream.dropped for stream in streams] == [0, 0, 0]
        for stream in streams:
            stream.close()


@virtual_time
async def test_what_is_said_now_and_then_is_written_at_once(new_scene) -> None:
    async with new_scene() as scene, asyncio.TaskGroup() as group:
        [wire] = wires = [Wire()]
        [stream] = await waiting(scene, group, wires)
        run = scene.run(line(count=50, every_ms=100), "t > p > out", says)
        execution = group.create_task(run.execute())
        await asyncio.sleep(2.05)
        before = len(wire.ids)
        lines = [data for data in wire.writes if b"event: node.log" in data]
        assert len(lines) >= 20
        assert before == scene.feed.head_seq
        await execution
        stream.close()


@virtual_time
async def test_a_stream_that_comes_and_goes_meanwhile_is_told_everything_behind_its_place(
    new_scene,
) -> None:
    async with new_scene() as scene, asyncio.TaskGroup() as group:
        wires = [Wire(), Wire()]
        streams = await waiting(scene, group, wires)
        run = scene.run(line(), "t > p > out", says)
        execution = group.create_task(run.execute())
        while scene.feed.head_seq < COUNT // 2:
            await asyncio.sleep(0)
        streams[1].close()
        left_at = len(wires[1].ids)
        await execution
        await scene.tracker.drained()
        await asyncio.sleep(1)

        assert wires[0].ids == list(range(1, scene.feed.head_seq + 1))
        # What it got ends where it left, without a hole.
        assert wires[1].ids == list(range(1, left_at + 1))
        streams[0].close()
