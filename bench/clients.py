"""A running 20-node chain beside 0 and 100 clients of the event stream: `python -m bench.clients`.

The clients live in a process of their own, as they would; each reads everything it is sent. Where
they and the server share too few processors, the seconds are also theirs; what the server itself
spent is the time of its process.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from typing import NamedTuple

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
        got = 0

        async def read(opened: asyncio.Event) -> None:
            nonlocal got
            async with session.get(f"{url}/api/events/stream") as response:
                async for data in response.content.iter_any():
                    opened.set()
                    got += data.count(b"\ndata: ")

        events = [asyncio.Event() for _ in range(count)]
        async with asyncio.TaskGroup() as group:
            for event in events:
                group.create_task(read(event))
            for event in events:
                await event.wait()
            print("open", flush=True)
    # One of each stream is its greeting, one says that it ends.
    print(got - 2 * count, flush=True)


class Taken(NamedTuple):
    """What one run took: seconds, those of them that the process worked, and events delivered."""

    seconds: float
    worked: float
    events: int = 0


async def measure(clients: int, messages: int) -> Taken:
    """What one run takes beside so many clients."""
    async with Engine(plugins=PLUGINS) as engine:
        runner = web.AppRunner(create_app(engine), handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, backlog=2000)
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
        start, before = time.perf_counter(), time.process_time()
        run = await engine.start("bench", chain("SYNC", messages))
        status = await run.wait()
        seconds, worked = time.perf_counter() - start, time.process_time() - before
        assert status == "SUCCESS"
        events = 0
        await runner.cleanup()
        if process is not None:
            assert process.stdout is not None
            events = int(await process.stdout.readline())
            await process.wait()
    return Taken(seconds, worked, events)


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
    found: dict[int, list[Taken]] = {0: [], args.clients: []}
    for _ in range(args.rounds):
        for clients, taken in found.items():
            taken.append(asyncio.run(measure(clients, args.messages)))
    alone, beside = (
        Taken(*(statistics.median(values) for values in zip(*taken, strict=True)))
        for taken in found.values()
    )
    work = args.messages * NODES
    for name, taken in (("alone", alone), (f"beside {args.clients} clients", beside)):
        rate = work / taken.worked / 1e6
        print(
            f"{name}: {taken.seconds:.2f} s, of which it worked {taken.worked:.2f} s: "
            f"{rate:.2f} M node messages per second of work"
        )
    more = beside.worked - alone.worked
    each = 1e6 * more / max(1, beside.events)
    print(
        f"slower by {100 * (beside.seconds / alone.seconds - 1):.1f} %, "
        f"more work by {100 * more / alone.worked:.1f} %, "
        f"{each:.2f} us per event delivered ({beside.events:,.0f} of them)"
    )


if __name__ == "__main__":
    main()
