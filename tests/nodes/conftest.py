"""Real contexts for plugins that are called directly, with a clock that a test moves by hand."""

from __future__ import annotations

import asyncio
import heapq
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.config.load import load_settings
from yukta_rx.plugins.context import NodeContext
from yukta_rx.streams.clock import PausableClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class HandClock:
    """Base time that moves only when `advance` is called."""

    def __init__(self) -> None:
        self.time = 100.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._cancelled: set[int] = set()

    def now(self) -> float:
        return self.time

    def call_at(self, when: float, callback: Callable[[], None]) -> Any:
        entry = (when, next(self._order), callback)
        heapq.heappush(self._due, entry)
        clock = self

        class Handle:
            def cancel(self) -> None:
                clock._cancelled.add(entry[1])

        return Handle()

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError

    @property
    def waiting(self) -> int:
        return sum(number not in self._cancelled for _, number, _ in self._due)

    async def advance(self, seconds: float) -> None:
        """Let time pass, with everything that becomes due on the way."""
        end = self.time + seconds
        await settle()
        while self._due and self._due[0][0] <= end + 1e-9:
            when, number, callback = heapq.heappop(self._due)
            self.time = max(self.time, when)
            if number not in self._cancelled:
                callback()
                await settle()
        self.time = end


async def settle() -> None:
    """Let every task go on until it waits for time or input."""
    for _ in range(20):
        await asyncio.sleep(0)


@dataclass
class Bench:
    """A context and what was done with it."""

    ctx: NodeContext
    clock: PausableClock
    base: HandClock
    lines: list[tuple[str, str]] = field(default_factory=list)
    counts: list[tuple[str, int]] = field(default_factory=list)


@pytest.fixture
def bench(tmp_path: Path) -> Callable[..., Bench]:
    """Make a bench; `allowed` folders may be read, relative paths start at `tmp_path`."""

    def make(*, payload: Any = None, allowed: tuple[Path, ...] = (tmp_path,)) -> Bench:
        base = HandClock()
        clock = PausableClock(base)
        lines: list[tuple[str, str]] = []
        counts: list[tuple[str, int]] = []

        async def blocking(fn: Callable[..., Any], *args: Any) -> Any:
            return await asyncio.to_thread(fn, *args)

        ctx = NodeContext(
            execution_id="run-1",
            session_id="local",
            workflow_id="flow",
            node_id="n",
            clock=clock,
            log=lambda line, stream: lines.append((line, stream)),
            count=lambda outcome, n: counts.append((outcome, n)),
            blocking=blocking,
            settings=load_settings(
                environ={},
                overrides={"yukta.files.allowed-dirs": [str(folder) for folder in allowed]},
            ),
            base_dir=tmp_path,
            payload=payload,
        )
        return Bench(ctx, clock, base, lines, counts)

    return make
