"""A running 20-node chain beside 0 and 100 clients of the event stream: `python -m bench.clients`.

The clients live in a process of their own, as they would; each reads everything it is sent.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time

import aiohttp
from aiohttp import web

from bench.workflows import NODES, PLUGINS, chain
from yukta_rx import Engine, create_app

MESSAGES = 200_000


async def read_streams(url: str, count: int) -> None:
    """The client process: opens the streams, says so, and reads until they end."""
    timeout = aiohttp.ClientTimeout(total=None)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:

        async def read(opened: asyncio.Event) -> None:
            async with session.get(f"{url}/api/events/stream") as response:
                async for _ in response.content.iter_any():
                    opened.set()

        events = [asyncio.Event() for _ in range(count)]
        async with asyncio.TaskGroup() as group:
            for event in events:
                group.create_task(read(event))
            for event in events:
                await event.wait()
            print("open", flush=True)


async def measure(clients: int, messages: int) -> float:
    """Seconds that one run takes beside so many clients."""
    async with Engine(plugins=PLUGINS) as engine:
        runner = web.AppRunner(create_app(engine), handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        [address] = runner.addresses
        url = f"http://127.0.0.1:{address[1]}"
        process = None
        if clients:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bench.clients", "--read", url, str(clients)),
                stdout=asyncio.subprocess.PIPE,
            )
            assert process.stdout is not None
            assert await process.stdout.readline() == b"open\n"
        start = time.perf_counter()
        run = await engine.start("bench", chain("SYNC", messages))
        status = await run.wait()
        seconds = time.perf_counter() - start
        assert status == "SUCCESS"
        await runner.cleanup()
        if process is not None:
            await process.wait()
    return seconds


def main() -> None:
    """Alternate between no clients and 100; medians and their ratio."""
    parser = argparse.ArgumentParser(prog="python -m bench.clients")
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--read", nargs=2, metavar=("URL", "COUNT"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.read:
        asyncio.run(read_streams(args.read[0], int(args.read[1])))
        return
    found: dict[int, list[float]] = {0: [], args.clients: []}
    for _ in range(args.rounds):
        for clients, seconds in found.items():
            seconds.append(asyncio.run(measure(clients, args.messages)))
    alone, beside = (statistics.median(seconds) for seconds in found.values())
    work = args.messages * NODES
    print(f"alone: {alone:.2f} s, {work / alone / 1e6:.2f} M node messages/s")
    print(f"beside {args.clients} clients: {beside:.2f} s, {work / beside / 1e6:.2f} M/s")
    print(f"slower by {100 * (beside / alone - 1):.1f} %")


if __name__ == "__main__":
    main()
