"""Elements that have to be kept before they leave their source, and those worked off before."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx import operators as ops
from yukta_rx.model.message import to_port
from yukta_rx.streams.circuit import Circuit, StopMode
from yukta_rx.streams.flow import Flow, from_async_iterable, from_iterable
from yukta_rx.streams.plan import NodePlan, Outcome, Slot
from yukta_rx.streams.threads import ThreadIterableBody
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from yukta_rx.streams.stage import Stage

pytestmark = pytest.mark.feature("DUR-02", "DUR-03")


class Keeper:
    """Keeps elements after `delay` seconds; None: at once."""

    def __init__(self, delay: float | None = 1.0) -> None:
        self.delay = delay
        self.taken: list[Any] = []
        self.safe = 0
        self.asked = 0
        self.whole: int | None = None
        """How much there was when it was told that this was all."""

    def keep(self, chunk: Sequence[Any]) -> None:
        self.taken += chunk

    def kept(self) -> asyncio.Future[None] | None:
        self.asked += 1
        count = len(self.taken)
        if self.delay is None:
            self.safe = count
            return None

        async def wait() -> None:
            await asyncio.sleep(self.delay or 0)
            self.safe = max(self.safe, count)

        return asyncio.ensure_future(wait())

    def last(self) -> None:
        assert self.whole is None
        self.whole = len(self.taken)


async def ints(count: int, error: bool = False) -> Any:
    for n in range(count):
        yield n
    if error:
        raise LookupError("no more")


def source(kind: str, count: int, *, error: bool = False) -> Flow[Any]:
    def some() -> Any:
        yield from range(count)
        if error:
            raise LookupError("no more")

    if kind == "async":
        return from_async_iterable(lambda: ints(count, error))
    if kind == "thread":
        return Flow(NodePlan(body=ThreadIterableBody(some), last=Slot.CALL))
    return from_iterable(some)


KINDS = ["iterable", "async", "thread"]


def started(flow: Flow[Any], keeper: Keeper, watch: Any, **options: Any) -> tuple[Any, Any, list]:
    out: list[Any] = []

    def take(item: Any) -> None:
        assert len(out) < keeper.safe, "it left before it was kept"
        out.append(item)

    kept = flow.pipe(ops.status(watch), ops.record(keeper=keeper, **options), ops.broadcast())
    circuit = Circuit([kept.pipe(ops.merge_parents(prefetch=5), ops.map(take))])
    circuit.start()
    return circuit, circuit.stage_of(kept), out


@pytest.mark.parametrize("delay", [None, 1.0])
@pytest.mark.parametrize("kind", KINDS)
@virtual_time
async def test_elements_leave_once_they_are_kept_and_never_beyond_demand(
    kind: str, delay: float | None, watch: Any
) -> None:
    keeper = Keeper(delay)
    circuit, stage, out = started(source(kind, 23), keeper, watch)
    if delay:
        await asyncio.sleep(0.5)
        assert 0 < len(keeper.taken) <= 5
        assert out == []
    await circuit.done

    assert out == list(range(23))
    assert stage.emitted == 23
    assert stage.discarded == 0
    assert watch.ends[stage.plan.name] == (Outcome.COMPLETED, None)
    # Who keeps them at once need not be told.
    assert keeper.whole == (23 if delay else None)


@pytest.mark.parametrize("kind", KINDS)
@virtual_time
async def test_an_error_comes_behind_what_is_kept(kind: str, watch: Any) -> None:
    circuit, stage, out = started(source(kind, 3, error=True), Keeper(), watch)
    await circuit.done

    assert out == [0, 1, 2]
    assert watch.ends[stage.plan.name][0] is Outcome.FAILED


@virtual_time
async def test_the_barrier_comes_behind_what_is_kept(watch: Any) -> None:
    seen: list[int] = []

    async def barrier() -> None:
        seen.append(len(out))

    circuit, _, out = started(source("iterable", 3), Keeper(), watch, barrier=barrier)
    await circuit.done

    assert seen == [3]
    assert out == [0, 1, 2]


@pytest.mark.parametrize("kind", KINDS)
@virtual_time
async def test_a_drain_waits_for_what_is_being_kept(kind: str, watch: Any) -> None:
    keeper = Keeper()
    circuit, stage, out = started(source(kind, 1000), keeper, watch)
    await asyncio.sleep(0.5)
    circuit.stop(StopMode.DRAIN)
    await circuit.done

    assert out == keeper.taken != []
    assert watch.ends[stage.plan.name] == (Outcome.STOPPED, None)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@virtual_time
async def test_a_cancel_gives_up_what_is_being_kept_and_counts_it(
    kind: str, after: bool, watch: Any
) -> None:
    keeper = Keeper()
    circuit, stage, out = started(source(kind, 3 if after else 1000), keeper, watch)
    await asyncio.sleep(0.5)
    assert stage.ended is after
    circuit.stop(StopMode.CANCEL)
    await circuit.done

    assert out == []
    assert stage.discarded == len(keeper.taken) > 0
    assert watch.ends[stage.plan.name] == (Outcome.CANCELLED, None)
    assert len(circuit.tasks) == 0


@virtual_time
async def test_what_is_filtered_is_not_kept_and_ports_are() -> None:
    keeper, side = Keeper(), []
    flow = from_iterable(lambda: iter([1, None, to_port("side", 2), None]), name="in")
    # As a trigger's: None is no element.
    flow = Flow(NodePlan(name="in", body=flow.plan.body, last=Slot.CALL)).pipe(
        ops.record(keeper=keeper), ops.broadcast()
    )
    circuit = Circuit([flow.port("side").pipe(ops.merge_parents(), ops.map(side.append))])
    stage = circuit.stage_of(flow)
    stage.exact = False
    circuit.start()
    await circuit.done

    assert side == [2]
    assert len(keeper.taken) == 2
    assert stage.filtered == 2


# --- elements that are known ---------------------------------------------------------------------


class Known:
    """Knows some elements, from a moment on."""

    def __init__(self, *known: int) -> None:
        self.known = set(known)
        self.ready = False
        self.stage: Stage | None = None

    def attach(self, stage: Stage) -> None:
        self.stage = stage

    def room(self, n: int) -> int:
        return n if self.ready else 0

    def fresh(self, batch: list[Any]) -> list[Any]:
        return [n for n in batch if n not in self.known]

    def go(self) -> None:
        assert self.stage is not None
        self.ready = True
        self.stage.wake()


@pytest.mark.parametrize("kind", KINDS)
@virtual_time
async def test_what_is_known_is_taken_out_and_nothing_passes_before(kind: str, line: Any) -> None:
    known = Known(1, 3, 99)
    running = line(source(kind, 200).pipe(ops.merge_parents(), ops.without_known(known)))
    await asyncio.sleep(1)
    before = list(running.out)
    known.go()
    await running.finished()

    assert before == []
    assert running.out == [n for n in range(200) if n not in (1, 3, 99)]


@virtual_time
async def test_a_source_that_has_ended_ends_behind_it_once_it_knows(line: Any) -> None:
    known = Known(0)
    running = line(source("iterable", 1).pipe(ops.merge_parents(), ops.without_known(known)))
    await asyncio.sleep(1)
    assert running.watch.ends == {}
    known.go()
    await running.finished()

    assert running.out == []
    assert running.outcome is Outcome.COMPLETED


@virtual_time
async def test_a_join_rule_in_front_decides_as_it_would_alone(line: Any) -> None:
    known = Known()
    failing = source("iterable", 2, error=True)
    flow = failing.pipe(ops.merge_parents(join=ops.AllSuccess(), name="node"))
    running = line(flow.pipe(ops.without_known(known)))
    await asyncio.sleep(1)
    assert running.outcome is Outcome.FAILED
    await running.finished()
