"""A real NodeContext whose sinks are plain lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.plugins.context import NodeContext

if TYPE_CHECKING:
    from collections.abc import Callable


class StandingClock:
    """A clock that shows `time` and never moves by itself."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


async def call_directly(fn: Callable[..., Any], *args: Any) -> Any:
    return fn(*args)


@pytest.fixture
def clock() -> StandingClock:
    return StandingClock()


@pytest.fixture
def lines() -> list[tuple[str, str]]:
    return []


@pytest.fixture
def counts() -> list[tuple[str, int]]:
    return []


@pytest.fixture
def ctx(
    clock: StandingClock, lines: list[tuple[str, str]], counts: list[tuple[str, int]]
) -> NodeContext:
    return NodeContext(
        execution_id="run-1",
        session_id="local",
        workflow_id="flow",
        node_id="n",
        clock=clock,
        log=lambda line, stream, attempt: lines.append((line, stream)),
        count=lambda outcome, n: counts.append((outcome, n)),
        blocking=call_directly,
    )
