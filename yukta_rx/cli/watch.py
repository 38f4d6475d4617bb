"""Progress of a run on a server, shown until its end.  Feature: OBS-01."""

from __future__ import annotations

import json
import os
import sys
from contextlib import AbstractContextManager, aclosing, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

from yukta_rx.cli import texts
from yukta_rx.cli.follow import Follower
from yukta_rx.cli.reading import ended, say_end
from yukta_rx.cli.views import STYLES
from yukta_rx.model.status import TaskStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from yukta_rx.cli.client import Client
    from yukta_rx.cli.console import Console
    from yukta_rx.model.sse_parser import SseEvent


class _Screen(Protocol):
    def show(self, snapshot: dict[str, Any], text: str) -> None:
        """Show a snapshot, which also comes as the text that it came as."""

    def open(self) -> AbstractContextManager[None]:
        """Be shown while the context is entered."""


async def watch_run(console: Console, client: Client, execution_id: str) -> int:
    """Show a run until it has ended; returns 0 for SUCCESS and 1 for all else.

    Raises:
        CliError: there is no such run, or no server.
    """
    path = f"/api/executions/{execution_id}"

    async def over() -> bool:
        return ended((await client.get(path)).json())

    screen = _screen(console)
    follower = Follower(client, console, f"{path}/progress", ended=over)
    with screen.open():
        if await over():
            newest = await client.get(f"{path}/progress")
            screen.show(newest.json(), newest.data.decode())
            return say_end(console, newest.json()["execution"])
        async with aclosing(follower.batches()) as batches:
            async for batch in batches:
                if _show(screen, batch):
                    break
                console.flush()
    console.flush()
    return say_end(console, (await client.get(path)).json())


def _show(screen: _Screen, batch: list[SseEvent]) -> bool:
    """Show snapshots; whether the last one was among them."""
    over = False
    for event in batch:
        snapshot = json.loads(event.data)
        screen.show(snapshot, event.data)
        over = ended(snapshot["execution"])
    return over


def _screen(console: Console) -> _Screen:
    if console.as_json:
        return _Json(console)
    if sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and find_spec("rich"):
        return _Table(console)
    return _Lines(console)


class _Json:
    """Each snapshot as a line."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def show(self, snapshot: dict[str, Any], text: str) -> None:
        self._console.result(text.encode())

    @contextmanager
    def open(self) -> Iterator[None]:
        yield


class _Lines:
    """A line for each change of status, of the run and of its nodes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._before: dict[str, str] = {}

    def show(self, snapshot: dict[str, Any], text: str) -> None:
        for node in snapshot["nodes"]:
            counts = f" (in {node['in']}, out {node['out']})" if ended(node) else ""
            self._change(node["nodeId"], node, counts)
        run = snapshot["execution"]
        self._change("", run, f" {run['sessionId']}/{run['workflowId']}")

    def _change(self, name: str, state: dict[str, Any], more: str) -> None:
        status = texts.status_of(state)
        if self._before.get(name, str(TaskStatus.PENDING)) != status:
            self._before[name] = status
            place = f"{name}: " if name else ""
            self._console.line(f"{place}{status}{more}", STYLES.get(state["status"]))

    @contextmanager
    def open(self) -> Iterator[None]:
        yield


class _Table:
    """A table that is drawn again in place; its last picture stays."""

    def __init__(self, console: Console) -> None:
        from rich.console import Console as RichConsole
        from rich.live import Live

        rich = RichConsole(highlight=False, no_color=not console.colored(sys.stdout))
        self._live = Live(console=rich, auto_refresh=False)

    def show(self, snapshot: dict[str, Any], text: str) -> None:
        from yukta_rx.cli.table import picture

        self._live.update(picture(snapshot), refresh=True)

    @contextmanager
    def open(self) -> Iterator[None]:
        with self._live:
            yield
