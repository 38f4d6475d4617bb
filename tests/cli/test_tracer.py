"""The tracer provider that `yukta serve` sets, where variables of OpenTelemetry ask for one."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from yukta_rx.cli.tracer import wanted

pytestmark = pytest.mark.feature("OBS-05")

TICK = ("t", "SEQUENCE_TRIGGER", {"count": 3})


@pytest.mark.parametrize(
    ("variables", "exporter"),
    [
        ({}, None),
        ({"OTEL_SERVICE_NAME": "x"}, None),
        ({"OTEL_TRACES_EXPORTER": ""}, None),
        ({"OTEL_TRACES_EXPORTER": "none"}, None),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, None),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, None),
        ({"OTEL_TRACES_EXPORTER": "console", "OTEL_SDK_DISABLED": "true"}, None),
        ({"OTEL_TRACES_EXPORTER": "Console"}, "console"),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, "otlp"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, "otlp"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, "otlp"),
    ],
)
def test_the_variables_say_where_spans_go(variables, exporter) -> None:
    assert wanted(variables) == exporter


@pytest.mark.slow
def test_a_server_sends_the_spans_of_its_runs(serve, workflow, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    (tmp_path / "flows" / "s").mkdir(parents=True)
    workflow(TICK, ("show", "CONSOLE_TERMINAL"), name="flows/s/flow.json")
    server = serve("--apply", "flows")
    run = server.ask("start", "s/flow", "--wait").out.splitlines()[0]

    code, said = server.end()

    # One object after the other, each over many lines.
    spans, rest = [], said[said.index("{") :]
    while rest.startswith("{"):
        span, end = json.JSONDecoder().raw_decode(rest)
        spans.append(span)
        rest = rest[end:].lstrip()
    assert code == 0
    assert sorted(span["name"] for span in spans) == ["yukta.node", "yukta.node", "yukta.run"]
    [whole] = [span for span in spans if span["name"] == "yukta.run"]
    assert whole["attributes"]["yukta.execution.id"] == run
    resource = whole["resource"]["attributes"]
    assert (resource["service.name"], resource["deployment.environment"]) == ("yukta", "test")


ASKED = """
import logging, sys
from yukta_rx.cli.tracer import set_tracer_provider

logging.basicConfig()
{before}
ended = set_tracer_provider({variables})
print(ended, [name for name in sys.modules if "opentelemetry.sdk" in name])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "variables", "told"),
    [
        ("", {}, ""),
        (
            "sys.path_importer_cache.clear(); sys.path[:] = []",
            {"OTEL_TRACES_EXPORTER": "otlp"},
            "pip",
        ),
        ("", {"OTEL_TRACES_EXPORTER": "zipkin"}, "there is otlp, console and none"),
    ],
    ids=["nobody asks", "not installed", "not known"],
)
def test_nothing_is_imported_where_there_is_nothing_to_send_to(before, variables, told) -> None:
    program = ASKED.format(before=before, variables=variables)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert done.stdout == "None []\n"
    assert told in done.stderr
    assert bool(told) is bool(done.stderr)


def test_a_provider_of_the_program_around_stays() -> None:
    program = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from yukta_rx.cli.tracer import set_tracer_provider

own = TracerProvider()
trace.set_tracer_provider(own)
print(set_tracer_provider({"OTEL_TRACES_EXPORTER": "console"}), trace.get_tracer_provider() is own)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert (done.stdout, done.stderr) == ("None True\n", "")
