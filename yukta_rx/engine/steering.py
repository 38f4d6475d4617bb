"""Steering a live run: pause, resume, step and stop, of a run and of its nodes.

Features: CTL-02, CTL-03.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from yukta_rx.engine.hold import Hold
from yukta_rx.errors import NotFoundError
from yukta_rx.model.status import TaskStatus
from yukta_rx.streams.circuit import StopMode
from yukta_rx.streams.clock import PausableClock

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from yukta_rx.config.settings import Settings
    from yukta_rx.engine.node import NodeRuntime
    from yukta_rx.engine.opening import OpenPlugins
    from yukta_rx.engine.sub_workflow import Children
    from yukta_rx.engine.voice import Voice
    from yukta_rx.streams.circuit import Circuit
    from yukta_rx.streams.clock import LoopClock, Timer


CANCEL_GRACE: Final = 5.0
"""Seconds that cancelled calls get to clean up before the run ends without them."""


class Steerable:
    """The part of a run that commands act on; its methods are called on the loop and are exact.

    A pause of the whole run holds the runs below it too, and the resume lets those go on that it
    had held. A run that a step makes its parent start goes on by itself.
    """

    __slots__ = (
        *("_active", "_circuit", "_clock", "_draining", "_due", "_gave_up", "_hold", "_opening"),
        *("_settings", "_timeout", "_timers", "_verdict", "execution_id", "nodes", "paused"),
        *("status", "step_mode", "taps"),
    )

    suspended = False
    """Whether it was put aside, and another object goes on with it."""

    children: Children
    _plugins: OpenPlugins
    _voice: Voice

    def __init__(
        self,
        execution_id: str,
        clock: LoopClock,
        settings: Settings,
        timeout: float | None,
        step_mode: bool,
    ) -> None:
        self.execution_id = execution_id
        self.status = TaskStatus.PENDING
        self.nodes: dict[str, NodeRuntime] = {}
        self.paused = False
        self.step_mode = step_mode
        self._settings = settings
        self._timeout = timeout
        self._clock = clock
        self._hold = Hold()
        self._active = PausableClock(clock)
        self._timers: list[Timer] = []
        self._opening: asyncio.Task[None] | None = None
        self._gave_up: asyncio.Future[None] | None = None
        self._circuit: Circuit | None = None
        self._draining = False
        self._due: float | None = None
        """When its deadline ends, in active seconds."""
        self.taps = 0
        """How many look into its edges."""
        self._verdict: tuple[TaskStatus, dict[str, Any] | None] | None = None
        """Why it ends other than by itself: the first reason stands."""

    def node(self, node_id: str) -> NodeRuntime:
        """One of its nodes.

        Raises:
            NotFoundError: there is no such node.
        """
        node = self.nodes.get(node_id)
        if node is None:
            raise NotFoundError(
                f"run {self.execution_id} has no node {node_id}",
                code="node_not_found",
                nodeId=node_id,
            )
        return node

    def hold(self, on: bool) -> None:
        """Let no node emit, or all go on: those who take down what the run says are behind."""
        self._hold.set(on)

    def pause(self, node_id: str | None = None) -> bool:
        """Take no new messages and freeze the clocks, of one node or of all.

        Returns:
            False if that was so already.

        Raises:
            NotFoundError: there is no such node.
        """
        if node_id is not None:
            return self.node(node_id).pause()
        changed = not self.paused
        if changed:
            self.paused = True
            self._active.pause()
            self.children.pause()
        for node in self.nodes.values():
            changed = node.pause() or changed
        return changed

    def resume(self, node_id: str | None = None) -> bool:
        """Go on, with one node or with all, whichever way they were paused.

        Returns:
            False if nothing was paused.

        Raises:
            NotFoundError: there is no such node.
        """
        if node_id is not None:
            return self.node(node_id).resume()
        changed = self.paused
        if changed:
            self.paused = False
            self._active.resume()
            self.children.resume()
        for node in self.nodes.values():
            changed = node.resume() or changed
        return changed

    def let_go(self) -> None:
        """Go on and hold nothing any more, also no message that a breakpoint is about."""
        for node in self.nodes.values():
            node.clear_breakpoints()
        self.resume()

    def step(self, n: int = 1, node_id: str | None = None) -> None:
        """Let exactly `n` messages through one node, or through each node, then stay paused.

        Raises:
            NotFoundError: there is no such node.
            ValueError: `n` is below 1.
        """
        if n < 1:
            raise ValueError(f"step needs 1 message or more, not {n}")
        if node_id is not None:
            self.node(node_id).step(n)
            return
        self.pause()
        for node in self.nodes.values():
            node.step(n)

    def set_step_mode(self, enabled: bool) -> bool:
        """Pause the run so that it moves only when stepped, or let it go on; False if it was so."""
        changed = self.step_mode is not enabled
        self.step_mode = enabled
        return (self.pause() if enabled else self.resume()) or changed

    def stop_node(self, node_id: str, mode: StopMode = StopMode.DRAIN) -> bool:
        """End one node; its children see a normal end and the run goes on.

        Returns:
            False if it has ended, or is about to.

        Raises:
            NotFoundError: there is no such node.
        """
        return self.node(node_id).stop(mode)

    # -- stopping; on the loop

    def stop(self, mode: StopMode = StopMode.DRAIN) -> bool:
        """End the run: DRAIN finishes what was emitted, CANCEL cancels calls, KILL waits for none.

        A drain that takes longer than `yukta.stop.drain-timeout` is cut off by a cancel; a cancel
        that a plugin ignores for `CANCEL_GRACE` seconds, by a kill.

        Returns:
            False if it is over, or drains already.
        """
        if self.status.terminal or (self._circuit is not None and self._circuit.done.done()):
            return False
        if mode is not StopMode.DRAIN:
            self.end_with(TaskStatus.CANCELLED, None, mode)
            return True
        if self._draining:
            return False
        self._draining = True
        self.let_go()
        self._after(self._settings.stop.drain_timeout.total_seconds(), self._drain_overdue)
        if self._circuit is not None:
            self._circuit.stop(mode)
        return True

    def end_with(
        self, status: TaskStatus, error: dict[str, Any] | None, mode: StopMode = StopMode.CANCEL
    ) -> None:
        """Stop everything; the first reason to do so decides how the run ends."""
        if self._verdict is None:
            self._verdict = status, error
            self._after(CANCEL_GRACE, self._give_up)
        for node in self.nodes.values():
            if node.context is not None:
                node.context.cancelled = True
        if self._opening is not None:
            self._opening.cancel()
        if self._circuit is not None:
            self._circuit.stop(mode)
        if mode is StopMode.KILL:
            # Milder ends reach them through the nodes that wait for them.
            self.children.kill()

    def _drain_overdue(self) -> None:
        self._voice.warn("run %s: not drained in time, cancelling the rest", self.execution_id)
        self.end_with(TaskStatus.STOPPED, None)

    def _overdue(self) -> None:
        detail = f"the run was active for its whole deadline of {self._timeout:g} s"
        self.end_with(TaskStatus.TIMED_OUT, {"code": "deadline_exceeded", "detail": detail})

    def _give_up(self) -> None:
        if self._circuit is not None:
            if self._circuit.done.done():
                return
            stuck = ", ".join(self._circuit.unfinished()) or "a plugin"
        elif self._plugins.opening is not None:
            stuck = f"the `open` of node {self._plugins.opening}"
        else:
            return
        told = "run %s ends without %s, which did not react to cancellation for %g s"
        self._voice.warn(told, self.execution_id, stuck, CANCEL_GRACE)
        if self._gave_up is not None:
            self._gave_up.set_result(None)
        if self._circuit is not None:
            self._circuit.stop(StopMode.KILL)

    def _after(self, seconds: float, callback: Callable[[], None]) -> None:
        self._timers.append(self._clock.call_at(self._clock.now() + seconds, callback))
