"""How runs, events and log lines read for a person, one or more lines of text each.

Feature: OBS-01.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


def columns(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield rows of cells as lines with the cells below one another."""
    table = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        cells = (f"{cell:{width}}" for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def seconds(ms: int | None) -> str:
    """Return a time span for people; nothing for None."""
    return "" if ms is None else f"{ms / 1000:.1f} s"


def status_of(summary: Mapping[str, Any]) -> str:
    """Return the status of a run or node, and whether it is paused."""
    status = str(summary["status"])
    return f"{status}, paused" if summary.get("paused") else status


def error_of(summary: Mapping[str, Any]) -> str:
    """Return why a run did not end well, on one line; nothing if it did."""
    error = summary.get("error")
    if not error:
        return ""
    place = f"node `{error['nodeId']}`: " if error.get("nodeId") else ""
    return place + " ".join(str(error.get("detail", error.get("code", ""))).split())


def runs(summaries: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a list of runs as a table."""
    rows = [("EXECUTION", "WORKFLOW", "STATUS", "STARTED", "TOOK")]
    rows += [
        (
            str(run["executionId"]),
            f"{run['sessionId']}/{run['workflowId']}",
            status_of(run),
            str(run.get("startTime") or ""),
            seconds(run.get("durationMs")),
        )
        for run in summaries
    ]
    yield from columns(rows)


def run(detail: Mapping[str, Any]) -> Iterator[str]:
    """Yield a run with all that is known of it."""
    started = str(detail.get("startTime") or "not yet")
    took = seconds(detail.get("durationMs"))
    facts = [
        ("run", str(detail["executionId"])),
        ("workflow", f"{detail['sessionId']}/{detail['workflowId']}"),
        ("parent", str(detail.get("parentExecutionId") or "")),
        ("status", status_of(detail)),
        ("started", f"{started}, took {took}" if took else started),
        ("labels", ", ".join(f"{k}={v}" for k, v in (detail.get("labels") or {}).items())),
        ("error", error_of(detail)),
    ]
    for reason in detail.get("waitingOn") or ():
        node = f" node `{reason['nodeId']}`" if reason.get("nodeId") else ""
        facts.append(("waiting", f"{reason['kind']}{node}: {reason['detail']}"))
    yield from columns(fact for fact in facts if fact[1])
    nodes = detail.get("nodes") or ()
    if nodes:
        yield ""
        yield from columns([("NODE", "TYPE", "STATUS", "IN", "OUT", "FAILED"), *map(_node, nodes)])


def _node(state: Mapping[str, Any]) -> tuple[str, ...]:
    taken = "" if state.get("kind") == "TRIGGER" else str(state.get("in", ""))
    given = "" if state.get("kind") == "TERMINAL" else str(state.get("out", ""))
    failed = str(state.get("failed") or "")
    return (str(state["nodeId"]), str(state["type"]), status_of(state), taken, given, failed)


def event(shown: Mapping[str, Any]) -> str:
    """Return an event of the feed as one line."""
    node = f" {shown['nodeId']}" if shown.get("nodeId") else ""
    place = f"{shown.get('sessionId')}/{shown.get('workflowId')} {shown.get('executionId')}{node}"
    return f"{shown.get('time')} {shown.get('type')} {place}: {_facts(shown)}"


def _facts(shown: Mapping[str, Any]) -> str:
    data = shown.get("data")
    if not isinstance(data, dict):
        return ""
    if shown.get("type") == "node.log":
        return str(data.get("line"))
    if "status" in data:
        error = data.get("error")
        why = f": {error['detail']}" if isinstance(error, dict) and "detail" in error else ""
        return f"{data['status']}{why}"
    return json.dumps(data, ensure_ascii=False)


def log_line(shown: Mapping[str, Any]) -> str:
    """Return a line of a node's log behind the name of the node."""
    return f"{shown.get('nodeId') or '-'} | {shown.get('line')}"


def command(result: Mapping[str, Any]) -> str:
    """Return what became of a command."""
    state = result["state"]
    node = f" of node `{result['nodeId']}`" if result.get("nodeId") else ""
    mode = ", step mode" if state.get("stepMode") else ""
    return f"{result['outcome']} {result['command']}{node}: the run is {status_of(state)}{mode}"


def gap(data: Mapping[str, Any]) -> str:
    """Return what a server no longer has, or did not get rid of in time."""
    reason = f" ({data['reason']})" if data.get("reason") else ""
    return f"gap: {data.get('dropped', 'some')} items are missing here{reason}"
