"""What the records of the log carry beside their text: which run, node and request they are about.

The engine never configures logging. Whoever does finds these as attributes of a record, so that
nobody has to read them out of a sentence.  Feature: OBS-02.
"""

from __future__ import annotations

from typing import Final

EXECUTION_ID: Final = "executionId"
NODE_ID: Final = "nodeId"
REQUEST_ID: Final = "requestId"

LOG_FIELDS: Final = (EXECUTION_ID, NODE_ID, REQUEST_ID)
"""Names of the attributes; a record has those that it is about."""


def log_fields(
    execution_id: str | None = None,
    node_id: str | None = None,
    *,
    request_id: str | None = None,
) -> dict[str, str]:
    """Return the argument `extra` of a call of a logger; what is None is left out."""
    fields = {}
    if execution_id is not None:
        fields[EXECUTION_ID] = execution_id
    if node_id is not None:
        fields[NODE_ID] = node_id
    if request_id is not None:
        fields[REQUEST_ID] = request_id
    return fields
