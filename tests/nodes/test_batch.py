"""BATCH: groups by size and by time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.model.message import Message, trigger_message
from yukta_rx.nodes.batch import Batch, BatchConfig
from yukta_rx.plugins.contract import check_config, spec_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.feature("ENG-02")


class Feed:
    """A stream that a test fills by hand; knows how many elements were asked for."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Any] = asyncio.Queue()
        self.asked = 0
        self.sent = 0

    def send(self, *payloads: Any) -> None:
        for payload in payloads:
            self.queue.put_nowait(trigger_message("run", "t", self.sent, payload))
            self.sent += 1

    def end(self, error: BaseException | None = None) -> None:
        self.queue.put_nowait(error or StopAsyncIteration())

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        self.asked += 1
        item = await self.queue.get()
        if isinstance(item, BaseException):
            raise item
        return item


class Collector:
    """Takes batches as fast as they come and keeps their payloads."""

    def __init__(self, feed: Feed, bench: Any, **options: Any) -> None:
        self.batches: list[Any] = []
        cfg = BatchConfig.model_validate(options)
        self.stream = Batch().transform(feed, cfg, bench.ctx)
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async for msg in self.stream:
            self.batches.append(msg.payload["items"])

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.stream.aclose()


@pytest.mark.parametrize("wait", [{}, {"maxWaitMs": 1000}])
async def test_a_batch_leaves_when_it_is_full_and_the_rest_at_the_end(bench, wait) -> None:
    b, feed = bench(), Feed()
    feed.send(*range(7))
    feed.end()

    collector = Collector(feed, b, size=3, **wait)
    await collector.task

    assert collector.batches == [[0, 1, 2], [3, 4, 5], [6]]
    assert b.base.waiting == 0


@pytest.mark.parametrize("wait", [{}, {"maxWaitMs": 1000}])
@pytest.mark.parametrize("n", [0, 3])
async def test_no_batch_is_empty(bench, wait, n) -> None:
    feed = Feed()
    feed.send(*range(n))
    feed.end()

    collector = Collector(feed, bench(), size=3, **wait)
    await collector.task

    assert collector.batches == ([[0, 1, 2]] if n else [])


async def test_a_batch_that_does_not_fill_leaves_when_its_first_message_has_waited(bench) -> None:
    b, feed = bench(), Feed()
    collector = Collector(feed, b, size=10, maxWaitMs=500)

    await b.base.advance(2)
    feed.send("a")
    await b.base.advance(0.3)
    feed.send("b")
    await b.base.advance(0.19)
    assert collector.batches == []
    await b.base.advance(0.02)

    assert collector.batches == [["a", "b"]]
    await collector.stop()


async def test_each_batch_has_a_wait_of_its_own(bench) -> None:
    b, feed = bench(), Feed()
    collector = Collector(feed, b, size=2, maxWaitMs=500)

    feed.send("a")
    await b.base.advance(0.4)
    feed.send("b", "c")
    await b.base.advance(0.4)
    assert collector.batches == [["a", "b"]]
    await b.base.advance(0.2)

    assert collector.batches == [["a", "b"], ["c"]]
    await collector.stop()


async def test_the_wait_stands_still_during_a_pause(bench) -> None:
    b, feed = bench(), Feed()
    collector = Collector(feed, b, size=10, maxWaitMs=500)
    feed.send("a")
    await b.base.advance(0.4)

    b.clock.pause()
    await b.base.advance(600)
    assert collector.batches == []
    b.clock.resume()
    await b.base.advance(0.2)

    assert collector.batches == [["a"]]
    await collector.stop()


@pytest.mark.parametrize(("wait", "most"), [({}, 3), ({"maxWaitMs": 60_000}, 7)])
async def test_without_demand_no_more_is_taken_than_two_batches(bench, wait, most) -> None:
    b, feed = bench(), Feed()
    feed.send(*range(100))

    stream = Batch().transform(feed, BatchConfig.model_validate({"size": 3, **wait}), b.ctx)
    first = await anext(stream)
    await b.base.advance(0)

    assert first.payload == {"items": [0, 1, 2]}
    assert feed.asked <= most
    await stream.aclose()


@pytest.mark.parametrize("wait", [{}, {"maxWaitMs": 1000}])
async def test_an_error_of_the_stream_ends_it_at_once(bench, wait) -> None:
    feed = Feed()
    feed.send("lost")
    feed.end(RuntimeError("upstream broke"))

    collector = Collector(feed, bench(), size=3, **wait)

    with pytest.raises(RuntimeError, match="upstream broke"):
        await collector.task
    assert collector.batches == []


async def test_cancelling_leaves_no_task_and_no_timer(bench) -> None:
    b, feed = bench(), Feed()
    collector = Collector(feed, b, size=10, maxWaitMs=500)
    feed.send("a")
    await b.base.advance(0.1)

    await collector.stop()

    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert b.base.waiting == 0


async def test_a_broken_clock_is_an_error_and_no_silence(bench) -> None:
    b, feed = bench(), Feed()

    async def broken(seconds: float) -> None:
        raise OSError("no clock")

    b.ctx.clock = type("Broken", (), {"sleep": staticmethod(broken)})()
    collector = Collector(feed, b, size=10, maxWaitMs=500)
    feed.send("a")

    with pytest.raises(OSError, match="no clock"):
        await collector.task


@pytest.mark.feature("ENG-01")
async def test_a_batch_is_derived_from_all_its_messages(bench) -> None:
    feed = Feed()
    feed.send("a", "b")
    feed.end()
    sources = [trigger_message("run", "t", seq, None).id for seq in range(2)]

    stream = Batch().transform(feed, BatchConfig(size=2), bench().ctx)
    (msg,) = [msg async for msg in stream]

    assert list(msg.causes) == sources


@pytest.mark.parametrize(
    ("config", "option"),
    [
        ({}, "size"),
        ({"size": 0}, "size"),
        ({"size": 1_000_000}, "size"),
        ({"size": "5"}, "size"),
        ({"size": 5, "maxWaitMs": 0}, "maxWaitMs"),
        ({"size": "${payload.n:int}"}, "size"),
    ],
)
def test_wrong_options_are_named(config, option) -> None:
    (fault,) = check_config(spec_of(Batch), config)

    assert fault.option == option


def test_it_has_no_idle_timeout() -> None:
    assert spec_of(Batch).timeout(BatchConfig(size=1)) is None
