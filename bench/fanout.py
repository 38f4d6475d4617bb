"""1,000 readers of one event stream: ours, a plain aiohttp-sse fan-out, Node's http.

Each server is a process, the readers are another. A server publishes so many events as fast as its
readers take them, then some at a steady pace; a reader stamps what it gets:
`python -m bench.fanout`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shutil
import statistics
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from aiohttp import web
from aiohttp_sse import sse_response

from bench.harness import table
from yukta_rx import Engine, create_app
from yukta_rx.config.load import load_settings
from yukta_rx.model.events import ExecutionEvent
from yukta_rx.model.times import utc_now

if TYPE_CHECKING:
    from collections.abc import Callable

CLIENTS = 1000
WATCHED = 50
"""Readers that look at the time of each event; the others only count."""

PER_TURN = 10
"""Events of a burst between two turns of the server's loop."""

STEADY = 60
STEADY_MS = 50
"""Events of the steady part, and milliseconds between them."""

BURST_LIMIT = 60.0
STEADY_LIMIT = 20.0
"""Seconds after which what has not come counts as lost."""

PAD = "x" * 60
MARK = b'"t":'

NODE = """
const http = require('http');
const clients = new Set();
const server = http.createServer((req, res) => {
  res.writeHead(200, {'Content-Type': 'text/event-stream'});
  res.write(': hello\\n\\n');
  clients.add(res);
  req.on('close', () => clients.delete(res));
});
function publish() {
  const now = Number(process.hrtime.bigint()) / 1e9;
  const frame = 'event: tick\\ndata: {"t":' + now.toFixed(6) + ',"pad":"PAD"}\\n\\n';
  for (const res of clients) res.write(frame);
}
server.listen(0, '127.0.0.1', () =>
  console.log('http://127.0.0.1:' + server.address().port + '/'));
let input = '';
process.stdin.on('data', chunk => {
  input += chunk;
  for (let at; (at = input.indexOf('\\n')) >= 0; input = input.slice(at + 1)) {
    const [what, n, every] = input.slice(0, at).split(' ');
    let left = Number(n);
    if (what === 'burst') {
      const some = () => {
        for (let i = 0; i < PER_TURN && left > 0; i++, left--) publish();
        if (left > 0) setImmediate(some);
      };
      some();
    } else {
      const timer = setInterval(() => { publish(); if (--left <= 0) clearInterval(timer); },
        Number(every));
    }
  }
});
""".replace("PER_TURN", str(PER_TURN)).replace("PAD", PAD)


class Figures(NamedTuple):
    """What one server did."""

    rate: float
    lost: float
    p50: float
    p99: float
    memory: float


# --- servers -------------------------------------------------------------------------------------


async def obey(publish: Callable[[], None]) -> None:
    """Publish as the lines on stdin say."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := (await reader.readline()).decode().split():
        what, n, every = line
        for place in range(1, int(n) + 1):
            publish()
            if what == "steady":
                await asyncio.sleep(int(every) / 1000)
            elif place % PER_TURN == 0:
                await asyncio.sleep(0)


async def listen(app: web.Application, path: str) -> None:
    """Serve on a free port and say where."""
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=2000).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}{path}", flush=True)


async def ours() -> None:
    settings = load_settings(environ={}, overrides={"yukta.streaming.max-streams": 5000})
    async with Engine(settings) as engine:

        def publish() -> None:
            event = ExecutionEvent(
                type="control.applied",
                time=utc_now(),
                session_id="s",
                workflow_id="w",
                execution_id="e",
                data={"t": time.monotonic(), "pad": PAD},
            )
            engine.tracker.emit(event)

        await listen(create_app(engine), "/api/events/stream")
        await obey(publish)


async def plain() -> None:
    queues: set[asyncio.Queue[str]] = set()

    async def stream(request: web.Request) -> web.StreamResponse:
        async with sse_response(request) as response:
            queue: asyncio.Queue[str] = asyncio.Queue()
            queues.add(queue)
            while True:
                await response.send(await queue.get(), event="tick")

    def publish() -> None:
        text = json.dumps({"t": time.monotonic(), "pad": PAD}, separators=(",", ":"))
        for queue in queues:
            queue.put_nowait(text)

    app = web.Application()
    app.router.add_get("/", stream)
    await listen(app, "/")
    await obey(publish)


# --- readers -------------------------------------------------------------------------------------


class Counts:
    """What all readers got."""

    def __init__(self) -> None:
        self.events = 0
        self._wanted = 0
        self._reached = asyncio.Event()

    def add(self, events: int) -> None:
        self.events += events
        if self.events >= self._wanted:
            self._reached.set()

    async def reached(self, wanted: int, limit: float) -> float:
        """Wait until so many came, or for so many seconds; the seconds that it took."""
        began = time.perf_counter()
        self._wanted = wanted
        self._reached.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await self._reached.wait()
        return time.perf_counter() - began


class Reader(asyncio.Protocol):
    """One connection: counts events, and how late they are if asked to."""

    def __init__(self, request: bytes, counts: Counts, watched: bool) -> None:
        self.request = request
        self.counts = counts
        self.watched = watched
        self.late: list[float] = []
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        # An event begins where its time stands; what may be cut waits for its end.
        first, *parts = (self._rest + data).split(MARK)
        tail = parts[-1] if parts else first
        if parts and b"," not in tail:
            self._rest = MARK + parts.pop()
        else:
            self._rest = tail[1 - len(MARK) :]
        self.counts.add(len(parts))
        if self.watched:
            now = time.monotonic()
            self.late += [now - float(part[: part.index(b",")]) for part in parts]


async def opened(url: str, clients: int, counts: Counts) -> list[Reader]:
    """So many readers of a stream."""
    host, _, path = url.removeprefix("http://").partition("/")
    address, _, port = host.partition(":")
    request = f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\n\r\n".encode()
    each = max(1, clients // WATCHED)
    loop = asyncio.get_running_loop()
    readers = []
    for place in range(clients):
        new = partial(Reader, request, counts, place % each == 0)
        _, reader = await loop.create_connection(new, address, int(port))
        readers.append(reader)
    return readers


async def measure(command: list[str], clients: int, events: int) -> Figures:
    """Start a server, have it read by so many clients, and say how it did."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        url = (await process.stdout.readline()).decode().strip()
        counts = Counts()
        # The first ones have the server load what it needs.
        await opened(url, 20, Counts())
        await asyncio.sleep(0.5)
        before = resident(process.pid)
        readers = await opened(url, clients, counts)
        await asyncio.sleep(1.5)
        memory = (resident(process.pid) - before) / clients
        process.stdin.write(f"burst {events} 0\n".encode())
        seconds = await counts.reached(events * clients, BURST_LIMIT)
        rate, lost = counts.events / seconds, events * clients - counts.events
        counts.events = 0
        for reader in readers:
            reader.late.clear()
        process.stdin.write(f"steady {STEADY} {STEADY_MS}\n".encode())
        await counts.reached(STEADY * clients, STEADY_LIMIT)
        late = sorted(value * 1000 for reader in readers for value in reader.late)
        return Figures(rate, lost, statistics.median(late), late[int(len(late) * 0.99)], memory)
    finally:
        process.kill()
        await process.wait()


def resident(pid: int) -> float:
    """Resident memory of a process in kB."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(float(line.split()[1]) for line in file if line.startswith("VmRSS"))


def main() -> None:
    """All servers in turn in each round; medians."""
    parser = argparse.ArgumentParser(prog="python -m bench.fanout")
    parser.add_argument("--events", type=int, default=300, help="of the burst")
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", help="these servers")
    parser.add_argument("--serve", choices=["ours", "plain"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        asyncio.run(ours() if args.serve == "ours" else plain())
        return
    here = [sys.executable, "-m", "bench.fanout", "--serve"]
    servers = {"ours": [*here, "ours"], "aiohttp-sse": [*here, "plain"]}
    if node := shutil.which("node"):
        servers["node"] = [node, "-e", NODE]
    chosen = {name: made for name, made in servers.items() if not args.only or name in args.only}
    found: dict[str, list[Figures]] = {name: [] for name in chosen}
    for _ in range(args.rounds):
        for name, command in chosen.items():
            found[name].append(asyncio.run(measure(command, args.clients, args.events)))
    rows = []
    for name, figures in found.items():
        rate, lost, p50, p99, memory = (
            statistics.median(values) for values in zip(*figures, strict=True)
        )
        rows.append(
            (name, f"{rate:,.0f}", f"{lost:.0f}", f"{p50:.1f}", f"{p99:.1f}", f"{memory:.1f}")
        )
    head = ("server", "deliveries/s", "lost", "p50 ms", "p99 ms", "kB per client")
    print("\n".join(table(head, rows)))


if __name__ == "__main__":
    main()
