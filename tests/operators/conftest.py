"""A source and a subscriber under test control, with one operator between them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx import operators as ops
from yukta_rx.testing.publisher import TestPublisher
from yukta_rx.testing.subscriber import TestSubscriber

if TYPE_CHECKING:
    from collections.abc import Callable

    from yukta_rx.streams.flow import Flow

WINDOW = 4


@dataclass
class Bench:
    """`source` goes through an edge of `WINDOW` elements into the operator under test."""

    source: TestPublisher
    seen: TestSubscriber
    flow: Flow[Any]

    async def settle(self) -> None:
        """Let everything happen that needs no time to pass."""
        await asyncio.sleep(1e-6)

    async def emit(self, *values: Any) -> None:
        """Emit, as there is demand."""
        for value in values:
            await self.source.pulled(self.source._stage.emitted + 1)  # type: ignore[union-attr]
            self.source.emit(value)
        await self.settle()

    @property
    def timed(self) -> list[tuple[str, Any, float]]:
        """The signals with their times, rounded to milliseconds."""
        return [(s.kind, s.value, round(s.time, 3)) for s in self.seen.signals]

    @property
    def pulls(self) -> list[tuple[int, float]]:
        """The demand that reached the source, with its times."""
        return [(pull.n, round(pull.time, 3)) for pull in self.source.pulls]


@pytest.fixture
def bench() -> Callable[..., Bench]:
    """Make a bench; call it inside the test, on its loop."""

    def make(*operators: Any, demand: int = 0, refill: int = 0, window: int = WINDOW) -> Bench:
        source = TestPublisher()
        flow = source.pipe(ops.merge_parents(prefetch=window), *operators)
        seen = TestSubscriber(demand, refill=refill)
        flow.subscribe(seen)
        return Bench(source, seen, flow)

    return make


@dataclass
class Witness:
    """A status observer that remembers."""

    notes: list[tuple[Any, ...]] = field(default_factory=list)

    def touched(self, stage: Any) -> None:
        self.notes.append(("touched", asyncio.get_running_loop().time()))

    def ended(self, stage: Any, outcome: Any, error: Any) -> None:
        self.notes.append((outcome.value, error, round(asyncio.get_running_loop().time(), 3)))


@pytest.fixture
def witness() -> Witness:
    return Witness()
