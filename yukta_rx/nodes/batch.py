"""BATCH: collects messages into groups.  Feature: ENG-02."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from yukta_rx.nodes._types import DAY_MS
from yukta_rx.plugins.contract import (
    Message,
    NodeContext,
    PluginConfig,
    ProcessorPlugin,
    processor,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator


class BatchConfig(PluginConfig):
    """Options of BATCH."""

    size: Annotated[int, Field(strict=True, ge=1, le=100_000)] = Field(
        description="How many messages make a batch."
    )
    max_wait_ms: Annotated[int, Field(strict=True, ge=1, le=DAY_MS)] | None = Field(
        None, description="Longest wait for a batch to fill, from its first message on, in ms."
    )


@processor(
    "BATCH",
    config=BatchConfig,
    default_timeout=None,
    pure=True,
    settles=True,
    example={"size": 100, "maxWaitMs": 500},
)
class Batch(ProcessorPlugin):
    """Collect up to `size` messages into one with the payload `{"items": [...]}`.

    A batch leaves when it is full, when its first message has waited for `maxWaitMs` of unpaused
    time, or at the end of the stream; it is never empty. At most two batches are held: one that
    waits for demand and one that fills.
    """

    def transform(
        self, stream: AsyncIterable[Message], cfg: BatchConfig, ctx: NodeContext
    ) -> AsyncIterator[Message]:
        """Return the stream of batches."""
        if cfg.max_wait_ms is None:
            return _by_size(stream, cfg.size)
        return _by_size_or_time(stream, cfg.size, cfg.max_wait_ms / 1000, ctx)


def _batch(messages: list[Message]) -> Message:
    return Message.of({"items": [msg.payload for msg in messages]}, causes=messages)


async def _by_size(stream: AsyncIterable[Message], size: int) -> AsyncIterator[Message]:
    held: list[Message] = []
    async for msg in stream:
        held.append(msg)
        if len(held) == size:
            yield _batch(held)
            held = []
    if held:
        yield _batch(held)


async def _by_size_or_time(
    stream: AsyncIterable[Message], size: int, max_wait: float, ctx: NodeContext
) -> AsyncIterator[Message]:
    filling = _Filling(stream, size, max_wait, ctx)
    try:
        while messages := await filling.next_batch():
            yield _batch(messages)
    finally:
        await filling.close()


class _Filling:
    """The batch that fills: one task reads the stream, one per batch is its timer.

    A task per message would cost ten times the rest; these two only wake the consumer when a
    batch is due.
    """

    def __init__(
        self, stream: AsyncIterable[Message], size: int, max_wait: float, ctx: NodeContext
    ) -> None:
        self._size = size
        self._max_wait = max_wait
        self._ctx = ctx
        self._held: list[Message] = []
        self._due = asyncio.Event()
        self._room = asyncio.Event()
        self._ended = False
        self._error: BaseException | None = None
        self._timers: set[asyncio.Task[None]] = set()
        self._reader = ctx.spawn(self._read(stream), "reader")

    async def next_batch(self) -> list[Message]:
        """Wait until a batch is due and take it; empty at the end of the stream."""
        while True:
            await self._due.wait()
            if self._error is not None:
                raise self._error
            for timer in self._timers:
                timer.cancel()
            messages, self._held = self._held, []
            if self._ended:
                return messages
            self._due.clear()
            self._room.set()
            if messages:
                return messages

    async def close(self) -> None:
        """End all tasks and wait until they are gone."""
        tasks = [self._reader, *self._timers]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, stream: AsyncIterable[Message]) -> None:
        try:
            async for msg in stream:
                self._held.append(msg)
                if len(self._held) == 1:
                    timer = self._ctx.spawn(self._ring(), "timer")
                    self._timers.add(timer)
                    timer.add_done_callback(self._timers.discard)
                if len(self._held) == self._size:
                    self._room.clear()
                    self._due.set()
                    await self._room.wait()
        except Exception as error:  # raised where the batches are taken
            self._error = error
        finally:
            self._ended = True
            self._due.set()

    async def _ring(self) -> None:
        try:
            await self._ctx.clock.sleep(self._max_wait)
        except Exception as error:  # a batch that is never due would be lost in silence
            self._error = error
        self._due.set()
