"""The OpenAPI document against the server, by a program that knows nothing else of us.

`make test` has it look briefly; `make schemathesis` long and with every phase.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.app import Engine
from yukta_rx.config.settings import Role, Settings
from yukta_rx.http.server import HttpServer

if TYPE_CHECKING:
    from pathlib import Path

BRIEF = 2
EXAMPLES = int(os.environ.get("YUKTA_TEST_EXAMPLES", BRIEF))
CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "missing_required_header",
    "unsupported_method",
    "allow_header_conformance",
    "use_after_free",
    "ensure_resource_availability",
]
"""All but one: it calls every 412 and 422 to well-formed data wrong, and those are right."""

NEED_EVERYTHING = {"unsupported_method", "use_after_free", "ensure_resource_availability"}
"""Checks that make things first and look at them then, or look at routes without their key."""

CONFIG = """
[checks.negative_data_rejection]
# A condition that does not hold is answered before the body is looked at.
expected-statuses = [400, 401, 403, 404, 405, 406, 409, 412, 413, 422, 428, 429]

[parameters]
# What nobody could guess; the last one there is not.
"path.executionId" = {runs}
"path.nodeId" = ["numbers", "say", "start", "nobody"]
# One of the runs never ends.
"query.timeout" = [0, 1]
"""


KEYS = {role: f"the-key-of-a-stranger-who-is-{role.lower()}" for role in map(str, Role)}
LIMITED = {role: f"{key}-of-one-session" for role, key in KEYS.items()}
STRANGERS = [*KEYS.values(), *LIMITED.values()]
if EXAMPLES == BRIEF:
    # Each takes seconds, whatever is asked of it; one that is limited stands for all.
    STRANGERS = [*KEYS.values(), LIMITED["ADMIN"]]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.feature("SEC-03")
async def test_a_stranger_who_reads_the_document_finds_no_fault(
    server: Any, client: Any, make: Any, tmp_path: Path
) -> None:
    runs = await some_runs(client, make)

    await finds_no_fault(server, tmp_path, runs, CHECKS)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.feature("SEC-01")
@pytest.mark.parametrize("key", STRANGERS)
async def test_a_stranger_with_a_key_of_any_role_finds_no_fault(
    key: str, connect: Any, make: Any, tmp_path: Path
) -> None:
    keys = [{"name": role, "key": text, "role": role} for role, text in KEYS.items()]
    for role, text in LIMITED.items():
        keys.append({"name": f"one-{role}", "key": text, "role": role, "sessions": ["s"]})
    async with Engine(Settings(api_keys=keys)) as engine, HttpServer(engine, port=0) as server:
        admin = await connect(server, headers={"X-API-Key": KEYS["ADMIN"]})
        runs = await some_runs(admin, make)

        checks = [check for check in CHECKS if check not in NEED_EVERYTHING]
        await finds_no_fault(server, tmp_path, runs, checks, "--header", f"X-API-Key: {key}")


async def some_runs(client: Any, make: Any) -> list[str]:
    """Workflows in a session, and runs of them: one that goes on, one paused, one that ended."""
    await client.session_with(make.line(), make.echo(), make.chatty(count=0, every_ms=200))
    goes_on = await client.start("chatty")
    paused = await client.start("chatty")
    await client.ok("POST", f"/api/executions/{paused}/pause")
    ended = await client.start("echo", {"a": 1})
    await client.ended(ended)
    return [goes_on, paused, ended, "nobody"]


async def finds_no_fault(
    server: Any, tmp_path: Path, runs: list[str], checks: list[str], *options: str
) -> None:
    """Let schemathesis look at every route of a server."""
    (tmp_path / "schemathesis.toml").write_text(CONFIG.format(runs=runs))
    phases = "fuzzing" if EXAMPLES == BRIEF else "examples,coverage,fuzzing"

    stranger = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json"),
        *("--max-examples", str(EXAMPLES), "--phases", phases, "--checks", ",".join(checks)),
        *options,
        # They never end, so a program that waits for the end of an answer learns nothing from them.
        *("--exclude-path-regex", "^/api/(events/stream|supervisors/.*/events)$"),
        *("--seed", "1", "--generation-database", "none", "--no-color", "--warnings", "off"),
        *("--request-timeout", "20", "--continue-on-failure"),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    report, _ = await stranger.communicate()

    assert stranger.returncode == 0, report.decode()
