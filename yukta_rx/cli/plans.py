"""What applying a folder would change on a server, for people and for programs.

Features: DEF-01, DUR-05.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from yukta_rx.cli.console import EXIT_NOT_FOUND, CliError
from yukta_rx.cli.folders import bundle_of, with_lines
from yukta_rx.definitions.diff import diff_definitions
from yukta_rx.definitions.parse import parse_definition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from yukta_rx.cli.client import Client
    from yukta_rx.cli.folders import SessionFiles


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """What would change in one session.

    Attributes:
        session_id: the session.
        new: it is not there yet.
        etag: the state that the plan is based on, None if there is none.
        settings: names of its settings that would change.
        created: ids of workflows.
        changed: by workflow id, the WorkflowDiff without its numbers.
        unchanged: ids of workflows.
        removed: ids of workflows.
        extra: ids of workflows that only the server has and that would stay.
    """

    session_id: str
    new: bool
    etag: str | None
    settings: list[str] = field(default_factory=list)
    created: list[str] = field(default_factory=list)
    changed: dict[str, dict[str, Any]] = field(default_factory=dict)
    unchanged: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Whether nothing would change."""
        return not (self.new or self.settings or self.created or self.changed or self.removed)

    def as_dict(self) -> dict[str, Any]:
        """The plan as JSON."""
        return {
            "sessionId": self.session_id,
            "new": self.new,
            "settings": self.settings,
            "created": self.created,
            "changed": [
                {"workflowId": workflow_id, "diff": diff}
                for workflow_id, diff in self.changed.items()
            ],
            "unchanged": self.unchanged,
            "removed": self.removed,
            "extra": self.extra,
        }

    def lines(self) -> Iterator[str]:
        """The plan as lines for a terminal."""
        yield f"session {self.session_id}{' (new)' if self.new else ''}"
        if self.settings:
            yield f"  ~ settings: {', '.join(self.settings)}"
        yield from (f"  + {workflow_id}" for workflow_id in self.created)
        for workflow_id, diff in self.changed.items():
            yield f"  ~ {workflow_id}"
            yield from (f"      {line}" for line in diff_lines(diff))
        yield from (f"  - {workflow_id}" for workflow_id in self.removed)
        if self.extra:
            yield f"  not in the folder, stays: {', '.join(self.extra)}"
        if self.unchanged:
            yield f"  {len(self.unchanged)} unchanged"


async def make_plan(
    client: Client, sessions: list[SessionFiles], *, prune: bool
) -> list[SessionPlan]:
    """Return what would change, as the server itself says it.

    Raises:
        CliError: the server refuses something in the folder; names the files.
    """
    current = {item.session_id: await _current(client, item.session_id) for item in sessions}
    etags = {name: None if shown is None else shown["etag"] for name, shown in current.items()}
    told = await send(client, sessions, etags, prune=prune, dry_run=True)
    by_id = {item["sessionId"]: item for item in told}
    return [_plan_of(item, current[item.session_id], by_id[item.session_id]) for item in sessions]


async def send(
    client: Client,
    sessions: list[SessionFiles],
    etags: Mapping[str, str | None],
    *,
    prune: bool,
    dry_run: bool = False,
) -> list[dict[str, Any]]:
    """Send the bundle of a folder; returns what it did to each session."""
    query = [("prune", str(prune).lower()), ("dryRun", str(dry_run).lower())]
    try:
        answer = await client.post("/api/import", query, bundle_of(sessions, etags))
    except CliError as refusal:
        raise with_lines(refusal, sessions) from refusal
    found: list[dict[str, Any]] = answer.json()["sessions"]
    return found


async def _current(client: Client, session_id: str) -> dict[str, Any] | None:
    try:
        answer = await client.get(f"/api/sessions/{session_id}", [("include", "workflows")])
    except CliError as refusal:
        if refusal.exit_code == EXIT_NOT_FOUND:
            return None
        raise
    shown: dict[str, Any] = answer.json()
    return shown


def _plan_of(
    files: SessionFiles, current: dict[str, Any] | None, told: dict[str, Any]
) -> SessionPlan:
    there = {item["workflowId"]: item for item in (current or {}).get("workflows", [])}
    here = {file.definition.workflow_id: file.definition for file in files.files}
    changed = {}
    for workflow_id in told["changed"]:
        diff = diff_definitions(parse_definition(there[workflow_id]), here[workflow_id]).as_dict()
        changed[workflow_id] = {
            name: value for name, value in diff.items() if name not in ("from", "to")
        }
    return SessionPlan(
        session_id=files.session_id,
        new=current is None,
        etag=None if current is None else current["etag"],
        settings=_settings(files.settings, current),
        created=told["created"],
        changed=changed,
        unchanged=told["unchanged"],
        removed=told["removed"],
        extra=sorted(there.keys() - here.keys() - set(told["removed"])),
    )


def _settings(own: dict[str, Any] | None, current: dict[str, Any] | None) -> list[str]:
    """Return the names of the settings that a folder has otherwise than the server."""
    if own is None or current is None:
        return []
    from yukta_rx.model.session import SessionConfig

    def shown(settings: dict[str, Any]) -> dict[str, Any]:
        known = {field.alias or name for name, field in SessionConfig.model_fields.items()}
        picked = {name: value for name, value in settings.items() if name in known}
        picked["workflows"] = []
        config = SessionConfig.model_validate({**picked, "sessionId": current["sessionId"]})
        return config.model_dump(by_alias=True)

    before, after = shown(current), shown(own)
    return [name for name, value in after.items() if value != before[name]]


def diff_lines(diff: dict[str, Any]) -> Iterator[str]:
    """Yield a WorkflowDiff as lines for a terminal."""
    if "description" in diff:
        yield f"description: {_text(diff['description']['to'])}"
    yield from (f"+ node {node_id}" for node_id in diff["nodesAdded"])
    yield from (f"- node {node_id}" for node_id in diff["nodesRemoved"])
    for node in diff["nodesChanged"]:
        yield from (f"~ node {node['nodeId']} {_operation(item)}" for item in node["changes"])
    yield from (f"+ edge {_edge(edge)}" for edge in diff["edgesAdded"])
    yield from (f"- edge {_edge(edge)}" for edge in diff["edgesRemoved"])
    yield from (f"~ {_operation(item)}" for item in diff.get("options", []))
    if diff["reordered"]:
        yield "another order"


def _operation(item: dict[str, Any]) -> str:
    if item["op"] == "remove":
        return f"{item['path']} removed"
    return f"{item['path']} = {_text(item['value'])}"


def _edge(edge: dict[str, Any]) -> str:
    port = edge.get("sourcePort")
    arrow = "->" if port is None else f"-{port}->"
    optional = "" if edge.get("required", True) else " (not required)"
    return f"{edge['source']} {arrow} {edge['target']}{optional}"


def _text(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 100 else text[:97] + "..."
