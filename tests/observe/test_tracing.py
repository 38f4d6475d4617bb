"""Spans of runs and nodes, from real runs through the OpenTelemetry SDK; none where nobody asks."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import StatusCode

from yukta_rx.app import Engine
from yukta_rx.model.message import Message
from yukta_rx.observe.tracing import find_tracer
from yukta_rx.plugins.contract import processor
from yukta_rx.testing.clock import virtual_time

pytestmark = pytest.mark.feature("OBS-05")

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
LINE = {"t": ("SEQUENCE_TRIGGER", {"count": 3}), "p": "HEADERS", "c": "CONSOLE_TERMINAL"}
EDGES = "t > p > c"


class Spans:
    """The spans that have ended."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    @property
    def run(self) -> ReadableSpan:
        [span] = self.named("yukta.run")
        return span

    def node(self, node_id: str) -> ReadableSpan:
        [span] = [
            span
            for span in self.named("yukta.node")
            if dict(span.attributes or {})["yukta.node.id"] == node_id
        ]
        return span


@pytest.fixture
def provide(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets the tracer provider of the program, which can be done only once otherwise."""

    def set_provider(**options: Any) -> Spans:
        provider = TracerProvider(shutdown_on_exit=False, resource=Resource({}), **options)
        exporter = InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
        return Spans(exporter)

    return set_provider


@pytest.fixture
def heard() -> list[Any]:
    return []


@pytest.fixture
def headers(heard: list[Any]) -> Any:
    """A plugin that notes the headers of its messages."""

    @processor("HEADERS", blocking=False)
    def note(msg: Message, cfg: Any, ctx: Any) -> Message:
        heard.append(dict(msg.headers))
        return msg

    return note


def nanoseconds(time: Any) -> int:
    return round(time.timestamp() * 1e6) * 1000


@virtual_time
async def test_a_run_is_one_span_above_one_for_each_node(new_scene, provide, headers) -> None:
    spans = provide()
    async with new_scene() as scene:
        run = scene.run(LINE, EDGES, headers)
        await run.execute()
        await scene.tracker.drained()

        assert spans.run.parent is None
        assert dict(spans.run.attributes) == {
            "yukta.execution.id": run.execution_id,
            "yukta.session.id": "local",
            "yukta.workflow.id": "w",
            "yukta.definition.version": run.prepared.version,
            "yukta.status": "SUCCESS",
        }
        for node_id, module in (("t", "SEQUENCE_TRIGGER"), ("p", "HEADERS")):
            span = spans.node(node_id)
            assert span.parent.span_id == spans.run.context.span_id
            assert dict(span.attributes) == {
                "yukta.execution.id": run.execution_id,
                "yukta.node.id": node_id,
                "yukta.module": module,
                "yukta.status": "SUCCESS",
            }
        assert len(spans.named("yukta.node")) == 3
        assert {span.status.status_code for span in spans.named("yukta.node")} == {StatusCode.UNSET}
        assert not scene.tracker._tracing.spans


@virtual_time
async def test_spans_have_the_times_of_the_events(new_scene, provide, headers) -> None:
    spans = provide()
    async with new_scene() as scene:
        slow = LINE | {"t": ("SEQUENCE_TRIGGER", {"count": 3, "intervalMs": 1000})}
        run = scene.run(slow, EDGES, headers)
        await asyncio.sleep(1)
        await run.execute()
        await scene.tracker.drained()

        node = run.node("p")
        span = spans.node("p")
        assert (span.start_time, span.end_time) == (
            *(nanoseconds(node.started_at), nanoseconds(node.ended_at)),
        )
        assert spans.run.end_time == nanoseconds(run.ended_at)
        assert spans.run.start_time <= nanoseconds(run.started_at)


@virtual_time
async def test_a_failure_is_an_error_that_says_why(new_scene, provide) -> None:
    @processor("BREAK", blocking=False)
    def fail(msg: Message, cfg: Any, ctx: Any) -> Message:
        raise ValueError("no good")

    spans = provide()
    async with new_scene() as scene:
        run = scene.run(LINE | {"p": "BREAK"}, EDGES, fail)
        await run.execute()
        await scene.tracker.drained()

        for span, status in ((spans.node("p"), "FAILURE"), (spans.run, "FAILURE")):
            assert span.attributes["yukta.status"] == status
            assert span.status.status_code is StatusCode.ERROR
            assert "no good" in span.status.description
            assert span.attributes["error.type"]


@virtual_time
async def test_a_late_status_opens_no_span(new_scene, provide, headers) -> None:
    spans = provide()
    async with new_scene() as scene:
        run = scene.run(LINE, EDGES, headers)
        about = {"run": run.execution_id}
        scene.emit("node.status", "p", **about, status="RUNNING", previous="PENDING")
        scene.emit("node.status", "p", **about, status="SUCCESS", previous="RUNNING")
        scene.emit("node.status", "p", **about, status="RUNNING", previous="SUCCESS")
        # One that never worked has none either.
        scene.emit("node.status", "c", **about, status="CANCELLED", previous="PENDING")
        scene.finish(run.execution_id)
        scene.emit("node.status", "t", **about, status="RUNNING", previous="PENDING")
        await scene.tracker.drained()

        assert [dict(span.attributes)["yukta.node.id"] for span in spans.named("yukta.node")] == [
            "p"
        ]
        assert not scene.tracker._tracing.spans


@virtual_time
async def test_what_is_open_when_the_tracker_stops_is_ended(new_scene, provide, headers) -> None:
    spans = provide()
    async with new_scene() as scene:
        run = scene.run(LINE, EDGES, headers)
        about = {"run": run.execution_id}
        scene.emit("node.status", "p", **about, status="RUNNING", previous="PENDING")

    assert len(spans.named("yukta.node")) == len(spans.named("yukta.run")) == 1


# -- the context


@virtual_time
async def test_a_start_with_a_context_is_a_part_of_that(new_scene, provide, headers, heard) -> None:
    spans = provide()
    async with new_scene() as scene:
        run = scene.run(LINE, EDGES, headers, about={"traceparent": PARENT})
        await run.execute()
        await scene.tracker.drained()

        assert f"{spans.run.context.trace_id:032x}" == PARENT.split("-")[1]
        assert f"{spans.run.parent.span_id:016x}" == PARENT.split("-")[2]
        own = f"00-{PARENT.split('-')[1]}-{spans.run.context.span_id:016x}-01"
        assert heard == [{"traceparent": own}] * 3


@virtual_time
async def test_the_current_span_of_the_caller_is_no_parent(new_scene, provide, headers) -> None:
    spans = provide()
    with trace.get_tracer("caller").start_as_current_span("caller"):
        async with new_scene() as scene:
            await scene.run(LINE, EDGES, headers).execute()
            await scene.tracker.drained()

    assert spans.run.parent is None


@virtual_time
async def test_a_trace_that_is_not_sampled_costs_no_spans(
    new_scene, provide, headers, heard
) -> None:
    spans = provide(sampler=ParentBased(ALWAYS_OFF))
    async with new_scene() as scene:
        run = scene.run(LINE, EDGES, headers)
        assert not scene.tracker._tracing.spans
        await run.execute()
        await scene.tracker.drained()

        assert spans.named("yukta.run") == []
        assert not any(int(header["traceparent"][-2:], 16) & 1 for header in heard)


@virtual_time
async def test_without_a_tracer_the_context_is_passed_on_as_it_is(
    new_scene, headers, heard
) -> None:
    assert find_tracer() is None
    async with new_scene() as scene:
        await scene.run(LINE, EDGES, headers, about={"traceparent": PARENT}).execute()
        await scene.run(LINE, EDGES, headers).execute()

        assert heard == [{"traceparent": PARENT}] * 3 + [{}] * 3


@virtual_time
async def test_a_message_of_a_trigger_keeps_the_headers_that_it_has(new_scene, headers) -> None:
    from yukta_rx.plugins.contract import trigger

    heard: list[Any] = []

    @trigger("OWN", blocking=False)
    def own(cfg: Any, ctx: Any) -> Any:
        yield Message.of(1, {"x": "y"})
        yield Message.of(2, {"traceparent": "my own"})

    @processor("HEAR", blocking=False)
    def hear(msg: Message, cfg: Any, ctx: Any) -> Message:
        heard.append(dict(msg.headers))
        return msg

    async with new_scene() as scene:
        run = scene.run(
            {"t": "OWN", "p": "HEAR", "c": "CONSOLE_TERMINAL"},
            EDGES,
            own,
            hear,
            about={"traceparent": PARENT},
        )
        await run.execute()

    assert heard == [{"traceparent": PARENT, "x": "y"}, {"traceparent": "my own"}]


async def test_a_run_below_a_run_is_a_part_of_it(provide) -> None:
    spans = provide()
    inner: dict[str, Any] = {
        "workflowId": "inner",
        "nodes": [
            {"nodeId": "t", "type": "API_TRIGGER"},
            {"nodeId": "out", "type": "COLLECT_TERMINAL"},
        ],
        "edges": [{"source": "t", "target": "out"}],
    }
    outer: dict[str, Any] = {
        "workflowId": "outer",
        "nodes": [
            {"nodeId": "t", "type": "API_TRIGGER"},
            {"nodeId": "sub", "type": "SUB_WORKFLOW", "config": {"workflowId": "inner"}},
            {"nodeId": "out", "type": "COLLECT_TERMINAL"},
        ],
        "edges": [{"source": "t", "target": "sub"}, {"source": "sub", "target": "out"}],
    }
    async with Engine() as engine:
        await (await engine.start("s", inner, {})).wait(10)
        run = await engine.start("s", outer, {"a": 1})
        await run.wait(10)
        await engine.tracker.drained()

    _, child, parent = spans.named("yukta.run")
    assert child.attributes["yukta.workflow.id"] == "inner"
    assert child.parent.span_id == parent.context.span_id
    assert child.context.trace_id == parent.context.trace_id


# -- nothing for nobody

PROGRAM = """
import asyncio, sys
from yukta_rx import Engine
{before}
LINE = {{
    "workflowId": "w",
    "nodes": [
        {{"nodeId": "t", "type": "SEQUENCE_TRIGGER", "config": {{"count": 3}}}},
        {{"nodeId": "c", "type": "NULL_TERMINAL"}},
    ],
    "edges": [{{"source": "t", "target": "c"}}],
}}
async def main():
    async with Engine() as engine:
        run = await engine.start("s", LINE, {{}})
        assert await run.wait(10) == "SUCCESS"
asyncio.run(main())
print(sorted(name for name in sys.modules if name.startswith("opentelemetry")))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "before",
    ["", "sys.modules['opentelemetry'] = None"],
    ids=["not imported", "not installed"],
)
def test_nothing_is_imported_unless_the_program_around_has_done_so(before: str) -> None:
    program = PROGRAM.format(before=before)

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout.strip() in ("[]", "['opentelemetry']" if before else "[]")
