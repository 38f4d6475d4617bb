"""The tracer provider of `yukta serve`, where the variables of OpenTelemetry ask for one.

A program that sets its own, as `opentelemetry-instrument` does, keeps that. An embedded engine
never comes here.

Feature: OBS-05.
"""

from __future__ import annotations

import logging
import os
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from opentelemetry.sdk.trace.export import SpanExporter

log = logging.getLogger(__name__)

_ASK: Final = (
    "OTEL_TRACES_EXPORTER",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
)
_NEEDS: Final = {
    "console": "opentelemetry.sdk",
    "otlp": "opentelemetry.exporter.otlp.proto.http",
}
_FLUSH_MS: Final = 5000
"""Milliseconds that spans get at the end to reach where they go."""


def wanted(environ: Mapping[str, str]) -> str | None:
    """Return which exporter is asked for: `otlp` or `console`; None for none, or another."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    if not any(environ.get(name, "").strip() for name in _ASK):
        return None
    name = environ.get("OTEL_TRACES_EXPORTER", "").strip().lower() or "otlp"
    if name == "none":
        return None
    if name not in _NEEDS:
        log.warning("no traces: OTEL_TRACES_EXPORTER is %r; there is otlp, console and none", name)
        return None
    return name


def set_tracer_provider(environ: Mapping[str, str] = os.environ) -> Callable[[], None] | None:
    """Set the tracer provider of this process if that is asked for and there is none.

    Returns:
        What sends the last spans and ends it, which may block; None if nothing was set. Where it
        is asked for and cannot be had, the log says so: the variables may be meant for others.
    """
    name = wanted(environ)
    if name is None or _is_set():
        return None
    if not _is_installed(_NEEDS[name]):
        log.warning("no traces: OTEL_* asks for %s, which needs pip install 'yukta_rx[otel]'", name)
        return None
    from opentelemetry import trace
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create()
    if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: "yukta"}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_exporter(name)))
    trace.set_tracer_provider(provider)

    def end() -> None:
        provider.force_flush(_FLUSH_MS)
        provider.shutdown()

    return end


def _exporter(name: str) -> SpanExporter:
    if name == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        # Whoever reads stdout expects what the command says there.
        return ConsoleSpanExporter(out=sys.stderr)
    made: SpanExporter = import_module(f"{_NEEDS[name]}.trace_exporter").OTLPSpanExporter()
    return made


def _is_set() -> bool:
    trace = sys.modules.get("opentelemetry.trace")
    return trace is not None and not isinstance(
        trace.get_tracer_provider(), trace.ProxyTracerProvider
    )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
