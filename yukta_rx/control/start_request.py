"""StartRequest and Plan: what a start asks for, and what it comes to.

Features: ADM-01, ADM-02, ENG-07.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from yukta_rx.durability.stores.queued_starts import QueuedStart
from yukta_rx.engine.replay import NO_REPLAY, Replay
from yukta_rx.errors import BadInputError
from yukta_rx.model.trace_context import TRACEPARENT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from pathlib import Path

    from yukta_rx.control.commands.breakpoint import SetBreakpoint
    from yukta_rx.control.continuation import Continuation
    from yukta_rx.definitions.prepare import PreparedWorkflow
    from yukta_rx.engine.sub_workflow import ChildRequest, Descent
    from yukta_rx.model.workflow import RunOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    """What is asked for.

    Attributes:
        session_id: the session of the workflow.
        workflow_id: the workflow.
        payload: the start payload; members `yukta.*` are the engine's own.
        labels: shown with the run.
        step_mode: begin paused.
        breakpoints: in force before the first message: the fields of `SetBreakpoint` as JSON.
        options: override the document's `options`.
        idempotency_key: repeats with the same key get the first run.
        actor: who asks.
        via: REST, MCP, CLI, SUPERVISOR or ENGINE.
        traceparent: what the run is a part of, as W3C trace context; None if of nothing.
        continuation: the run that it takes up, whose definition stands for the saved one.
    """

    session_id: str
    workflow_id: str
    payload: Any = None
    labels: Mapping[str, str] = field(default_factory=dict)
    step_mode: bool = False
    breakpoints: Sequence[Mapping[str, Any]] = ()
    options: Mapping[str, Any] | None = None
    idempotency_key: str | None = None
    actor: str = "anonymous"
    via: str = "REST"
    traceparent: str | None = None
    continuation: Continuation | None = None

    def body(self) -> dict[str, Any]:
        """All that makes it another request under the same key, as plain JSON."""
        return {
            "payload": self.payload,
            "labels": dict(self.labels),
            "stepMode": self.step_mode,
            "breakpoints": [dict(point) for point in self.breakpoints],
            "options": None if self.options is None else dict(self.options),
        }

    @property
    def priority(self) -> float:
        """Its place in the queue, higher first."""
        given = self._member("yukta.priority")
        return given if isinstance(given, int | float) else 0

    @property
    def version(self) -> Any:
        """Which version of the workflow it runs; None is the current one."""
        return self._member("yukta.version")

    def _member(self, name: str) -> Any:
        return self.payload.get(name) if isinstance(self.payload, Mapping) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that a run is made of, looked up and checked.

    Attributes:
        request: what was asked for.
        execution_id: the id that the run will have.
        prepared: the workflow, ready to run.
        base_dir: folder that relative paths start from.
        timeout: run deadline in active seconds.
        options: how it is run as a whole.
        breakpoints: in force before the first message.
        descent: where the run stands below the one that was started from outside.
        about: what is shown with the run, see `about_run`.
        child: set for a run that another one starts.
    """

    request: StartRequest
    execution_id: str
    prepared: PreparedWorkflow
    base_dir: Path | None
    timeout: float | None
    options: RunOptions
    breakpoints: tuple[SetBreakpoint, ...]
    descent: Descent
    about: Mapping[str, Any]
    child: ChildRequest | None = None

    @property
    def lineage(self) -> str | None:
        """What the ids of messages derive from; None is the run's own id."""
        if self.child is not None:
            return self.child.lineage
        continuation = self.request.continuation
        return None if continuation is None else continuation.lineage

    @property
    def replay(self) -> Replay:
        """The recorded outputs that stand in for some nodes."""
        continuation = self.request.continuation
        return NO_REPLAY if continuation is None else continuation.replay

    def queued(self, queued_at: datetime) -> QueuedStart:
        """The start as it waits in a store, with all that it takes to plan it again."""
        asked = self.request
        own: dict[str, Any] = {"idempotencyKey": asked.idempotency_key}
        own |= {"actor": asked.actor, "via": asked.via, "traceparent": asked.traceparent}
        if (taken_up := asked.continuation) is not None and taken_up.source is not None:
            own["continuation"] = {"source": taken_up.source, **taken_up.asked}
        return QueuedStart(
            execution_id=self.execution_id,
            session_id=asked.session_id,
            workflow_id=asked.workflow_id,
            definition_version=self.prepared.version,
            priority=asked.priority,
            queued_at=queued_at,
            request={**asked.body(), **own},
        )


class TakenUp(msgspec.Struct, frozen=True, rename="camel"):
    """What a start that waits says of the run that it takes up; see `Continuation.asked`."""

    type: str
    source: str
    node_id: str = ""
    rerun: bool = False


class Asked(msgspec.Struct, frozen=True, rename="camel"):
    """The request in the row of a start that waits, which another version may have written."""

    payload: Any
    labels: dict[str, Any] = {}
    step_mode: bool = False
    breakpoints: tuple[dict[str, Any], ...] = ()
    options: dict[str, Any] | None = None
    idempotency_key: str | None = None
    actor: str = "anonymous"
    via: str = "REST"
    traceparent: str | None = None
    continuation: TakenUp | None = None


def asked_in(start: QueuedStart) -> Asked:
    """What was asked for, as `Plan.queued` wrote it down.

    Raises:
        BadInputError: the row has no such request.
    """
    try:
        return msgspec.convert(start.request, Asked)
    except msgspec.ValidationError as error:
        told = f"the request of queued start {start.execution_id} cannot be read: {error}"
        raise BadInputError(told) from error


def about_run(asked: StartRequest, descent: Descent) -> dict[str, Any]:
    """What is shown with a run: actor, via, labels, depth, restartedFrom, resumedFrom."""
    about = {"actor": asked.actor, "via": asked.via, "labels": dict(asked.labels)}
    if asked.continuation is not None:
        about |= asked.continuation.about()
    if asked.traceparent is not None:
        about[TRACEPARENT] = asked.traceparent
    about |= descent.about()
    return about
