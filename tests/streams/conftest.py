"""What the tests of the streams core share: circuits whose every end is noted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx import operators as ops
from yukta_rx.streams.circuit import Circuit

if TYPE_CHECKING:
    from collections.abc import Callable

    from yukta_rx.streams.flow import Flow
    from yukta_rx.streams.plan import Outcome
    from yukta_rx.streams.stage import Stage


@dataclass
class Watch:
    """Notes how the nodes that it observes began and ended."""

    touches: list[str] = field(default_factory=list)
    ends: dict[str, tuple[Outcome, BaseException | None]] = field(default_factory=dict)

    def touched(self, stage: Stage) -> None:
        self.touches.append(stage.plan.name)

    def ended(self, stage: Stage, outcome: Outcome, error: BaseException | None) -> None:
        assert stage.plan.name not in self.ends, "ended twice"
        self.ends[stage.plan.name] = (outcome, error)


@dataclass
class Line:
    """A started circuit with one end, what came out there, and how that end ended."""

    circuit: Circuit
    out: list[Any]
    watch: Watch
    flow: Flow[Any]

    async def finished(self) -> Line:
        await self.circuit.done
        assert len(self.circuit.tasks) == 0
        return self

    @property
    def outcome(self) -> Outcome:
        return self.watch.ends["sink"][0]

    @property
    def error(self) -> BaseException | None:
        return self.watch.ends["sink"][1]

    @property
    def stage(self) -> Stage:
        return self.circuit.stage_of(self.flow)


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def line(watch: Watch) -> Callable[..., Line]:
    """Start a circuit that ends in one list: `line(flow, prefetch=...)`."""

    def make(flow: Flow[Any], *, prefetch: int = 64, sink: Any = None, **options: Any) -> Line:
        out: list[Any] = []
        end = flow.pipe(
            ops.merge_parents(name="sink", prefetch=prefetch),
            ops.call(sink) if sink else ops.map(out.append),
            ops.status(watch),
        )
        circuit = Circuit([end], **options)
        circuit.start()
        return Line(circuit, out, watch, flow)

    return make
