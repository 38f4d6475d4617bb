"""The OpenAPI document against the server, by a program that knows nothing else of us.

`make test` has it look briefly; `make schemathesis` long and with every phase.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

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

CONFIG = """
[checks.negative_data_rejection]
# A condition that does not hold is answered before the body is looked at.
expected-statuses = [400, 401, 403, 404, 405, 406, 409, 412, 413, 422, 428, 429]
"""


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.feature("SEC-03")
async def test_a_stranger_who_reads_the_document_finds_no_fault(
    server: Any, client: Any, make: Any, tmp_path: Path
) -> None:
    await client.session_with(make.line(), make.echo())
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    phases = "fuzzing" if EXAMPLES == BRIEF else "examples,coverage,fuzzing"

    stranger = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json"),
        *("--max-examples", str(EXAMPLES), "--phases", phases, "--checks", ",".join(CHECKS)),
        # It never ends, so a program that waits for the end of an answer learns nothing from it.
        *("--exclude-path-regex", "^/api/events/stream$"),
        *("--seed", "1", "--generation-database", "none", "--no-color", "--warnings", "off"),
        *("--request-timeout", "20", "--continue-on-failure"),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    report, _ = await stranger.communicate()

    assert stranger.returncode == 0, report.decode()
