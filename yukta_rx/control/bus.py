"""PluginBus: heartbeats and statistics of one node of a live run, for programs in the process.

A narrow channel beside the commands, for a program that works for a node: a sidecar that does the
work of a plugin says that it lives, and looks at what the plugin has counted. Neither changes what
a run does, so neither is reviewed or audited. A signal does, so it is refused here: the command
SignalNode gives one. Nothing of this has a route.

Feature: CTL-08.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol

from yukta_rx.errors import BadRequestError, ControlRejectedError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from yukta_rx.control.desk import Desk
    from yukta_rx.engine.node import NodeRuntime


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """One node of one run, of one session."""

    session_id: str
    execution_id: str
    node_id: str


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Silent work goes on: the node's idle clock starts again."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """What has the node counted?"""


@dataclass(frozen=True, slots=True)
class RawSignal:
    """A signal that nobody would review; always refused."""

    name: str


class BusHandler(Protocol):
    """What is done with one kind of body."""

    def handle(self, node: NodeRuntime, body: Any) -> Any:
        """Do it, on the loop, without waiting; what it returns is the answer."""


class HeartbeatHandler:
    """Passes a sign of life on to the node."""

    def handle(self, node: NodeRuntime, body: Heartbeat) -> bool:
        """Restart the idle clock; False if the node's plugin is not open (any more)."""
        if node.context is None or node.context.cancelled:
            return False
        node.context.heartbeat()
        return True


class StatisticsHandler:
    """Tells what a node has counted."""

    def handle(self, node: NodeRuntime, body: Statistics) -> dict[str, Any]:
        """The counters of `NodeState`, how many beats there were, and what the plugin counted."""
        beats = 0 if node.context is None else node.context.beats
        return {**node.counters, "beats": beats, "counts": dict(node.counts)}


class SignalHandler:
    """Refuses: a signal goes through review and audit."""

    def handle(self, node: NodeRuntime, body: RawSignal) -> None:
        """Raise ControlRejectedError, always."""
        raise ControlRejectedError(
            "plugin-bus",
            f"a signal such as `{body.name}` for node {node.id} is a command: send SignalNode",
        )


HANDLERS: Final[Mapping[type, BusHandler]] = MappingProxyType(
    {
        Heartbeat: HeartbeatHandler(),
        Statistics: StatisticsHandler(),
        RawSignal: SignalHandler(),
    }
)
"""What is done with each kind of body."""


class PluginBus:
    """Brings a body to a node of a live run. Belongs to the loop.

    Args:
        desk: knows the live runs.
        handlers: by the type of body; `HANDLERS` by default.
    """

    def __init__(self, desk: Desk, handlers: Mapping[type, BusHandler] = HANDLERS) -> None:
        self._desk = desk
        self._handlers = handlers

    def send(self, address: NodeAddress, body: Any) -> Any:
        """Hand a body to the node's handler and return the answer.

        Raises:
            NotFoundError: there is no such run in that session, or no such node.
            ConflictError: the run has ended, or has not begun.
            ControlRejectedError: the body is a signal.
            BadRequestError: there is no handler for such a body.
        """
        run = self._desk.run(address.execution_id)
        if run.session_id != address.session_id:
            raise NotFoundError(
                f"session {address.session_id} has no run {address.execution_id}",
                code="execution_not_found",
                executionId=address.execution_id,
            )
        handler = self._handlers.get(type(body))
        if handler is None:
            known = ", ".join(kind.__name__ for kind in self._handlers)
            raise BadRequestError(
                f"the plugin bus carries {known}, not {type(body).__name__}",
                code="invalid_parameter",
                parameter="body",
            )
        return handler.handle(run.node(address.node_id), body)
