"""valve: pause, step, breakpoints and skip in front of a node's call. Feature: CTL-02."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from yukta_rx.operators._hooks import ignore
from yukta_rx.operators._kind import BackPressureKind, Operator, back_pressure
from yukta_rx.streams.plan import Slot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from yukta_rx.streams.edge import Edge
    from yukta_rx.streams.flow import Flow
    from yukta_rx.streams.stage import Stage

OPEN: Final = -1
_NOTHING: Final = object()


Hit: TypeAlias = "Callable[[Any], bool]"
"""Whether a breakpoint holds an element; raises nothing but `Undecided`."""


class Undecided(Exception):
    """A breakpoint cannot tell of an element yet: who raises it wakes the stage when it can."""


class Valve:
    """The handle of one `valve`: open, closed, or open for a number of elements.

    Belongs to one run of a flow. Its methods are called on the event loop and are exact: an
    element that is not in the call yet when `pause` returns stays where it is.

    Args:
        on_hold: told of each element that a breakpoint holds, once the valve is closed.
        round_trip: makes of an element what goes on when it is skipped; itself if None.
    """

    __slots__ = (
        "_found",
        "_going",
        "_held",
        "_held_on",
        "_hits",
        "_permits",
        "_skipping",
        "_stage",
        "on_hold",
        "round_trip",
    )

    def __init__(
        self,
        on_hold: Callable[[Any], None] = ignore,
        round_trip: Callable[[Any], Any] | None = None,
    ) -> None:
        self.round_trip = round_trip
        self._permits = OPEN
        self._stage: Stage | None = None
        self.on_hold = on_hold
        self._hits: tuple[Hit, ...] = ()
        self._skipping = False
        self._found: Any = _NOTHING
        """The element to hold once those before it went through, found by asking once."""
        self._going: Edge | None = None
        """Where the batch that is going into the call begins with an element that was held."""
        self._held: Any = None
        self._held_on: Edge | None = None
        """The edge whose first element is held."""

    @property
    def paused(self) -> bool:
        """Whether the valve is closed, or will be once its last permits are used."""
        return self._permits != OPEN

    def pause(self) -> None:
        """Let nothing more through; permits that `step` gave and nobody used are void."""
        self._permits = 0
        if self._stage is not None:
            self._stage.steer = True

    @property
    def holds(self) -> bool:
        """Whether a breakpoint holds an element, which is `held`."""
        return self._held_on is not None and not self._held_on.dst.ended

    @property
    def held(self) -> Any:
        """The element that a breakpoint holds; None if none is held."""
        return self._held if self.holds else None

    def replace_held(self, item: Any) -> None:
        """Let `item` stand in the place of the element that a breakpoint holds; it is held too.

        Raises:
            ValueError: none is held.
        """
        self._holding().replace_first(item)
        self._held = item

    def drop_held(self) -> Any:
        """Take out the element that a breakpoint holds, count it as discarded and return it.

        The valve stays as it is: closed, until it is resumed or stepped.

        Raises:
            ValueError: none is held.
        """
        edge = self._holding()
        item = edge.drop_first()
        edge.pinned = False
        edge.dst.discarded += 1
        self._let_go()
        # It may have been the last one of a parent that has ended.
        edge.dst.wake()
        return item

    def _holding(self) -> Edge:
        """The edge whose first element is held."""
        if self._held_on is None or not self.holds:
            raise ValueError("no element is held")
        return self._held_on

    def _let_go(self) -> None:
        self._held = self._held_on = None

    def resume(self) -> None:
        """Open; an element that a breakpoint holds goes through."""
        self._permits = OPEN
        self._let_go()
        self._wake()

    def step(self, n: int = 1) -> None:
        """Let exactly `n` more elements through, then stay closed.

        Raises:
            ValueError: `n` is below 1.
        """
        if n < 1:
            raise ValueError(f"step needs 1 element or more, not {n}")
        self._permits = max(self._permits, 0) + n
        self._let_go()
        if self._stage is not None:
            self._stage.steer = True
        self._wake()

    @property
    def skipping(self) -> bool:
        """Whether elements go round the call."""
        return self._skipping

    def skip(self, on: bool) -> None:
        """Let elements go round the call, from the next one on; or into it again."""
        self._skipping = on
        self._arm()

    def break_at(self, hits: Iterable[Hit]) -> None:
        """Close before the next element for which one of `hits` is true, and hold it.

        Replaces the breakpoints that there were. `resume` or `step` lets the held element through
        once. While there are breakpoints every element is looked at.
        """
        self._hits = tuple(hits)
        self._found = _NOTHING
        self._arm()

    def _arm(self) -> None:
        stage = self._stage
        if stage is not None:
            on = self._skipping or self._hits or any(edge.pinned for edge in stage.ins)
            stage.front = self._look if on else None
            stage.steer = True
            stage.wake()

    def _wake(self) -> None:
        if self._stage is not None:
            self._stage.wake()

    # -- what the stage asks (streams.plan.Gate)

    @property
    def open(self) -> bool:
        """Whether everything may pass."""
        return self._permits == OPEN

    def attach(self, stage: Stage) -> None:
        """Remember the stage, to wake it."""
        self._stage = stage
        stage.front = self._look if self._skipping or self._hits else None

    def _look(self, edge: Edge, batch: list[Any]) -> list[Any]:
        """What of a batch goes into the call: up to an element to hold, and none when skipping."""
        stage = self._stage
        assert stage is not None, "only its stage asks"
        self._going = edge if edge.pinned else None
        for place, item in enumerate(batch if self._hits else ()):
            if edge.pinned and not place:
                continue
            try:
                if not (item is self._found or any(hit(item) for hit in self._hits)):
                    continue
                self._found = item
            except Undecided:
                item = _NOTHING
            edge.untake(batch, place)
            batch = batch[:place]
            edge.held = place
            if not place and item is not _NOTHING:
                self._hold(stage, edge, item)
            break
        if self._skipping and batch:
            if self.round_trip is not None:
                batch = [self.round_trip(item) for item in batch]
            self.passed(len(batch))
            stage.pass_round(edge, batch)
            return []
        return batch

    def _hold(self, stage: Stage, edge: Edge, item: Any) -> None:
        edge.pinned = True
        # Whatever other parents send, it is the next.
        stage.turn = stage.ins.index(edge)
        self._found = _NOTHING
        self.pause()
        self._held, self._held_on = item, edge
        self.on_hold(item)

    def limit(self, n: int) -> int:
        """How many of the next `n` elements may pass."""
        permits = self._permits
        return n if permits < 0 else min(n, permits)

    def passed(self, n: int) -> None:
        """Use up permits; what was held may be held again."""
        if n and self._going is not None:
            self._going.pinned = False
            self._going = None
        if self._permits > 0:
            self._permits = max(0, self._permits - n)


@back_pressure(BackPressureKind.FULL)
def valve(handle: Valve) -> Operator:
    """Let elements through while `handle` is open.

    Marble (`P` pause, `S` step(1), `R` resume)::

        source: --1--2--3--4--5--|
        handle: -----P----S---R---
        result: --1-------2---345|

    A breakpoint closes it before an element; skipping lets elements round the call that follows.

    Emits when: an element comes and the valve is open, or permits are left.
    Back-pressures when: the valve is closed: nothing is taken from the parents, so they stop once
        the edge is full. What is under way in the call goes on.
    Completes when: the parents have completed and everything went through; a closed valve holds
        the completion back.
    Fails when: a parent fails, also while closed.
    Cancels when: every child has cancelled, also while closed.
    Discards: what `drop_held` takes out.

    Args:
        handle: the valve; belongs to one subscription at a time.
    """

    def apply(flow: Flow[Any]) -> Flow[Any]:
        return flow.write(Slot.VALVE, gate=handle)

    return apply
