"""The live view of a run on a terminal: nodes and edges as tables.  Feature: OBS-01."""

from __future__ import annotations

import asyncio
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console as RichConsole
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from yukta_rx.cli.views import BESIDE_STATUS, STYLES, say_beside_status

if TYPE_CHECKING:
    from collections.abc import Iterator

    from yukta_rx.cli.console import Console
    from yukta_rx.engine.run import Run
    from yukta_rx.model.events import ExecutionEvent

_REFRESH: Final = 0.125
"""Seconds between two pictures, unless drawing one takes more than a tenth of that."""

_WAITING: Final = 1000
"""Lines that wait for the next picture at most; more are written at once."""


class TableView:
    """Redraws the tables in place; log lines and results go above them."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rich = RichConsole(
            stderr=True, highlight=False, no_color=not console.colored(sys.stderr)
        )

    def event(self, event: ExecutionEvent) -> None:
        """Write log lines and messages given up; the rest shows in the tables."""
        if event.type in BESIDE_STATUS:
            say_beside_status(self._console, event)

    @contextmanager
    def watching(self, run: Run) -> Iterator[None]:
        """Show the tables until the end, and leave the last picture."""
        with Live(console=self._rich, auto_refresh=False, redirect_stdout=False) as live:
            screen = _Screen(self._rich, live, run)
            self._console.above = screen.write
            screen.keep_drawing()
            try:
                yield
            finally:
                screen.stop()
                self._console.above = None


class _Screen:
    """The terminal under a live view. Lines wait for the next picture: drawing costs 20 ms."""

    def __init__(self, rich: RichConsole, live: Live, run: Run) -> None:
        self._rich = rich
        self._live = live
        self._run = run
        self._loop = asyncio.get_running_loop()
        self._next: asyncio.TimerHandle | None = None
        self._lines: list[str] = []

    def write(self, line: str) -> None:
        self._lines.append(line)
        if len(self._lines) >= _WAITING:
            self._write_lines()

    def draw(self) -> None:
        self._write_lines()
        self._live.update(picture(self._run.snapshot()), refresh=True)

    def keep_drawing(self) -> None:
        began = self._loop.time()
        self.draw()
        pause = max(_REFRESH, 10 * (self._loop.time() - began))
        self._next = self._loop.call_later(pause, self.keep_drawing)

    def stop(self) -> None:
        if self._next is not None:
            self._next.cancel()
        self.draw()

    def _write_lines(self) -> None:
        if self._lines:
            text = Text.from_ansi("\n".join(self._lines))
            self._lines.clear()
            self._rich.print(text, soft_wrap=True)


def picture(snapshot: dict[str, Any]) -> Group:
    """Return a run's snapshot as tables of its nodes and, if it has them, edges."""
    execution = snapshot["execution"]
    seconds = (execution.get("durationMs") or 0) / 1000
    status = "PAUSED" if execution["paused"] else execution["status"]
    title = Text.assemble(
        (execution["workflowId"], "bold"),
        "  ",
        (status, STYLES.get(status, "")),
        f"  {seconds:.1f} s",
    )
    place = {state["nodeId"]: index for index, state in enumerate(snapshot["nodes"])}
    edges = sorted(
        snapshot.get("edges", ()), key=lambda edge: (place[edge["source"]], place[edge["target"]])
    )
    tables = [_nodes(snapshot["nodes"]), *([_edges(edges)] if edges else [])]
    return Group(title, *tables)


def _nodes(states: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("node", "type", "status"):
        table.add_column(name, overflow="ellipsis", no_wrap=True)
    for name in ("in", "out", "per s"):
        table.add_column(name, justify="right", no_wrap=True)
    for state in states:
        status = "PAUSED" if state["paused"] and state["status"] == "RUNNING" else state["status"]
        table.add_row(
            Text(state["nodeId"]),
            Text(state["type"], "dim"),
            Text(status, STYLES.get(status, "dim")),
            "" if state["kind"] == "TRIGGER" else str(state["in"]),
            "" if state["kind"] == "TERMINAL" else str(state["out"]),
            f"{state['ratePerSec']:.0f}" if state["ratePerSec"] else "",
        )
    return table


def _edges(states: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("edge", overflow="ellipsis", no_wrap=True)
    for name in ("passed", "waiting"):
        table.add_column(name, justify="right", no_wrap=True)
    for state in states:
        port = f":{state['sourcePort']}" if "sourcePort" in state else ""
        table.add_row(
            Text(f"{state['source']}{port} -> {state['target']}"),
            str(state["passed"]),
            str(state["waiting"]) if state["waiting"] else "",
        )
    return table
