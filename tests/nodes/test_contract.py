"""Every built-in node type keeps the plugin contract."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.streams.pump import Pump
from yukta_rx.testing.plugins import PLUGIN_CHECKS, PluginCase, check_plugin

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from yukta_rx.plugins.contract import PluginSpec

pytestmark = [pytest.mark.feature("EXT-01"), pytest.mark.slow]

SPECS = {spec.type: spec for spec in PluginRegistry.load().specs()}
NETWORK = ("HTTP_REQUEST", "SSE_TRIGGER")
"""Types that need a server; their checks are further down."""

# What a type is tried with, unless its example and plain objects do.
CASES: dict[str, dict[str, Any]] = {
    "API_TRIGGER": {"payloads": [{"items": list(range(1000))}]},
    "FILTER": {"payloads": [{"n": 2, "tag": "a"}, {"n": 3, "tag": "b"}, {"n": 4, "tag": "b"}]},
    "SWITCH": {"payloads": [{"total": 5}, {"total": 100, "x": [1]}, {"total": 1000}]},
    "FAULT_INJECTOR": {
        "config": {"delayMs": 50},
        "settings": {"yukta.plugins.allow-fault-injection": True},
    },
    "BATCH": {"config": {"size": 10, "maxWaitMs": 500}},
    "DEDUPLICATE": {"config": {"window": 100}},
    "FILE_TERMINAL": {"config": {"path": "out.csv", "format": "csv", "mode": "REPLACE"}},
    "FILE_TRIGGER": {"files": {"orders.jsonl": b'{"n": 1}\n{"n": 2}\n' * 300}},
    "INTERVAL_TRIGGER": {"endless": True},
    "KV_STORE": {"payloads": [{"customer": str(n % 3)} for n in range(200)]},
    "SESSION_MEMORY": {
        "payloads": [{"user": str(n % 3), "question": f"{n}?"} for n in range(200)],
    },
    "SPLIT": {"payloads": [{"items": [1, 2, {"x": [3]}]}, {"items": []}, {"items": ["a"] * 200}]},
    "SUB_WORKFLOW": {
        "config": {"workflowId": "twice"},
        "workflows": [
            {
                "workflowId": "twice",
                "nodes": [
                    {"nodeId": "in", "type": "API_TRIGGER"},
                    {"nodeId": "wait", "type": "DELAY", "config": {"ms": 10}},
                    {"nodeId": "out", "type": "COLLECT_TERMINAL"},
                ],
                "edges": [
                    {"source": "in", "target": "wait"},
                    {"source": "in", "target": "out"},
                    {"source": "wait", "target": "out"},
                ],
            }
        ],
    },
    "TRANSFORM": {"payloads": [{"price": 1}, {"price": 2.5, "x": {"y": [1]}}]},
    "WAIT_FOR_SIGNAL": {
        "config": {"signal": "go", "timeoutSeconds": 5, "onTimeout": "CONTINUE"},
    },
}


@pytest.mark.parametrize("check", PLUGIN_CHECKS)
@pytest.mark.parametrize("type_", [type_ for type_ in SPECS if type_ not in NETWORK])
def test_built_in_type_keeps(type_: str, check: str) -> None:
    check_plugin(check, PluginCase(SPECS[type_], **CASES.get(type_, {})))


# --- types that need a server --------------------------------------------------------------------

EVENTS = 200


async def answer(request: web.Request) -> web.StreamResponse:
    """Echo a request; as an event stream give some events, and then say that there are no more."""
    if request.headers["Accept"] != "text/event-stream":
        return web.json_response({"n": (await request.text())[:100]})
    done = int(request.headers.get("Last-Event-ID", 0))
    if done == EVENTS:
        return web.Response(status=204)
    events = "".join(f"id: {n + 1}\ndata: {{}}\n\n" for n in range(done, EVENTS))
    return web.Response(text=events, content_type="text/event-stream")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server in a thread of its own: its time is real, while that of the checks is virtual."""
    loop = asyncio.new_event_loop()
    app = web.Application()
    app.router.add_route("*", "/", answer)
    runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=0.1)

    async def start() -> str:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}/"

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


class Outside:
    """Virtual time stands still inside, so that no timer overtakes the network."""

    def __enter__(self) -> None:
        self.pump = Pump.of(asyncio.get_running_loop())
        self.pump.outside += 1

    def __exit__(self, *_: object) -> None:
        self.pump.outside -= 1


class Sleeping:
    """A node's clock whose sleeps are in virtual time, also inside of `Outside`."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.now = clock.now

    async def sleep(self, seconds: float) -> None:
        pump = Pump.of(asyncio.get_running_loop())
        pump.outside -= 1
        try:
            await self.clock.sleep(seconds)
        finally:
            pump.outside += 1


def networked(spec: PluginSpec) -> PluginSpec:
    """The same plugin under another name, with virtual time held while it waits for a server."""

    async def ask(msg: Any, cfg: Any, ctx: Any) -> Any:
        with Outside():
            return await spec.fn(msg, cfg, ctx)

    async def listen(cfg: Any, ctx: Any) -> AsyncIterator[Any]:
        ctx.clock = Sleeping(ctx.clock)
        made = spec.fn(cfg, ctx)
        try:
            while True:
                with Outside():
                    value = await anext(made, None)
                if value is None:
                    return
                yield value
        finally:
            await made.aclose()

    fn = ask if spec.type == "HTTP_REQUEST" else listen
    return replace(spec, type=f"{spec.type}_HELD", fn=fn)


@pytest.mark.parametrize("check", PLUGIN_CHECKS)
@pytest.mark.parametrize("type_", NETWORK)
def test_networked_type_keeps(type_: str, check: str, url: str) -> None:
    config = {"url": url}
    if type_ == "HTTP_REQUEST":
        config |= {"method": "POST", "body": "${payload:json}"}
    settings = {"yukta.http-request.allow-private": True}

    check_plugin(check, PluginCase(networked(SPECS[type_]), config, settings=settings))
