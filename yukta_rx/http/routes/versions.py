"""Versions of workflows, their differences, graphs and dry runs. Feature: DEF-01."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from yukta_rx.definitions.graph import Graph, laid_out
from yukta_rx.errors import BadRequestError
from yukta_rx.http.definition_shapes import NoteBody
from yukta_rx.http.headers import prefers_diagram
from yukta_rx.http.routes.runs import payload_of
from yukta_rx.http.routes.sessions import preconditions, several
from yukta_rx.model.status import TaskStatus

if TYPE_CHECKING:
    from yukta_rx.http.call import Call

_NUMBER: Final = re.compile(r"[0-9]{1,15}")


async def listing(call: Call) -> web.StreamResponse:
    """List the versions of a workflow, the newest first."""
    found = await call.engine.definitions.versions(*_place(call))
    rows = [record.as_row(current=record is found[0]) for record in found]
    after = call.query["afterCursor"]
    if after is not None:
        if not _NUMBER.fullmatch(after):
            detail = f"{after[:40]!a} is not a cursor of this list"
            raise BadRequestError(detail, code="invalid_cursor", parameter="afterCursor")
        rows = [row for row in rows if row["version"] < int(after)]
    page = rows[: call.query["limit"]]
    more = len(rows) > len(page)
    return call.json({"items": page, "nextCursor": str(page[-1]["version"]) if more else None})


async def show(call: Call) -> web.StreamResponse:
    """Show one version with its document."""
    definitions = call.engine.definitions
    record = await definitions.version(*_place(call), _version(call))
    current = await definitions.get(*_place(call))
    row = record.as_row(current=record.version == current.version)
    return call.json({**row, "document": record.document})


async def diff(call: Call) -> web.StreamResponse:
    """Show what changed from one version to another, or to the current one."""
    if call.query["from"] is None:
        raise BadRequestError(
            "from must name a version", code="invalid_parameter", parameter="from"
        )
    found = await call.engine.definitions.diff(*_place(call), call.query["from"], call.query["to"])
    return call.json(found.as_dict())


async def note(call: Call) -> web.StreamResponse:
    """Write something about a version."""
    body = call.typed(NoteBody)
    version = body.version if call.query["version"] is None else call.query["version"]
    text = body.note if call.query["note"] is None else call.query["note"]
    if version is None:
        detail = "version must name the version that the note is about"
        raise BadRequestError(detail, code="invalid_parameter", parameter="version")
    await call.engine.definitions.note(*_place(call), version, text)
    return call.nothing()


async def rollback(call: Call) -> web.StreamResponse:
    """Make the content of a version the current one again."""
    definitions = call.engine.definitions
    current = None
    if several(call):
        current = (await definitions.get(*_place(call))).definition_version
    if_match, _ = preconditions(call, current)
    saved = await definitions.rollback(
        *_place(call), _version(call), if_match=if_match, actor=call.actor.name
    )
    headers = {"ETag": f'"{saved.record.definition_version}"'}
    return call.json(saved.as_dict(), headers=headers)


async def dry_run(call: Call) -> web.StreamResponse:
    """Say what a start with this payload would do."""
    session_id, workflow_id = _place(call)
    found = await call.engine.definitions.dry_run(session_id, workflow_id, payload_of(call))
    admission = call.engine.gateway.would_admit(session_id, workflow_id)
    return call.json(found | {"admission": admission})


# --- graphs --------------------------------------------------------------------------------------


async def graph(call: Call) -> web.StreamResponse:
    """Show a workflow as a graph."""
    record = await call.engine.definitions.get(*_place(call))
    about = {
        "sessionId": record.session_id,
        "workflowId": record.workflow_id,
        "definitionVersion": record.definition_version,
    }
    return _drawn(call, about, await call.engine.definitions.graph(*_place(call)))


async def run_graph(call: Call) -> web.StreamResponse:
    """Show a run as a graph, with the status of each node."""
    gateway = call.engine.gateway
    execution_id = call.ids["executionId"]
    run = gateway.summary(execution_id)
    nodes: list[dict[str, Any]] = [
        {name: node[name] for name in ("nodeId", "type", "kind", "status", "paused")}
        for node in gateway.nodes(execution_id)
    ]
    edges: list[dict[str, Any]] = [
        {name: edge[name] for name in ("source", "target", "sourcePort") if name in edge}
        for edge in gateway.edges(execution_id)
    ]
    about = {
        name: run[name]
        for name in ("sessionId", "workflowId", "definitionVersion", "executionId", "status")
    }
    return _drawn(call, about, laid_out(nodes, edges) if nodes else await _not_begun(call, about))


async def _not_begun(call: Call, run: dict[str, Any]) -> Graph:
    """The graph of a run that has no nodes yet, as one that waits for a slot."""
    found = await call.engine.definitions.graph_of_content(
        run["sessionId"], run["workflowId"], run["definitionVersion"]
    )
    if found is None:
        return laid_out([], [])
    if TaskStatus(run["status"]).terminal:
        return found
    nodes = [{**node, "status": str(TaskStatus.PENDING)} for node in found.nodes]
    return Graph(nodes, found.edges, found.layers)


def _drawn(call: Call, about: dict[str, Any], drawing: Graph) -> web.Response:
    if prefers_diagram(call.header("Accept")):
        return web.Response(
            text=drawing.as_mermaid(), content_type="text/vnd.mermaid", charset="utf-8"
        )
    return call.json(about | drawing.as_dict())


# --- parts ---------------------------------------------------------------------------------------


def _place(call: Call) -> tuple[str, str]:
    return call.ids["sessionId"], call.ids["workflowId"]


def _version(call: Call) -> int:
    text = call.ids["version"]
    if not _NUMBER.fullmatch(text):
        detail = f"version must be a number, not {text[:40]!a}"
        raise BadRequestError(detail, code="invalid_parameter", parameter="version")
    return int(text)
