"""A call whose elements may come, and leave, as references to what they stand for.

What comes as a reference is opened right in front of the call, by the attempt itself: so opening
it counts as a part of the attempt, and what cannot be opened has the policy of a call that fails.
Until then, in edges, buffers and behind a closed gate, the reference waits. Where the call is one
on the loop, an element that has to be opened is handed to a task and the stage waits for it, as
for an attempt that is made again; other elements do not pay for it.

What leaves is made a reference where it is heavy. What a call gives back as it came leaves as the
reference that it came as.

Feature: DUR-02.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from yukta_rx.streams.aio import AsyncBody, AsyncIterableBody, AsyncManyBody, HeldStage
from yukta_rx.streams.attempts import close_iterator, collect
from yukta_rx.streams.concurrent import ConcurrentBody
from yukta_rx.streams.sync import IterableBody, ManyBody, ManyStage, MapBody, MapStage
from yukta_rx.streams.threads import ThreadBody, ThreadIterableBody
from yukta_rx.streams.through import Inlet, StreamBody, StreamStage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator

    from yukta_rx.streams.circuit import Circuit
    from yukta_rx.streams.edge import Edge
    from yukta_rx.streams.plan import Body, NodePlan
    from yukta_rx.streams.pool import BlockingPool
    from yukta_rx.streams.stage import Stage


class Claims(Protocol):
    """How references of one node are made and opened.

    Attributes:
        carries: whether the call keeps the reference and not what was opened.
    """

    carries: bool

    @property
    def closed(self) -> Callable[[Any], bool]:
        """What tells whether an element is a reference; looked up once, as what follows."""

    def around(self, fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """`fn`, which raises `Unopened` for a reference, and whose outputs are sealed."""

    async def opened(self, item: Any) -> Any:
        """What a reference stands for. Raises if it cannot be had."""

    def opened_in_thread(self, item: Any) -> Any:
        """As `opened`, for a thread, which waits."""

    def sealed(self, out: Any) -> Any:
        """What leaves for an output: a reference if it is heavy. Callable from any thread."""

    def worked_off(self, item: Any, opened: Any) -> None:
        """A call for what was opened is over: nothing need hold on to that. From any thread."""

    def resealed(self, out: Any, item: Any, opened: Any) -> Any:
        """As `sealed`, for what a call gave for `opened`, which `item` is or refers to."""


class Unopened(Exception):
    """A call on the loop got a reference, which has to be opened first."""


@dataclass(slots=True, eq=False)
class ClaimedBody:
    """Another body, whose elements may be references."""

    inner: Body
    claims: Claims

    def stage(self, plan: NodePlan, circuit: Circuit) -> Stage:
        """A stage as the other body makes it, and what opens and seals around its call."""
        inner, claims = self.inner, self.claims
        if isinstance(inner, MapBody):
            return _map_stage(inner, claims, plan, circuit)
        if isinstance(inner, ManyBody):
            return _many_stage(inner, claims, plan, circuit)
        if isinstance(inner, StreamBody):
            return ClaimedStreamStage(plan, circuit, inner, claims)
        if isinstance(inner, ThreadBody):
            return _around_thread(inner, claims, circuit.pool).stage(plan, circuit)
        around = _AROUND.get(type(inner))
        body: Body = inner if around is None else around(inner, claims)
        return body.stage(plan, circuit)


# --- calls on the loop ---------------------------------------------------------------------------


def _map_stage(body: MapBody, claims: Claims, plan: NodePlan, circuit: Circuit) -> Stage:
    fn, closed, sealed = body.fn, claims.closed, claims.sealed
    if fn is None:
        return body.stage(plan, circuit)
    if plan.limit is not None:
        call = body.again or fn

        async def in_thread(item: Any) -> Any:
            if not closed(item):
                return sealed(await circuit.pool.call(call, item))
            opened = await claims.opened(item)
            try:
                return claims.resealed(await circuit.pool.call(call, opened), item, opened)
            finally:
                claims.worked_off(item, opened)

        return AsyncBody(in_thread, exact=body.exact).stage(plan, circuit)

    return ClaimedMapStage(plan, circuit, claims.around(fn), body, claims)


class ClaimedMapStage(MapStage):
    """Has a task open what comes as a reference, and waits for it."""

    __slots__ = ("claims", "unclaimed")

    spent = ("claims", "unclaimed")

    def __init__(
        self,
        plan: NodePlan,
        circuit: Circuit,
        once: Callable[[Any], Any],
        body: MapBody,
        claims: Claims,
    ) -> None:
        super().__init__(plan, circuit, once, body.exact)
        self.unclaimed = body.again or body.fn
        self.claims = claims

    def _failed(self, edge: Edge, batch: list[Any], chunk: list[Any], error: BaseException) -> None:
        if type(error) is not Unopened:
            super()._failed(edge, batch, chunk, error)
            return
        done = len(chunk)
        self.received += done + 1
        if self.gate is not None:
            self.gate.passed(done + 1)
        edge.untake(batch, done + 1)
        edge.release(done)
        self.emit(chunk)
        if self.on_finished is not None and done:
            self.on_finished(batch[:done])
        edge.held = 1
        # No attempt was made yet: the first is made by the task.
        self.recovery = self.circuit.tasks.spawn(
            self._recover(edge, batch[done], None), f"yukta node {self.plan.name}"
        )

    async def _attempt(self, item: Any) -> list[Any]:
        claims, call = self.claims, self.unclaimed
        opened = await claims.opened(item) if claims.closed(item) else item
        try:
            return [claims.resealed(call(opened), item, opened)]  # type: ignore[misc]
        except StopIteration:
            raise RuntimeError("the function raised StopIteration") from None
        finally:
            claims.worked_off(item, opened)


def _many_stage(body: ManyBody, claims: Claims, plan: NodePlan, circuit: Circuit) -> Stage:
    fn, closed = body.fn, claims.closed
    if plan.guarded:

        def drawn(item: Any, opened: Any) -> list[Any]:
            outputs = _resealed(claims, fn(opened), item, opened)
            return collect(item, outputs, body.hold)

        async def attempt(item: Any) -> list[Any]:
            opened = await claims.opened(item) if closed(item) else item
            if plan.limit is None:
                return drawn(item, opened)
            return await circuit.pool.call(drawn, item, opened)

        return HeldStage(plan, circuit, attempt)

    def once(item: Any) -> Iterable[Any]:
        if closed(item):
            raise Unopened
        return fn(item)

    return ClaimedManyStage(plan, circuit, once, fn, claims)


def _each(sealed: Callable[[Any], Any], outputs: Iterable[Any]) -> Iterator[Any]:
    """What leaves for outputs of an element that was no reference."""
    try:
        yield from map(sealed, outputs)
    finally:
        _close(outputs)


def _close(outputs: Any) -> None:
    close = getattr(outputs, "close", None)
    if close is not None:
        close()


def _resealed(claims: Claims, outputs: Iterable[Any], item: Any, opened: Any) -> Iterator[Any]:
    try:
        for out in outputs:
            yield claims.resealed(out, item, opened)
    finally:
        _close(outputs)
        claims.worked_off(item, opened)


class ClaimedManyStage(ManyStage):
    """Has a task open what comes as a reference, then draws from what the call gives for it."""

    __slots__ = ("claims", "opening", "sealed", "unclaimed")

    def __init__(
        self,
        plan: NodePlan,
        circuit: Circuit,
        once: Callable[[Any], Iterable[Any]],
        fn: Callable[[Any], Iterable[Any]],
        claims: Claims,
    ) -> None:
        super().__init__(plan, circuit, once)
        self.unclaimed = fn
        self.claims, self.sealed = claims, claims.sealed
        self.opening: asyncio.Task[None] | None = None

    def run(self) -> None:
        """As any, but for what waits to be opened."""
        if self.opening is None:
            super().run()
            return
        if self.closing:
            self.settle()
        if self.pruning:
            self.prune()

    def emit(self, chunk: list[Any]) -> None:
        """Seal what was drawn, and emit it."""
        super().emit(list(map(self.sealed, chunk)))

    def fail(self, error: BaseException, culprit: Any = None) -> None:
        """What is a reference only has to be opened."""
        if type(error) is not Unopened:
            super().fail(error, culprit)
            return
        self.drawing = None
        self.opening = self.circuit.tasks.spawn(self._open(culprit), f"yukta node {self.plan.name}")

    async def _open(self, item: Any) -> None:
        try:
            opened = await self.claims.opened(item)
            outputs = self.unclaimed(opened)
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self.opening = None
            self.fail(error, item)
            return
        self.opening = None
        self.drawing = _resealed(self.claims, outputs, item, opened)
        self.wake()

    def release(self) -> None:
        """Give up what is being opened."""
        if self.opening is not None:
            self.discarded += 1
            self.opening.cancel()
        super().release()


# --- calls elsewhere -----------------------------------------------------------------------------


def _around_async(body: AsyncBody, claims: Claims) -> AsyncBody:
    fn, convert = body.fn, body.convert
    closed, sealed = claims.closed, claims.sealed

    async def opening(item: Any) -> Any:
        opened = await claims.opened(item)
        try:
            call: Awaitable[Any] = fn(opened)
            if claims.carries:
                # It has the reference itself, and may take long.
                opened = item
            given = await call
            made = given if convert is None else convert(item, given, 0)
            return claims.resealed(made, item, opened)
        finally:
            claims.worked_off(item, opened)

    def called(item: Any) -> Awaitable[Any]:
        return opening(item) if closed(item) else fn(item)

    def converted(item: Any, given: Any, index: int) -> Any:
        if closed(item):
            return given
        return sealed(given if convert is None else convert(item, given, index))

    return AsyncBody(called, converted, exact=body.exact)


def _around_async_many(body: AsyncManyBody, claims: Claims) -> AsyncManyBody:
    fn, convert = body.fn, body.convert
    closed, sealed = claims.closed, claims.sealed

    async def called(item: Any) -> AsyncIterator[Any]:
        opened = await claims.opened(item) if closed(item) else item
        outputs = fn(opened).__aiter__()
        index = 0
        try:
            async for out in outputs:
                made = out if convert is None else convert(item, out, index)
                index += 1
                yield sealed(made) if opened is item else claims.resealed(made, item, opened)
        finally:
            await close_iterator(outputs)
            if opened is not item:
                claims.worked_off(item, opened)

    return AsyncManyBody(called, hold=body.hold)


def _around_concurrent(body: ConcurrentBody, claims: Claims) -> ConcurrentBody:
    calls = getattr(body.attempt, "__self__", None)
    around = _AROUND.get(type(calls))
    if calls is not None and around is not None:
        return replace(body, attempt=around(calls, claims).attempt)
    attempt = body.attempt

    async def attempted(item: Any) -> list[Any]:
        opened = await claims.opened(item) if claims.closed(item) else item
        return list(_resealed(claims, await attempt(opened), item, opened))

    return replace(body, attempt=attempted)


def _around_thread(body: ThreadBody, claims: Claims, pool: BlockingPool) -> ThreadBody:
    fn, many, closed, sealed = body.fn, body.many, claims.closed, claims.sealed

    def called(item: Any) -> Any:
        if not closed(item):
            made = fn(item)
            return _each(sealed, made) if many else sealed(made)
        # Who reads for it may need a thread too.
        pool.abandon()
        try:
            opened = claims.opened_in_thread(item)
        finally:
            pool.reclaim()
        if many:
            return _resealed(claims, fn(opened), item, opened)
        return claims.resealed(fn(opened), item, opened)

    return replace(body, fn=called)


class ClaimedInlet(Inlet):
    """Gives what references stand for."""

    __slots__ = ("_claims", "_closed", "last")

    def __init__(self, stage: StreamStage, claims: Claims) -> None:
        super().__init__(stage)
        self._claims, self._closed = claims, claims.closed
        self.last: tuple[Any, Any] = (None, None)
        """The last element and what was opened for it."""

    async def __anext__(self) -> Any:
        self.last = (None, None)
        item = await super().__anext__()
        if not self._closed(item):
            return item
        opened = await self._claims.opened(item)
        self.last = item, opened
        return opened


class ClaimedStreamStage(StreamStage):
    """Opens what the function takes, and seals what it gives."""

    __slots__ = ("claims", "opener", "sealed")

    def __init__(self, plan: NodePlan, circuit: Circuit, body: StreamBody, claims: Claims) -> None:
        super().__init__(plan, circuit, body.fn, body.settled)
        self.claims, self.sealed = claims, claims.sealed
        self.inlet = self.opener = ClaimedInlet(self, claims)

    async def emit_one(self, item: Any) -> bool:
        """Seal one element, and emit it under credit."""
        came, opened = self.opener.last
        if opened is None:
            return await super().emit_one(self.sealed(item))
        return await super().emit_one(self.claims.resealed(item, came, opened))


# --- sources -------------------------------------------------------------------------------------


def _around_iterable(body: Any, claims: Claims) -> Any:
    make = body.make

    def made() -> Iterator[Any]:
        items = make()
        try:
            yield from map(claims.sealed, items)
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                close()

    return replace(body, make=made)


def _around_async_iterable(body: AsyncIterableBody, claims: Claims) -> AsyncIterableBody:
    make, sealed = body.make, claims.sealed

    async def made() -> AsyncIterator[Any]:
        items = make().__aiter__()
        try:
            async for item in items:
                yield sealed(item)
        finally:
            await close_iterator(items)

    return AsyncIterableBody(made)


_AROUND: dict[type, Callable[[Any, Claims], Any]] = {
    AsyncBody: _around_async,
    AsyncManyBody: _around_async_many,
    ConcurrentBody: _around_concurrent,
    IterableBody: _around_iterable,
    ThreadIterableBody: _around_iterable,
    AsyncIterableBody: _around_async_iterable,
}
"""By the kind of a body: the same one, with references around its calls."""
