"""Sessions and their workflows. Features: DEF-01, DUR-05."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yukta_rx.control.commands import StopWorkflow
from yukta_rx.control.queries import COUNT_CAP, ExecutionQuery
from yukta_rx.definitions.service import ANY
from yukta_rx.errors import (
    BadRequestError,
    Fault,
    PreconditionRequiredError,
    ValidationError,
)
from yukta_rx.http.headers import entity_tags
from yukta_rx.model.ids import id_fault
from yukta_rx.model.status import TaskStatus
from yukta_rx.streams.circuit import StopMode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiohttp import web

    from yukta_rx.definitions.views import SessionView
    from yukta_rx.http.call import Call

LIVE = frozenset(status for status in TaskStatus if not status.terminal)
_END_WITHIN = 30.0


async def listing(call: Call) -> web.StreamResponse:
    """List sessions, by id."""
    found = await call.engine.definitions.sessions()
    views = [view for view in found if call.actor.sees(view.session_id)]
    counters = _counters(call, views)
    shown = []
    for view in views:
        item = view.as_dict("workflows" in _included(call))
        shown.append((view.session_id, item | {"counters": counters[view.session_id]}))
    return call.json(_page(call, shown))


async def show(call: Call) -> web.StreamResponse:
    """Show a session; its ETag is about what can be changed, not about the counters."""
    view = await call.engine.definitions.get_session(call.ids["sessionId"])
    shown = view.as_dict("workflows" in _included(call))
    shown["counters"] = _counters(call, [view])[view.session_id]
    return call.tagged(shown, view.etag)


async def apply(call: Call) -> web.StreamResponse:
    """Make a session what the body says, workflows included."""
    session_id = call.ids["sessionId"]
    document = {"sessionId": session_id, **_object(call)}
    if document["sessionId"] != session_id:
        detail = f"must be {session_id}, as in the address"
        raise ValidationError([Fault("/sessionId", "invalid_id", detail)])
    if not isinstance(document.get("workflows", []), list):
        raise ValidationError([Fault("/workflows", "invalid_type", "must be a list of workflows")])
    current = None
    if several(call):
        current = (await call.engine.definitions.get_session(session_id)).etag
    if_match, if_none_match = preconditions(call, current)
    applied = await call.engine.definitions.apply_session(
        document,
        if_match=if_match,
        if_none_match=if_none_match,
        dry_run=call.query["dryRun"],
        actor=call.actor.name,
    )
    made = not applied.existed and not call.query["dryRun"]
    headers = {} if call.query["dryRun"] else {"ETag": f'"{applied.session.etag}"'}
    if made:
        headers["Location"] = f"/api/sessions/{session_id}"
    return call.json(applied.as_dict(), 201 if made else 200, headers)


async def patch(call: Call) -> web.StreamResponse:
    """Change settings of a session (RFC 7396)."""
    session_id = call.ids["sessionId"]
    current = None
    if several(call):
        current = (await call.engine.definitions.get_session(session_id)).etag
    if_match, _ = preconditions(call, current)
    view = await call.engine.definitions.patch_session(session_id, _object(call), if_match=if_match)
    return call.json(view.as_dict(), headers={"ETag": f'"{view.etag}"'})


async def remove(call: Call) -> web.StreamResponse:
    """Remove a session and its workflows."""
    session_id = call.ids["sessionId"]
    if call.query["force"]:
        await _end_runs(call, session_id)
    await call.engine.definitions.delete_session(session_id)
    return call.nothing()


async def workflows(call: Call) -> web.StreamResponse:
    """List the workflows of a session, each with its newest run."""
    session_id = call.ids["sessionId"]
    records = await call.engine.definitions.workflows(session_id)
    wanted = ExecutionQuery(session_ids=frozenset({session_id}))
    newest: dict[str, dict[str, Any]] = {}
    for run in call.engine.gateway.executions(wanted, COUNT_CAP).items:
        short = {"executionId": run["executionId"], "status": run["status"]}
        newest.setdefault(run["workflowId"], short)
    shown = []
    for record in records:
        item = {name: value for name, value in record.as_dict().items() if value is not None}
        if record.workflow_id in newest:
            item["newestRun"] = newest[record.workflow_id]
        shown.append((record.workflow_id, item))
    return call.json(_page(call, shown))


async def show_workflow(call: Call) -> web.StreamResponse:
    """Show a workflow document."""
    record = await call.engine.definitions.get(call.ids["sessionId"], call.ids["workflowId"])
    return call.tagged(record.document, record.definition_version)


async def save_workflow(call: Call) -> web.StreamResponse:
    """Save a workflow."""
    session_id, workflow_id = call.ids["sessionId"], call.ids["workflowId"]
    current = None
    if several(call):
        record = await call.engine.definitions.get(session_id, workflow_id)
        current = record.definition_version
    if_match, if_none_match = preconditions(call, current)
    saved = await call.engine.definitions.save(
        session_id,
        workflow_id,
        call.body,
        if_match=if_match,
        if_none_match=if_none_match,
        note=call.query["note"],
        actor=call.actor.name,
    )
    headers = {"ETag": f'"{saved.record.definition_version}"'}
    if saved.created:
        headers["Location"] = f"/api/sessions/{session_id}/workflows/{workflow_id}"
    return call.json(saved.as_dict(), 201 if saved.created else 200, headers)


async def remove_workflow(call: Call) -> web.StreamResponse:
    """Remove a workflow."""
    session_id, workflow_id = call.ids["sessionId"], call.ids["workflowId"]
    current = None
    if several(call):
        record = await call.engine.definitions.get(session_id, workflow_id)
        current = record.definition_version
    if_match, _ = preconditions(call, current)
    await call.engine.definitions.delete(session_id, workflow_id, if_match=if_match)
    return call.nothing()


async def validate(call: Call) -> web.StreamResponse:
    """Examine a workflow document; also a wrong one is a good question."""
    document = call.body
    workflow_id = call.ids.get("workflowId")
    faults: list[Fault] = []
    if workflow_id is not None and isinstance(document, dict):
        document = {"workflowId": workflow_id, **document}
        if document["workflowId"] != workflow_id:
            detail = f"must be {workflow_id}, as in the address"
            faults.append(Fault("/workflowId", "invalid_id", detail))
    validation = await call.engine.definitions.validate(document)
    faults += validation.faults
    return call.json(
        {
            "valid": not faults,
            "errors": [fault.as_dict() for fault in faults],
            "warnings": [fault.as_dict() for fault in validation.warnings],
        }
    )


def _object(call: Call) -> dict[str, Any]:
    if not isinstance(call.body, dict):
        raise ValidationError([Fault("", "invalid_type", "must be an object")])
    return call.body


def _counters(call: Call, views: Sequence[SessionView]) -> dict[str, dict[str, int]]:
    """Count workflows, and runs that have not ended, of these sessions."""
    counters = {
        view.session_id: {"workflows": len(view.workflows), "live": 0, "queued": 0}
        for view in views
    }
    wanted = ExecutionQuery(session_ids=frozenset(counters), statuses=LIVE)
    # No session at all would mean every session.
    runs = call.engine.gateway.executions(wanted, COUNT_CAP).items if counters else []
    for run in runs:
        counter = counters[run["sessionId"]]
        counter["live"] += 1
        counter["queued"] += run["status"] == TaskStatus.QUEUED
    return counters


def _included(call: Call) -> frozenset[str]:
    return frozenset(part.lower() for part in call.query["include"])


def _page(call: Call, shown: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """One page of a list that is sorted by id; the cursor is the last id."""
    after, limit = call.query["afterCursor"], call.query["limit"]
    if after is not None and id_fault("afterCursor", after) is not None:
        raise BadRequestError(
            f"{after[:40]!a} is not a cursor of this list",
            code="invalid_cursor",
            parameter="afterCursor",
        )
    left = [(key, item) for key, item in shown if after is None or key > after]
    page = left[:limit]
    return {
        "items": [item for _, item in page],
        "nextCursor": page[-1][0] if len(left) > limit else None,
    }


def several(call: Call) -> bool:
    """Whether If-Match lists tags, so that the current one has to be known to pick from them."""
    tags = entity_tags("If-Match", call.header("If-Match"))
    return tags is not None and len(tags.strong) > 1


def preconditions(call: Call, current: str | None) -> tuple[str | None, bool]:
    """What a change asks of the present state: the tag that must be there, or that none is.

    Args:
        call: the request.
        current: the present tag, if it had to be looked up.

    Raises:
        BadRequestError: If-None-Match is not `*`, which is all that a change can mean.
        PreconditionRequiredError: the server wants a condition and there is none.
    """
    tags = entity_tags("If-Match", call.header("If-Match"))
    absent = entity_tags("If-None-Match", call.header("If-None-Match"))
    if absent is not None and not absent.every:
        raise BadRequestError(
            "If-None-Match of a change can only be *",
            code="invalid_parameter",
            parameter="If-None-Match",
        )
    if tags is None:
        if absent is None and call.engine.settings.http.require_if_match:
            raise PreconditionRequiredError(
                "this server wants If-Match with the ETag that the change is based on,"
                " or If-None-Match: *"
            )
        return None, absent is not None
    if tags.every:
        return ANY, absent is not None
    if current is not None and current in tags.strong:
        return current, absent is not None
    # A weak tag never matches: that the content is alike is not enough for a change.
    return (tags.strong[0] if tags.strong else ""), absent is not None


async def _end_runs(call: Call, session_id: str) -> None:
    """Stop every live run of a session at once and wait for the ends."""
    await call.engine.definitions.get_session(session_id)
    wanted = ExecutionQuery(session_ids=frozenset({session_id}), statuses=LIVE)
    live = call.engine.gateway.executions(wanted, COUNT_CAP).items
    for run in live:
        command = StopWorkflow(execution_id=run["executionId"], mode=StopMode.KILL)
        await call.engine.gateway.command(
            command,
            actor=call.actor.name,
            via=call.via,
            request_id=call.request_id,
            reason="session removed",
        )
    for run in live:
        await call.engine.gateway.wait(run["executionId"], _END_WITHIN)
