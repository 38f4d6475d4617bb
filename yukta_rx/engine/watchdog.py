"""Watchdog: notices that the event loop is held, and names the node that holds it while it does.

A thread asks the loop every quarter of the limit to come by; that is all it costs the loop. Where
no answer comes in time it looks at what the loop's thread is doing. It cannot look while a plugin
keeps the interpreter's lock inside one call of C code, or while the process is stopped: then it
says afterwards that everything stood still.

Feature: EXT-01.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Self

from yukta_rx.model.log_fields import log_fields
from yukta_rx.streams.pump import Pump

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType

    from yukta_rx.engine.node import NodeRuntime
    from yukta_rx.engine.run import Run
    from yukta_rx.metrics import Meters

log = logging.getLogger(__name__)

CHECKS: Final = 4
"""Looks per limit."""

WINDOW: Final = 30.0
"""Seconds of a window over which the largest lag is kept; two of them count."""

UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds the loop.

    Attributes:
        name: for people: a node of a run, or a task.
        place: file, line and function that is executed.
        run: the run, if it is a node's doing.
        node: the node.
    """

    name: str
    place: str
    run: Run | None = None
    node: NodeRuntime | None = None

    @property
    def about(self) -> dict[str, str]:
        """What a record of the log about it carries."""
        if self.run is None or self.node is None:
            return {}
        return log_fields(self.run.execution_id, self.node.id)


class Watchdog:
    """Watches the loop that it is entered on; `async with Watchdog(...)`.

    Where the limit is 0, and on a loop in virtual time, which is never late, nothing is watched.

    Args:
        limit: seconds that the loop may be held.
        runs: the live runs, with those below them.
        meters: where blocks are counted and the lag is shown; None for nowhere.
    """

    def __init__(
        self, limit: float, runs: Callable[[], Iterable[Run]], meters: Meters | None = None
    ) -> None:
        self._limit = limit
        self._step = limit / CHECKS
        self._runs = runs
        self._meters = meters
        self._lag = _Lag()
        self._stop = threading.Event()
        self._asked = self._answered = 0.0
        self._holder: Holder | None = None

    @property
    def lag(self) -> float:
        """The longest, in seconds, that the loop was late in the last half to whole minute."""
        return self._lag.read(monotonic())

    async def __aenter__(self) -> Self:
        """Start watching the running loop."""
        self._loop = asyncio.get_running_loop()
        self._watched = self._limit > 0 and not hasattr(self._loop, "wall_time")
        if self._watched:
            if self._meters is not None:
                self._meters.watch("yukta.loop.lag", lambda: self.lag)
            self._pump = Pump.of(self._loop)
            self._over = self._loop.create_future()
            self._thread_id = threading.get_ident()
            threading.Thread(target=self._watch, name="yukta watchdog", daemon=True).start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop watching, and wait for the thread."""
        if self._watched:
            self._stop.set()
            await self._over

    # -- on the loop

    def _come_by(self) -> None:
        """The loop has come round."""
        self._answered = now = monotonic()
        late = now - self._asked
        self._lag.add(now, late)
        holder, self._holder = self._holder, None
        if late < self._limit:
            return
        if holder is None:
            log.warning(
                "the event loop stood still for %.0f ms: the process was stopped or got no CPU, or "
                "a plugin kept the interpreter's lock",
                late * 1000,
            )
        else:
            told = "%s held the event loop for %.0f ms"
            log.warning(told, holder.name, late * 1000, extra=holder.about)
        kind = UNKNOWN
        if holder is not None and holder.run is not None and holder.node is not None:
            kind = holder.node.prepared.spec.type
            holder.run.note(
                holder.node.id,
                f"held the event loop for {late * 1000:.0f} ms, at {holder.place}; what computes "
                "or waits for that long belongs in a thread",
            )
        if self._meters is not None:
            self._meters.counter("yukta.loop.blocked", module=kind).add()

    # -- in the thread

    def _watch(self) -> None:
        try:
            while not self._stop.is_set():
                self._ask()
        except Exception:
            log.exception("the watchdog ends")
        finally:
            # Where the loop was closed without leaving the context there is nobody to tell.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._over.set_result, None)

    def _ask(self) -> None:
        self._asked = asked = monotonic()
        try:
            self._loop.call_soon_threadsafe(self._come_by)
        except RuntimeError:
            self._stop.set()
            return
        # Whole steps: time in which this thread did not run either says nothing of the loop.
        steps = 0
        while not self._stop.wait(self._step) and self._answered < asked:
            steps += 1
            if steps == CHECKS:
                self._look(asked)

    def _look(self, asked: float) -> None:
        """Find out who holds the loop, and say so."""
        frame = sys._current_frames().get(self._thread_id)
        if frame is None:
            return
        try:
            self._holder = holder = self._find(frame)
        except RuntimeError:
            # Runs came or went while they were looked through: the loop has moved on.
            return
        if self._answered >= asked:
            # It came by meanwhile: what was found may be somebody else.
            self._holder = None
            return
        held = (monotonic() - asked) * 1000
        told = "%s holds the event loop, %.0f ms by now, at %s"
        log.warning(told, holder.name, held, holder.place, extra=holder.about)

    def _find(self, frame: FrameType) -> Holder:
        task = asyncio.current_task(self._loop)
        stage = self._pump.current
        for run in list(self._runs()):
            node = run.worker(task, stage)
            if node is not None:
                name = f"node {node.id} of run {run.execution_id}"
                return Holder(name, _place(frame, _file_of(node.prepared.spec.fn)), run, node)
        if task is not None:
            name = f"the task `{task.get_name()}`"
        else:
            name = "a callback" if stage is None else f"the stage `{stage.plan.name or '?'}`"
        return Holder(name, _place(frame, None))


class _Lag:
    """The largest of the numbers added lately; two windows, so that each is seen for a while."""

    def __init__(self) -> None:
        self._began = 0.0
        self._now = self._before = 0.0

    def add(self, now: float, value: float) -> None:
        self._turn(now)
        self._now = max(self._now, value)

    def read(self, now: float) -> float:
        self._turn(now)
        return max(self._now, self._before)

    def _turn(self, now: float) -> None:
        past = now - self._began
        if past >= WINDOW:
            self._before = self._now if past < 2 * WINDOW else 0.0
            self._now, self._began = 0.0, now


def _file_of(fn: Any) -> str | None:
    """The file of a plugin, as the frames of its code name it."""
    code = getattr(inspect.unwrap(fn), "__code__", None)
    if code is not None:
        return str(code.co_filename)
    return getattr(sys.modules.get(getattr(fn, "__module__", "")), "__file__", None)


def _place(frame: FrameType, file: str | None) -> str:
    """Where the plugin is; the innermost place of all if its file is not on the stack."""
    own: FrameType | None = frame
    while own is not None and own.f_code.co_filename != file:
        own = own.f_back
    if own is None or own is frame:
        return _shown(frame)
    return f"{_shown(own)} (in {_shown(frame)})"


def _shown(frame: FrameType) -> str:
    code = frame.f_code
    return f"{Path(code.co_filename).name}:{frame.f_lineno} in {code.co_name}"
