"""REST, OpenAPI, the one door and the command line name the same commands."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from tests.acceptance.test_every_route import serving
from yukta_rx.cli.console import EXIT_USAGE
from yukta_rx.cli.main import execute
from yukta_rx.control.commands import COMMANDS
from yukta_rx.http.openapi import openapi_document
from yukta_rx.http.table import ROUTES

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = [pytest.mark.feature("CTL-01"), pytest.mark.slow, pytest.mark.timeout(180)]

RUN, NODE = "{run}", "even"
LINES: Mapping[str, list[str]] = {
    "PauseWorkflow": ["pause", RUN],
    "ResumeWorkflow": ["resume", RUN],
    "StepWorkflow": ["step", RUN, "-n", "2"],
    "SetStepMode": ["step-mode", RUN, "off"],
    "PauseNode": ["pause", RUN, NODE],
    "ResumeNode": ["resume", RUN, NODE],
    "StepNode": ["step", RUN, NODE],
    "StopNode": ["stop", RUN, NODE],
    "SkipNode": ["skip", RUN, NODE],
    "UnskipNode": ["unskip", RUN, NODE],
    "SetBreakpoint": ["break", RUN, NODE, "payload.n=-1"],
    "ClearBreakpoint": ["break", RUN, NODE, "--clear"],
    "ReleaseHeld": ["held", RUN, NODE, "release"],
    "DropHeld": ["held", RUN, NODE, "drop"],
    "EditHeld": ["held", RUN, NODE, "edit", "--payload", "{}"],
    "SetLimits": ["limits", "set", "--max", "500"],
    "SetPriority": ["priority", RUN, "3"],
    "SignalNode": ["signal", RUN, NODE, "go"],
    "RestartFromNode": ["restart", RUN, NODE],
    "RetryNode": ["retry", RUN, NODE],
    "Recover": ["recover", RUN],
    "StopWorkflow": ["stop", RUN, "--mode", "CANCEL"],
    "RestartWorkflow": ["restart", RUN],
}
"""What gives each command on the command line."""

TICKS = {
    "workflowId": "ticks",
    "nodes": [
        {"nodeId": "in", "type": "SEQUENCE_TRIGGER", "config": {"count": 0, "intervalMs": 50}},
        {"nodeId": "even", "type": "FILTER", "config": {"when": "payload.n % 2 == 0"}},
        {"nodeId": "out", "type": "NULL_TERMINAL"},
    ],
    "edges": [{"source": "in", "target": "even"}, {"source": "even", "target": "out"}],
}


def test_openapi_has_the_route_of_every_command_and_both_doors_know_its_type() -> None:
    document = openapi_document(ROUTES)
    schemas = document["components"]["schemas"]
    doors = json.dumps({name: schemas[name] for name in ("AnyCommand", "BatchBody")})

    for name, command in COMMANDS.items():
        methods = {command.route[0], *command.also}
        assert {method.lower() for method in methods} <= set(
            document["paths"][command.scope + command.route[1]]
        )
        assert f"{name}Command" in doors
        assert f"{name}Item" in doors
        assert schemas[f"{name}Command"]["properties"]["type"]["const"] == name


async def test_the_command_line_gives_every_command_and_no_other() -> None:
    async with serving() as (_, url), aiohttp.ClientSession(url) as session:
        await _ok(session, "PUT", "/api/sessions/s", {"workflows": [TICKS]})
        given = {}
        for name, line in LINES.items():
            started = await _ok(session, "POST", "/api/workflow/s/ticks/start", {})
            words = [word.replace(RUN, started["executionId"]) for word in line]
            await _yukta(url, *words)
            audit = await _ok(session, "GET", "/api/control/audit?limit=500")
            given[name] = [row["command"] for row in audit["items"] if row["via"] == "CLI"][
                len(given) :
            ]

    assert given == {name: [name] for name in COMMANDS}


async def _ok(session: aiohttp.ClientSession, method: str, path: str, body: Any = None) -> Any:
    async with session.request(method, path, json=body) as answer:
        made = await answer.json()
        assert answer.status < 300, made
        return made


async def _yukta(url: str, *words: str) -> None:
    """Run the command line; what it is refused does not matter here."""
    code = await asyncio.to_thread(execute, [*words, "--url", url])
    assert code != EXIT_USAGE, words
