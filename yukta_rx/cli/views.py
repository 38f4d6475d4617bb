"""How `yukta run` shows progress: a live table, lines, or JSON events; all on stderr.

Features: OBS-01, OBS-02.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from yukta_rx.model.status import TaskStatus

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from yukta_rx.cli.console import Console
    from yukta_rx.engine.run import Run
    from yukta_rx.model.events import ExecutionEvent

STYLES: Final[Mapping[str, str]] = {
    "RUNNING": "cyan",
    "SUCCESS": "green",
    "FAILURE": "red",
    "ERROR": "red",
    "TIMED_OUT": "red",
    "UPSTREAM_FAILED": "magenta",
    "CANCELLED": "yellow",
    "STOPPED": "yellow",
    "ABORTED": "red",
}
"""Colour of each status that has one."""


class View(Protocol):
    """Shows a run while it goes on."""

    def event(self, event: ExecutionEvent) -> None:
        """Take note of something that happened."""

    def watching(self, run: Run) -> AbstractContextManager[None]:
        """Show the run while the context is entered."""


class JsonView:
    """Each event as a line of JSON."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def event(self, event: ExecutionEvent) -> None:
        """Write the event."""
        self._console.say_json(event.as_dict())

    @contextmanager
    def watching(self, run: Run) -> Iterator[None]:
        """Nothing to set up."""
        yield


class LineView:
    """One line per change of status and per message given up, and each line that a node logs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._run: Run | None = None

    def event(self, event: ExecutionEvent) -> None:
        """Write what a person wants to know of the event."""
        if event.type in BESIDE_STATUS:
            say_beside_status(self._console, event)
        elif event.type == "node.status":
            status = str(event.data["status"])
            counts = self._counts(event.node_id or "", status)
            self._console.say(f"{event.node_id}: {status}{counts}", STYLES.get(status))
        elif event.type == "execution.started":
            self._console.say(f"run {event.execution_id} of {event.workflow_id}")

    @contextmanager
    def watching(self, run: Run) -> Iterator[None]:
        """Remember the run, for its counters."""
        self._run = run
        yield

    def _counts(self, node_id: str, status: str) -> str:
        node = self._run.nodes.get(node_id) if self._run else None
        if node is None or not TaskStatus(status).terminal:
            return ""
        counters = node.counters
        error = node.failure().get("detail") if node.error is not None else None
        reason = f": {' '.join(str(error).split())}" if error else ""
        failed = f", failed {counters['failed']}" if counters["failed"] else ""
        return f" (in {counters['in']}, out {counters['out']}{failed}){reason}"


BESIDE_STATUS: Final = frozenset({"node.log", "node.message_failed"})
"""Types of events that are written wherever statuses are shown."""

_GIVEN_UP: Final = {"CONTINUE": "dropped", "ROUTE": "sent to port error"}


def say_beside_status(console: Console, event: ExecutionEvent) -> None:
    """Write a node's log line, or that it gave a message up, with the node in front."""
    data: Mapping[str, Any] = event.data
    if event.type == "node.message_failed":
        # One that fails its node shows as the reason of that.
        if data["action"] in _GIVEN_UP:
            reason = " ".join(str(data["error"]["detail"]).split())
            tries = "1 attempt" if data["attempts"] == 1 else f"{data['attempts']} attempts"
            told = f"{event.node_id}: message {data['messageId']} failed after {tries}"
            console.say(f"{told}, {_GIVEN_UP[data['action']]}: {reason}", "yellow")
        return
    style = {"stderr": "red", "engine": "yellow"}.get(str(data["stream"]))
    console.say(f"{event.node_id} | {data['line']}", style)
