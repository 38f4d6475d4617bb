"""Suspensions: puts runs aside in which nothing happens for a while, and takes them up again.

Feature: CTL-05.
"""

from __future__ import annotations

import asyncio
import logging
import math
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Final

from yukta_rx.control.due import Due
from yukta_rx.engine.suspendable import SuspendableRun
from yukta_rx.model.log_fields import log_fields
from yukta_rx.streams.aio import Tasks

if TYPE_CHECKING:
    from collections.abc import Callable

    from yukta_rx.control.live_runs import LiveRuns
    from yukta_rx.control.run_maker import RunMaker
    from yukta_rx.control.starter import Starter
    from yukta_rx.engine.run import Run
    from yukta_rx.plugins.signals import SignalWaits
    from yukta_rx.streams.clock import LoopClock

LOOKS: Final = 4
"""Looks at a run in the time after which it is put aside."""

SOONEST: Final = 0.05
"""Seconds between two rounds of looks, at least."""

SLICE: Final = 0.002
"""Seconds of looking after which others get their turn."""

AT_ONCE: Final = 100
"""Runs that are taken up at the same time where all have to be."""

log = logging.getLogger(__name__)


class Suspensions:
    """Looks after runs that only wait. Belongs to the loop.

    Args:
        after: seconds in which nothing happens, after which a run is put aside; 0 for never.
        live: the runs.
        maker: makes them again.
        signals: what they wait with.
        clock: tells the time.
        owner: of the runs: lets them execute, and is told of those that cannot be taken up.
    """

    def __init__(
        self,
        after: float,
        live: LiveRuns,
        maker: RunMaker,
        signals: SignalWaits,
        clock: LoopClock,
        owner: Starter,
    ) -> None:
        self._after = after
        self._live = live
        self._maker = maker
        self._signals = signals
        self._clock = clock
        self._owner = owner
        self._seen: dict[str, tuple[Run, tuple[int, ...], float]] = {}
        self._tasks = Tasks(asyncio.get_running_loop(), lambda: None)
        self._watching = False
        self.steer: Callable[[Run], object] = lambda _run: None
        """What is done to a run that is taken up."""
        self._due = Due(clock, live.suspended, self.take_up)
        live.take_up = self.take_up

    def watch(self) -> None:
        """There is a run: look at those there are, as long as there is any."""
        if self._after > 0 and not self._watching:
            self._watching = True
            self._tasks.spawn(self._watch(), "yukta suspend")

    def close(self) -> None:
        """Put no more runs aside."""
        self._after = 0.0
        self._tasks.cancel()

    # -- putting runs aside

    async def _watch(self) -> None:
        try:
            while self._live or self._live.suspended:
                await self._clock.sleep(max(SOONEST, self._after / LOOKS))
                await self._look_round()
        finally:
            # Its task is among the others for a moment yet.
            self._watching = False

    async def _look_round(self) -> None:
        seen, self._seen = self._seen, {}
        began = perf_counter()
        for execution_id in self._signals.asking():
            run = self._live.peek(execution_id)
            if isinstance(run, SuspendableRun):
                self._look(run, seen.get(execution_id))
            if perf_counter() - began > SLICE:
                await self._clock.sleep(0)
                began = perf_counter()

    def _look(self, run: SuspendableRun, seen: tuple[Run, tuple[int, ...], float] | None) -> None:
        mark, now = run.mark(), self._clock.now()
        if seen is None or seen[0] is not run or seen[1] != mark:
            self._seen[run.execution_id] = run, mark, now
        elif now - seen[2] < self._after:
            self._seen[run.execution_id] = seen
        else:
            try:
                if not self.suspend(run):
                    self._seen[run.execution_id] = seen
            except Exception:
                told = "run %s cannot be put aside and goes on, a defect of the engine"
                log.exception(told, run.execution_id, extra=log_fields(run.execution_id))
                # It is not tried again before something happens in it.
                self._seen[run.execution_id] = run, mark, math.inf

    def suspend(self, run: SuspendableRun) -> bool:
        """Put a run aside now, if nothing happens in it but that messages wait; whether it was.

        Raises:
            Exception: it cannot be, whatever the reason, and goes on.
        """
        suspended = self._maker.put_aside(run)
        if suspended is None:
            return False
        del self._live[run.execution_id]
        self._live.suspended[run.execution_id] = suspended
        if suspended.due < math.inf:
            self._due.add(suspended)
        self._owner.report(run)
        return True

    def closed(self, run: Run) -> None:
        """All of a run that was put aside has come to its end."""
        assert isinstance(run, SuspendableRun), "no other is put aside"
        # What its plugins counted while they were closed.
        self._owner.report(run)
        if run.closed is not None:
            run.closed.set()
        left = self._live.suspended.get(run.execution_id)
        if left is not None and left.closed is run.closed:
            left.closed = None

    # -- taking them up

    def take_up(self, execution_id: str) -> Run | None:
        """Make a run again of what is left of it; None if that fails, and it is over."""
        suspended = self._live.suspended.pop(execution_id)
        try:
            run = self._maker.again(suspended)
        except Exception as error:
            told = "run %s cannot be taken up again, a defect of the engine"
            log.exception(told, execution_id, extra=log_fields(execution_id))
            self._owner.lost(suspended, error)
            return None
        self._live[execution_id] = run
        self._owner.begin(run)
        self.steer(run)
        return run

    async def take_up_all(self) -> None:
        """Take all of them up, a few at a time, where `steer` ends each, and wait for that."""
        while some := list(islice(self._live.suspended, AT_ONCE)):
            for execution_id in some:
                if execution_id in self._live.suspended:
                    self.take_up(execution_id)
                    await self._clock.sleep(0)
            for execution_id in some:
                await self._owner.ended(execution_id)
