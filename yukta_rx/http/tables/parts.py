"""What several routes share: query parameters, headers, lists of errors. Feature: OBS-01."""

from __future__ import annotations

from typing import Final

from yukta_rx.http.prefer import PREFER_DOC
from yukta_rx.http.route import MAX_PAGE, NUMBER, Kind, Query
from yukta_rx.model.ids import ID_PATTERN


def flag(name: str, doc: str) -> Query:
    """A yes or no that is no unless it is given."""
    return Query(name, doc, Kind.BOOLEAN, default=False)


def place(name: str, doc: str, pattern: str) -> Query:
    """Where a list or a stream goes on."""
    return Query(name, doc, high=200, pattern=pattern)


LIMIT: Final = Query("limit", "Items at most.", Kind.WHOLE, default=50, low=1, high=MAX_PAGE)
CURSOR_DOC: Final = "Where the page before ended: its `nextCursor`."
LAST_DOC: Final = "Where to go on; as the header Last-Event-ID."
PAGE: Final = (LIMIT, place("afterCursor", CURSOR_DOC, ID_PATTERN))
NUMBERED: Final = (LIMIT, place("afterCursor", CURSOR_DOC, NUMBER))
TIMEOUT: Final = Query(
    "timeout", "Seconds to wait at most.", Kind.NUMBER, default=30.0, low=0, high=3600
)
NAMED: Final = Query("named", "Whether frames carry `event:`.", Kind.BOOLEAN, default=True)
FOLLOW: Final = (*NUMBERED, place("lastEventId", LAST_DOC, NUMBER), NAMED)
EVENT_FILTERS: Final = (
    Query("executionId", "Events of these runs.", Kind.ID, many=True),
    Query("type", "Events of these types, `node.*` for a family.", many=True, high=100),
    Query("sessionId", "Events of these sessions.", Kind.ID, many=True),
    Query("workflowId", "Events of these workflows.", Kind.ID, many=True),
    Query("nodeId", "Events of these nodes.", Kind.ID, many=True),
)
WITH_WORKFLOWS: Final = Query(
    "include", "`workflows` adds their documents.", Kind.WORD, many=True, words=("WORKFLOWS",)
)
RESUME: Final = {"Last-Event-ID": "Id of the last event that was seen; the stream goes on there."}
IDEMPOTENT: Final = {
    "Idempotency-Key": "A repeat with the same key gets the first run back, with 200.",
}
STARTING: Final = {**IDEMPOTENT, "Prefer": PREFER_DOC}
IF_MATCH: Final = {"If-Match": "Change only what still has this ETag."}
IF_EITHER: Final = {**IF_MATCH, "If-None-Match": "`*` creates only."}
IF_NONE: Final = {"If-None-Match": "An ETag that the client has; then the answer is 304."}

START_ERRORS: Final = (
    *("malformed_json", "session_not_found", "workflow_not_found", "validation"),
    *("unserialisable_payload", "idempotency_key_reused", "shutting_down", "version_not_found"),
    *("limit", "queue_full", "workflow_queue_full", "queue_timeout", "execution_not_running"),
)
EXECUTION: Final = ("execution_not_found",)
WORKFLOW: Final = ("session_not_found", "workflow_not_found")
CHANGE: Final = ("stale_definition", "validation", "precondition_required", "malformed_json")
