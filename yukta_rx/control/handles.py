"""Handles for programs that embed the engine: the breakpoints of a node. Feature: CTL-02."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yukta_rx.control.commands import (
    ClearBreakpoint,
    DropHeld,
    EditHeld,
    ReleaseHeld,
    SetBreakpoint,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from yukta_rx.control.commands import Command, CommandResult
    from yukta_rx.control.queries import RunQueries


class BreakpointHandle:
    """The breakpoints of one node of a run, and the message that one holds.

    Args:
        queries: reads of runs.
        send: gives a command.
        execution_id: the run.
        node_id: the node.
    """

    def __init__(
        self,
        queries: RunQueries,
        send: Callable[[Command], Awaitable[CommandResult]],
        execution_id: str,
        node_id: str,
    ) -> None:
        self._queries = queries
        self._send = send
        self._ids = {"execution_id": execution_id, "node_id": node_id}

    async def set_breakpoint(
        self, expression: str | None = None, equals: str | None = None, **more: Any
    ) -> CommandResult:
        """Hold the node before messages; `more` is `op`, `value` or `when`, see `Breakpoint`."""
        return await self._send(
            SetBreakpoint(**self._ids, expression=expression, equals=equals, **more)
        )

    async def clear_breakpoint(self) -> CommandResult:
        """Clear the breakpoints of the node."""
        return await self._send(ClearBreakpoint(**self._ids))

    @property
    def breakpoints(self) -> list[dict[str, Any]]:
        """The breakpoints of the node, with what each has held."""
        return self._queries.breakpoints(**self._ids)

    @property
    def held(self) -> dict[str, Any]:
        """The message that a breakpoint holds: `{id, payload, headers, since}`.

        Raises:
            NotFoundError: it holds none.
        """
        return self._queries.held_message(**self._ids)

    async def release_held(self) -> CommandResult:
        """Let the held message through; ConflictError if there is none."""
        return await self._send(ReleaseHeld(**self._ids))

    async def drop_held(self) -> CommandResult:
        """Discard the held message; ConflictError if there is none."""
        return await self._send(DropHeld(**self._ids))

    async def edit_held(self, payload: Any) -> CommandResult:
        """Give the held message another payload; ConflictError if there is none."""
        return await self._send(EditHeld(**self._ids, payload=payload))
