"""Tracing: a span `yukta.run` per run with a span `yukta.node` below it for each node.

Spans are made from the events that the tracker accepted, so a message costs nothing, and a status
that came too late opens none. OpenTelemetry is never imported here unless the program around has
imported it and set a tracer provider; see `docs/reference/features.md`.

Feature: OBS-05.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from yukta_rx import __version__
from yukta_rx.model.log_fields import log_fields
from yukta_rx.model.status import TaskStatus

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

    from yukta_rx.model.events import ExecutionEvent
    from yukta_rx.observe.sampler import LiveRun
    from yukta_rx.observe.state import RunState

log = logging.getLogger(__name__)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_BAD: Final = frozenset(
    (TaskStatus.FAILURE, TaskStatus.ERROR, TaskStatus.TIMED_OUT, TaskStatus.UPSTREAM_FAILED)
)


def find_tracer() -> Tracer | None:
    """Return the tracer of the program around; None if it has set no tracer provider."""
    trace = _api()
    if trace is None:
        return None
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return None
    tracer: Tracer = provider.get_tracer("yukta_rx", __version__)
    return tracer


def _api() -> ModuleType | None:
    # Whoever sets a provider has imported this; so nothing is imported for who does not.
    return sys.modules.get("opentelemetry.trace")


class _RunSpans:
    """The open spans of one run."""

    __slots__ = ("below", "nodes", "run", "tracer")

    def __init__(self, tracer: Tracer, run: Span, below: Context) -> None:
        self.tracer = tracer
        self.run = run
        self.below = below
        self.nodes: dict[str, Span] = {}


class Tracing:
    """The open spans of all runs.

    Attributes:
        spans: by execution id; empty while nobody wants any.
    """

    __slots__ = ("spans",)

    def __init__(self) -> None:
        self.spans: dict[str, _RunSpans] = {}

    def opened(self, run: LiveRun, state: RunState, at: datetime) -> None:
        """A run is about to begin: its span opens, and its messages will carry that.

        Without a tracer, or where it samples nothing of this trace, what the run was started with
        stays what they carry.
        """
        try:
            tracer = find_tracer()
            if tracer is not None:
                self._open(tracer, run, state, at)
        except Exception:
            about = log_fields(run.execution_id)
            log.exception("run %s is not traced", run.execution_id, extra=about)

    def _open(self, tracer: Tracer, run: LiveRun, state: RunState, at: datetime) -> None:
        from opentelemetry import trace
        from opentelemetry.context import Context

        attributes = _attributes(
            execution_id=run.execution_id,
            session_id=run.session_id,
            workflow_id=run.workflow_id,
            definition_version=state.definition_version,
        )
        parent = _parent(run.traceparent)
        span = tracer.start_span(
            "yukta.run", context=parent, attributes=attributes, start_time=_nanoseconds(at)
        )
        own = span.get_span_context()
        if own.is_valid:
            run.traceparent = (
                f"00-{own.trace_id:032x}-{own.span_id:016x}-{int(own.trace_flags):02x}"
            )
        if span.is_recording():
            below = trace.set_span_in_context(span, Context())
            self.spans[run.execution_id] = _RunSpans(tracer, span, below)

    def applied(self, event: ExecutionEvent, state: RunState) -> None:
        """The state of a run took an event in."""
        spans = self.spans.get(event.execution_id)
        if spans is None:
            return
        try:
            if event.type == "node.status":
                self._node(spans, event, state)
            elif event.type == "execution.finished":
                self._finish(spans, event)
        except Exception:
            about = log_fields(event.execution_id)
            log.exception("run %s is traced no further", event.execution_id, extra=about)
            self.spans.pop(event.execution_id, None)

    def _node(self, spans: _RunSpans, event: ExecutionEvent, state: RunState) -> None:
        node_id = event.node_id or ""
        status = TaskStatus(event.data["status"])
        if status is TaskStatus.RUNNING:
            attributes = _attributes(
                execution_id=event.execution_id,
                node_id=node_id,
                module=state.nodes[node_id].module,
            )
            spans.nodes[node_id] = spans.tracer.start_span(
                "yukta.node",
                context=spans.below,
                attributes=attributes,
                start_time=_nanoseconds(event.time),
            )
        elif status.terminal and (span := spans.nodes.pop(node_id, None)) is not None:
            _end(span, status, event.data.get("error"), event.time)

    def _finish(self, spans: _RunSpans, event: ExecutionEvent) -> None:
        del self.spans[event.execution_id]
        for span in spans.nodes.values():
            span.end(end_time=_nanoseconds(event.time))
        status = TaskStatus(event.data["status"])
        _end(spans.run, status, event.data.get("error"), event.time)

    def close(self) -> None:
        """End what is still open: nothing more will be told."""
        for spans in self.spans.values():
            for span in (*spans.nodes.values(), spans.run):
                span.end()
        self.spans.clear()


def _attributes(**values: str) -> dict[str, str]:
    """Return attributes by their names: those of OpenTelemetry have dots, and our own prefix."""
    return {f"yukta.{name.replace('_', '.')}": value for name, value in values.items()}


def _parent(traceparent: str | None) -> Context:
    """What a run is a part of; never what happens to be the current span of the caller."""
    from opentelemetry import trace
    from opentelemetry.context import Context

    if traceparent is None:
        return Context()
    _, trace_id, span_id, flags = traceparent.split("-")
    remote = trace.SpanContext(
        int(trace_id, 16),
        int(span_id, 16),
        is_remote=True,
        trace_flags=trace.TraceFlags(int(flags, 16)),
    )
    return trace.set_span_in_context(trace.NonRecordingSpan(remote), Context())


def _end(span: Span, status: TaskStatus, error: Mapping[str, Any] | None, at: datetime) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_attributes(_attributes(status=str(status)))
    if status in _BAD:
        told = error or {}
        kind = told.get("code") or told.get("exception")
        if kind:
            span.set_attribute("error.type", str(kind))
        span.set_status(Status(StatusCode.ERROR, str(told.get("detail") or status)))
    span.end(end_time=_nanoseconds(at))


def _nanoseconds(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND * 1000
