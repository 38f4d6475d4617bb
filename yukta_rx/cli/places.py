"""How a workflow is named on the command line: SESSION/WORKFLOW.  Feature: DEF-01."""

from __future__ import annotations

from yukta_rx.cli.client import checked_id
from yukta_rx.cli.console import EXIT_USAGE, CliError


def workflow_path(text: str) -> str:
    """Return the path of a workflow on a server.

    Raises:
        CliError: the text does not name one.
    """
    session_id, found, workflow_id = text.partition("/")
    if not found:
        detail = f"{text}: write SESSION/WORKFLOW, as in dev/orders"
        raise CliError(detail, exit_code=EXIT_USAGE)
    session_id = checked_id("SESSION", session_id)
    return f"/api/sessions/{session_id}/workflows/{checked_id('WORKFLOW', workflow_id)}"
