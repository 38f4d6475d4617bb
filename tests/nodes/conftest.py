"""Real contexts for plugins that are called directly, runs of nodes in a line, and web servers.

The contexts have a clock that a test moves by hand; the runs take place in the engine itself; the
servers listen on real sockets.
"""

from __future__ import annotations

import asyncio
import heapq
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web as aiohttp_web

from yukta_rx.config.load import load_settings
from yukta_rx.config.settings import Settings
from yukta_rx.definitions.parse import parse_definition
from yukta_rx.definitions.prepare import prepare
from yukta_rx.engine.keeping import Keeping, keeping_in_memory
from yukta_rx.engine.run import Run
from yukta_rx.plugins.context import NodeContext
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.streams.clock import LoopClock, PausableClock
from yukta_rx.testing.clock import run_virtual

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path


class HandClock:
    """Base time that moves only when `advance` is called."""

    def __init__(self) -> None:
        self.time = 100.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._cancelled: set[int] = set()

    def now(self) -> float:
        return self.time

    def call_at(self, when: float, callback: Callable[[], None]) -> Any:
        entry = (when, next(self._order), callback)
        heapq.heappush(self._due, entry)
        clock = self

        class Handle:
            def cancel(self) -> None:
                clock._cancelled.add(entry[1])

        return Handle()

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError

    @property
    def waiting(self) -> int:
        return sum(number not in self._cancelled for _, number, _ in self._due)

    @property
    def next_in(self) -> float:
        """Seconds until the first timer that waits."""
        due = (when for when, number, _ in self._due if number not in self._cancelled)
        return min(due) - self.time

    async def advance(self, seconds: float) -> None:
        """Let time pass, with everything that becomes due on the way."""
        end = self.time + seconds
        await settle()
        while self._due and self._due[0][0] <= end + 1e-9:
            when, number, callback = heapq.heappop(self._due)
            self.time = max(self.time, when)
            if number not in self._cancelled:
                callback()
                await settle()
        self.time = end


async def settle() -> None:
    """Let every task go on until it waits for time or input."""
    for _ in range(20):
        await asyncio.sleep(0)


@dataclass
class Bench:
    """A context and what was done with it."""

    ctx: NodeContext
    clock: PausableClock
    base: HandClock
    lines: list[tuple[str, str]] = field(default_factory=list)
    counts: list[tuple[str, int]] = field(default_factory=list)


def keeping() -> Keeping | None:
    """What a plugin leaves behind; None where no loop is running."""
    with suppress(RuntimeError):
        return keeping_in_memory(Settings(), LoopClock(asyncio.get_running_loop()))
    return None


@pytest.fixture
def bench(tmp_path: Path) -> Callable[..., Bench]:
    """Make a bench; `allowed` folders may be read, relative paths start at `tmp_path`."""

    def make(
        *, payload: Any = None, allowed: tuple[Path, ...] = (tmp_path,), **settings: Any
    ) -> Bench:
        base = HandClock()
        clock = PausableClock(base)
        lines: list[tuple[str, str]] = []
        counts: list[tuple[str, int]] = []

        async def blocking(fn: Callable[..., Any], *args: Any) -> Any:
            return await asyncio.to_thread(fn, *args)

        ctx = NodeContext(
            execution_id="run-1",
            session_id="local",
            workflow_id="flow",
            node_id="n",
            clock=clock,
            log=lambda line, stream, *_: lines.append((line, stream)),
            count=lambda outcome, n: counts.append((outcome, n)),
            blocking=blocking,
            settings=load_settings(
                environ={},
                overrides={"yukta.files.allowed-dirs": [str(folder) for folder in allowed]}
                | settings,
            ),
            base_dir=tmp_path,
            payload=payload,
            keeping=keeping(),
        )
        return Bench(ctx, clock, base, lines, counts)

    return make


class Line:
    """Runs of nodes in a line, and what came of them: results with their times, and log lines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.results: list[tuple[float, Any]] = []
        self.events: list[Any] = []

    def run(self, *nodes: Any, **options: Any) -> Run:
        """A run, in the loop that is running; for nodes whose check does not block."""
        return self.prepared(*nodes, **options)()

    def complete(self, *nodes: Any, **options: Any) -> Any:
        """Make a run and take it to its end in virtual time; for a test that is no coroutine.

        Returns:
            Its outcome.
        """
        start = self.prepared(*nodes, **options)

        async def whole() -> Any:
            return await start().execute()

        return run_virtual(whole())

    def prepared(
        self, *nodes: Any, payloads: Any = None, plugins: Any = (), **settings: Any
    ) -> Callable[[], Run]:
        """What makes a run of `(type, config)` or `(type, config, timeoutSeconds)` in a line.

        The nodes are named n0, n1 and so on. With `payloads` an API_TRIGGER that emits them comes
        first, as node `in`.
        """
        allowed = {"yukta.files.allowed-dirs": [str(self.folder)]}
        made = load_settings(environ={}, overrides={**allowed, **settings})
        line = [
            {"nodeId": f"n{i}", "type": kind, "config": config}
            | ({"timeoutSeconds": rest[0]} if rest else {})
            for i, (kind, config, *rest) in enumerate(nodes)
        ]
        if payloads is not None:
            source = {"nodeId": "in", "type": "API_TRIGGER", "config": {"splitPath": "items"}}
            line.insert(0, source)
        edges = [{"source": a["nodeId"], "target": b["nodeId"]} for a, b in pairwise(line)]
        document = parse_definition({"workflowId": "w", "nodes": line, "edges": edges})
        registry = PluginRegistry.load(made, extra=plugins)
        workflow = prepare(document, registry, settings=made, base_dir=self.folder)
        return lambda: Run(
            workflow,
            payload={"items": payloads},
            settings=made,
            emit=self.events.append,
            publish=self._note,
            base_dir=self.folder,
        )

    def _note(self, result: Any) -> None:
        if result.message_id is not None:
            self.results.append((asyncio.get_running_loop().time(), result))

    @property
    def payloads(self) -> list[Any]:
        """What reached the terminal."""
        return [result.payload for _, result in self.results]

    @property
    def times(self) -> list[float]:
        """When, in seconds from the first on."""
        return [when - self.results[0][0] for when, _ in self.results]

    @property
    def lines(self) -> list[tuple[str, str, str]]:
        """Node, stream and text of each line that was logged."""
        logged = (event for event in self.events if event.type == "node.log")
        return [(e.node_id, e.data["stream"], e.data["line"]) for e in logged]


@pytest.fixture
def line(tmp_path: Path) -> Line:
    """A line whose files are in `tmp_path`."""
    return Line(tmp_path)


class Web:
    """Servers that answer as a test says, also in ways that no server should.

    Attributes:
        requests: what came in, `(method, path with query, headers in lower case, body)` each.
        connections: how many connections were made to the servers of `raw`.
    """

    def __init__(self, stack: AsyncExitStack) -> None:
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.connections = 0
        self._stack = stack

    async def serve(self, answer: Any, host: str = "127.0.0.1", tls: Any = None) -> str:
        """Start an aiohttp server and return its URL.

        Args:
            answer: a response for every request, or `async def (request) -> response`.
            host: the address to listen on.
            tls: the context of a server that speaks TLS.
        """

        async def handle(request: Any) -> Any:
            headers = {name.lower(): value for name, value in request.headers.items()}
            seen = (request.method, request.path_qs, headers, await request.read())
            self.requests.append(seen)
            if callable(answer):
                return await answer(request)
            return aiohttp_web.Response(**answer)

        app = aiohttp_web.Application(client_max_size=2**30)
        app.router.add_route("*", "/{path:.*}", handle)
        runner = aiohttp_web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        await aiohttp_web.TCPSite(runner, host, 0, ssl_context=tls).start()
        return f"{'https' if tls else 'http'}://{host}:{runner.addresses[0][1]}"

    async def raw(self, answer: bytes | Callable[[Any, Any], Awaitable[None]]) -> str:
        """Start a server of bare sockets and return its URL.

        Args:
            answer: bytes to write once the head of a request is there, and then close; or
                `async def (reader, writer)`, called then.
        """
        talking: set[asyncio.Task[Any]] = set()

        async def handle(reader: Any, writer: Any) -> None:
            talking.add(asyncio.current_task())
            self.connections += 1
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await reader.readuntil(b"\r\n\r\n")
                if callable(answer):
                    await answer(reader, writer)
                else:
                    writer.write(answer)
                    await writer.drain()
            writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)

        async def stop() -> None:
            server.close()
            for task in talking:
                task.cancel()
            await asyncio.gather(*talking, return_exceptions=True)
            await server.wait_closed()

        self._stack.push_async_callback(stop)
        return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    """Servers in the loop of the test, gone at its end."""
    async with AsyncExitStack() as stack:
        yield Web(stack)
