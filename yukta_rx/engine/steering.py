"""Steering a live run: pause, resume, step and stop, of a run and of its nodes. Feature: CTL-02."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from yukta_rx.engine.hold import Hold
from yukta_rx.errors import NotFoundError
from yukta_rx.streams.circuit import StopMode
from yukta_rx.streams.clock import LoopClock, PausableClock

if TYPE_CHECKING:
    from yukta_rx.engine.node import NodeRuntime
    from yukta_rx.engine.sub_workflow import Children


class Steerable:
    """The part of a run that commands act on; its methods are called on the loop and are exact.

    A pause of the whole run holds the runs below it too, and the resume lets those go on that it
    had held. A run that a step makes its parent start goes on by itself.
    """

    children: Children

    def __init__(self, execution_id: str, *, step_mode: bool) -> None:
        self.execution_id = execution_id
        self.nodes: dict[str, NodeRuntime] = {}
        self.paused = False
        self.step_mode = step_mode
        self._hold = Hold()
        self._active = PausableClock(LoopClock(asyncio.get_running_loop()))

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
