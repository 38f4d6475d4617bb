"""Run a run again, whole or from a node; each answers with the new run. Feature: CTL-04."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from yukta_rx.control.commands.base import Command, Effect, OfNode
from yukta_rx.control.restart import check_failed

if TYPE_CHECKING:
    from yukta_rx.control.desk import Desk

_ERRORS: Final[tuple[str, ...]] = (
    *("not_restartable", "session_not_found", "workflow_not_found", "version_not_found"),
    *("limit", "queue_full", "workflow_queue_full", "queue_timeout", "shutting_down"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Restart(Command):
    """What all of them share: they are about a run that may have ended, and start one."""

    starts: ClassVar = True
    errors: ClassVar[tuple[str, ...]] = _ERRORS

    def examine(self, desk: Desk) -> None:
        """The run must be kept."""
        desk.restarts.check(self.execution_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartWorkflow(_Restart):
    """A new run with the same start payload, or another; a live run is cancelled first.

    `version` is `same` (what the run ran), `current`, or the number of a saved version.
    """

    route: ClassVar = ("POST", "/restart")
    tool: ClassVar = "RESTART"
    summary: ClassVar = "Run a run again from its beginning"
    body_only: ClassVar = frozenset({"payload"})

    version: str = "same"
    payload: Any = None

    async def perform(self, desk: Desk) -> Effect:
        """Stop the run if it is live, and start the new one."""
        return Effect(
            waits=await desk.restarts.whole(
                self.execution_id,
                version=self.version,
                payload=self.payload,
                actor=desk.actor,
                via=desk.via,
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartFromNode(_Restart, OfNode):
    """A new run of one node and all behind it, with the recorded output of what feeds them.

    A live run goes on. `version` is `same` (what the run ran), `current`, or the number of a saved
    version.
    """

    route: ClassVar = ("POST", "/restart")
    tool: ClassVar = "RESTART_FROM"
    summary: ClassVar = "Run a node and all behind it again"
    errors: ClassVar[tuple[str, ...]] = (*_ERRORS, "node_not_found")

    version: str = "same"

    async def perform(self, desk: Desk) -> Effect:
        """Start the new run."""
        return Effect(
            waits=await desk.restarts.from_node(
                self.execution_id,
                self.node_id,
                version=self.version,
                actor=desk.actor,
                via=desk.via,
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryNode(_Restart, OfNode):
    """As RestartFromNode, for a node that ended FAILURE or TIMED_OUT."""

    route: ClassVar = ("POST", "/retry")
    tool: ClassVar = "RETRY"
    summary: ClassVar = "Run a failed node and all behind it again"
    errors: ClassVar[tuple[str, ...]] = (*_ERRORS, "node_not_failed", "node_not_found")

    def examine(self, desk: Desk) -> None:
        """The run must be kept, and the node have failed."""
        desk.restarts.check(self.execution_id)
        run, state = desk.starter.live.get(self.execution_id), None
        if run is None:
            state = desk.tracker.state(self.execution_id)
        if run is not None:
            check_failed(self.node_id, run.node(self.node_id).status)
        elif state is not None and self.node_id in state.nodes:
            check_failed(self.node_id, state.nodes[self.node_id].status)

    async def perform(self, desk: Desk) -> Effect:
        """Start the new run."""
        return Effect(
            waits=await desk.restarts.retry(
                self.execution_id, self.node_id, actor=desk.actor, via=desk.via
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recover(Command):
    """Go on with a run that a crash ended, from what its nodes had finished. Feature: DUR-03.

    `version` is `same` (what the run ran), `current`, or the number of a saved version. Where
    nodes that had worked are not what they were, it is refused, unless `rerun` begins those and
    all behind them anew.
    """

    route: ClassVar = ("POST", "/recover")
    tool: ClassVar = "RECOVER"
    summary: ClassVar = "Go on with a run that a crash ended"
    errors: ClassVar = (
        *("not_recoverable", "session_not_found", "workflow_not_found", "version_not_found"),
        *("limit", "queue_full", "workflow_queue_full", "queue_timeout", "shutting_down"),
    )
    starts: ClassVar = True

    version: str = "same"
    rerun: bool = False

    def examine(self, desk: Desk) -> None:
        """The run must have been found without an end, and its outputs be kept durably."""
        desk.resumes.check(self.execution_id)

    async def perform(self, desk: Desk) -> Effect:
        """Start the new run."""
        return Effect(
            waits=await desk.resumes.resume(
                self.execution_id,
                version=self.version,
                rerun=self.rerun,
                actor=desk.actor,
                via=desk.via,
            )
        )
