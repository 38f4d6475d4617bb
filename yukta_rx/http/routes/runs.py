"""Starting and reading runs. Features: ADM-01, ADM-02, OBS-01."""

from __future__ import annotations

import asyncio
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from yukta_rx.control.desk import unknown
from yukta_rx.control.queries import ExecutionQuery
from yukta_rx.control.starter import StartRequest
from yukta_rx.http.body import checked
from yukta_rx.http.headers import idempotency_key
from yukta_rx.http.prefer import preference
from yukta_rx.http.route import MAX_PAGE
from yukta_rx.http.shapes import StartBody
from yukta_rx.model.results import ResultType
from yukta_rx.model.status import TaskStatus
from yukta_rx.model.trace_context import TRACEPARENT, parse_traceparent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

    from yukta_rx.control.starter import Started
    from yukta_rx.http.call import Call


async def start(call: Call) -> web.StreamResponse:
    """Start the run that the body describes."""
    body = call.typed(StartBody)
    call.actor.check_session(body.session_id)
    options = (
        None if body.options is None else body.options.model_dump(by_alias=True, exclude_unset=True)
    )
    request = StartRequest(
        session_id=body.session_id,
        workflow_id=body.workflow_id,
        payload=body.payload,
        labels=body.labels,
        step_mode=body.step_mode,
        breakpoints=body.breakpoints,
        options=options,
        idempotency_key=idempotency_key(call.header("Idempotency-Key")),
        actor=call.actor.name,
        via=call.via,
        traceparent=parse_traceparent(call.header(TRACEPARENT)),
    )
    return await _answer(call, request)


async def start_workflow(call: Call) -> web.StreamResponse:
    """Start a run of a workflow; the body is its payload."""
    return await _answer(call, _of_path(call))


async def _answer(call: Call, request: StartRequest) -> web.StreamResponse:
    """Start, and answer when the run has begun or the client does not want to wait longer."""
    wanted = preference(call.header("Prefer"))
    started = await call.engine.gateway.start(request, wanted.patience)
    waiting = started.status == TaskStatus.QUEUED
    applied = wanted.applied(waiting=waiting)
    headers = {} if applied is None else {"Preference-Applied": applied}
    return _started(call, started, 202 if waiting else 201, headers)


async def run_workflow(call: Call) -> web.StreamResponse:
    """Start a run and wait for its end; a client that leaves while waiting stops nothing."""
    gateway, seconds = call.engine.gateway, call.query["timeout"]
    clock = asyncio.get_running_loop().time
    over = clock() + seconds
    begun = await call.shared.guarded(gateway.start(_of_path(call), seconds), "start")
    detail = await gateway.wait(begun.execution_id, max(0.0, over - clock()))
    if detail is None:
        return _started(call, begun, status=202)
    items, truncated = await _results(call, begun.execution_id)
    return call.json({"execution": detail, "results": items, "truncated": truncated})


async def recovery(call: Call) -> web.StreamResponse:
    """Say what becomes of each node when an aborted run goes on; nothing is started."""
    execution_id = call.ids["executionId"]
    gateway = call.engine.gateway
    if gateway.session_of(execution_id) is None:
        raise unknown(execution_id)
    version = call.query["version"] or "same"
    return call.json(await gateway.resumes.plan(execution_id, version, call.query["rerun"]))


async def listing(call: Call) -> web.StreamResponse:
    """List runs, or count them."""
    query = call.query
    wanted = ExecutionQuery(
        statuses=frozenset(TaskStatus(word) for word in query["status"]),
        session_ids=call.actor.within(query["sessionId"]),
        workflow_ids=frozenset(query["workflowId"]),
        started_after=query["startedAfter"],
        started_before=query["startedBefore"],
        parent_execution_id=query["parentExecutionId"],
        actor=query["actor"],
        prefix=query["q"],
    )
    if query["count"]:
        return call.json(call.engine.gateway.count(wanted))
    page = call.engine.gateway.executions(wanted, query["limit"], query["afterCursor"])
    return call.json(page.as_dict())


async def detail(call: Call) -> web.StreamResponse:
    """Show a run."""
    include = {part.lower() for part in call.query["include"]}
    return call.tagged(call.engine.gateway.detail(call.ids["executionId"], include))


async def wait(call: Call) -> web.StreamResponse:
    """Answer when a run has ended, or with nothing when the time is over."""
    shown = await call.engine.gateway.wait(call.ids["executionId"], call.query["timeout"])
    return call.nothing() if shown is None else call.json(shown)


async def nodes(call: Call) -> web.StreamResponse:
    """Show every node of a run."""
    items = call.engine.gateway.nodes(call.ids["executionId"])
    return call.json({"items": items, "nextCursor": None})


async def node(call: Call) -> web.StreamResponse:
    """Show one node of a run."""
    return call.json(call.engine.gateway.node(call.ids["executionId"], call.ids["nodeId"]))


async def edges(call: Call) -> web.StreamResponse:
    """Show every edge of a run."""
    items = call.engine.gateway.edges(call.ids["executionId"])
    return call.json({"items": items, "nextCursor": None})


async def children(call: Call) -> web.StreamResponse:
    """List the runs that a run started."""
    parent = call.ids["executionId"]
    call.engine.gateway.summary(parent)
    wanted = ExecutionQuery(parent_execution_id=parent, session_ids=call.actor.within(()))
    page = call.engine.gateway.executions(wanted, call.query["limit"], call.query["afterCursor"])
    return call.json(page.as_dict())


def payload_of(call: Call) -> dict[str, Any]:
    """The start payload that is the body, for the workflow of the path.

    Raises:
        ValidationError: it is no object.
    """
    body = call.body
    if isinstance(body, dict):
        return body
    # The same words as for a payload inside a body.
    names = {"sessionId": call.ids["sessionId"], "workflowId": call.ids["workflowId"]}
    return checked(StartBody, {**names, "payload": body}).payload


def _of_path(call: Call) -> StartRequest:
    return StartRequest(
        session_id=call.ids["sessionId"],
        workflow_id=call.ids["workflowId"],
        payload=payload_of(call),
        idempotency_key=idempotency_key(call.header("Idempotency-Key")),
        actor=call.actor.name,
        via=call.via,
        traceparent=parse_traceparent(call.header(TRACEPARENT)),
    )


def _started(
    call: Call, started: Started, status: int, more: Mapping[str, str] = MappingProxyType({})
) -> web.Response:
    headers = {"Location": f"/api/executions/{started.execution_id}", **more}
    if started.replayed:
        headers["Idempotency-Replayed"] = "true"
        status = 200 if status == 201 else status
    return call.json(started.as_dict(), status, headers)


async def _results(call: Call, execution_id: str) -> tuple[list[dict[str, Any]], bool]:
    """What reached the terminals, as far as it is kept, and whether something is missing."""
    channel = await call.engine.results.open(execution_id)
    if channel is None:
        return [], True
    items: list[dict[str, Any]] = []
    cursor: int | None = None
    truncated = False
    while True:
        page = await channel.fetch(cursor, MAX_PAGE)
        truncated = truncated or page.gap is not None
        items += [item.as_dict() for item in page.items if item.type is ResultType.RESULT]
        if page.next_cursor is None or not page.items:
            return items, truncated
        cursor = page.next_cursor
