"""The pump: the one loop that moves elements.

Why not RxPY's own motion, one asyncio task per node, or queues: a chain of 247 plain operators
overflows the stack when it is subscribed, a Subject costs 2.6 us per hop and knows no demand,
and tasks with `asyncio.Queue(64)` are an order of magnitude slower than batches. Reactor and
RxJava drain a queue in whichever thread called `request`; here nobody drains anything from a
call: `request`, `cancel`, commands and timers only change fields and wake a stage, and the
pump's turn runs woken stages one after the other. So the stack has a fixed depth, signals are
serial by construction, and a pause can never fall inside a synchronous batch.

One pump serves one event loop, whatever the number of circuits: with a pump per run, N busy
runs would hold up I/O for N turns. A turn lasts at most `TURN` seconds, then asyncio polls; a
circuit gets `SLICE` seconds of it while others wait.

Feature: ENG-01.
"""

from __future__ import annotations

import threading
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    import asyncio

    from yukta_rx.streams.circuit import Circuit
    from yukta_rx.streams.stage import Stage

TURN: Final = 0.002
SLICE: Final = 0.0005
BATCH_SLOW: Final = 0.001

_pumps: WeakKeyDictionary[asyncio.AbstractEventLoop, Pump] = WeakKeyDictionary()


class Pump:
    """Runs the woken stages of every circuit of one event loop, fairly and in slices."""

    # No reference to the loop, which could then never be collected; circuits have one.
    __slots__ = ("__weakref__", "current", "debug", "on", "outside", "runs", "thread")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.runs: deque[Circuit] = deque()
        self.on = False
        self.current: Stage | None = None
        """The stage whose turn it is; another thread may look at it."""
        self.outside = 0
        """Calls that are out in threads; a loop in virtual time waits for them."""
        self.debug = loop.get_debug()
        self.thread = threading.get_ident()

    @staticmethod
    def of(loop: asyncio.AbstractEventLoop) -> Pump:
        """The pump of `loop`, made at first use."""
        pump = _pumps.get(loop)
        if pump is None:
            pump = _pumps[loop] = Pump(loop)
        return pump

    def enqueue(self, circuit: Circuit) -> None:
        """Let `circuit` have a slice of this or the next turn."""
        if self.debug and threading.get_ident() != self.thread:
            raise RuntimeError("a stage was woken from another thread; use Circuit.post")
        circuit.queued = True
        self.runs.append(circuit)
        if not self.on:
            self.on = True
            circuit.loop.call_soon(self.turn)

    def turn(self) -> None:
        """Run woken stages until none is left or the turn's time is used up."""
        runs = self.runs
        now = perf_counter()
        deadline = now + TURN
        try:
            while runs and now < deadline:
                circuit = runs.popleft()
                end = min(deadline, now + SLICE) if runs else deadline
                ready = circuit.ready
                try:
                    while ready and now < end:
                        stage = ready.popleft()
                        stage.queued = False
                        self.current = stage
                        try:
                            stage.run()
                        except (KeyboardInterrupt, SystemExit):
                            raise
                        except BaseException as error:
                            stage.crash(error)
                        before, now = now, perf_counter()
                        took = now - before
                        if stage.count:
                            if took > BATCH_SLOW or stage.count >= stage.quantum:
                                stage.adapt(stage.count, took)
                            stage.count = 0
                finally:
                    if ready:
                        runs.append(circuit)
                    else:
                        circuit.queued = False
        finally:
            self.current = None
            if runs:
                runs[0].loop.call_soon(self.turn)
            else:
                self.on = False
