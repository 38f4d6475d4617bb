"""What it costs a durable run of small messages that large ones may travel as references."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from bench.durable import folder
from bench.harness import Family, Form, Found, at_least, table
from yukta_rx.config.settings import Settings
from yukta_rx.definitions.parse import parse_definition
from yukta_rx.definitions.prepare import prepare
from yukta_rx.durability.file.blobs import FileBlobStore
from yukta_rx.durability.file.checkpoints import FileNodeCheckpointStore
from yukta_rx.durability.recorder import RunRecorder
from yukta_rx.engine.run import Run
from yukta_rx.plugins.contract import processor, trigger
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.streams.aio import Tasks
from yukta_rx.streams.pool import BlockingPool

if TYPE_CHECKING:
    from bench.harness import Bar

NODES = 5
LIMIT = 256 * 1024
KINDS = {"plain functions": "BENCH_PLAIN", "coroutines": "BENCH_AWAIT", "generators": "BENCH_EACH"}


@trigger("BENCH_SOURCE", blocking=False, pure=True)
def source(cfg, ctx):
    """Small payloads."""
    for n in range(ctx.payload["count"]):
        yield {"n": n, "text": "x" * 40}


@processor("BENCH_PLAIN", blocking=False, pure=True)
def plain(msg, cfg, ctx):
    """A new payload."""
    return {**msg.payload, "more": 1}


@processor("BENCH_AWAIT", pure=True)
async def awaited(msg, cfg, ctx):
    """A new payload."""
    return {**msg.payload, "more": 1}


@processor("BENCH_EACH", blocking=False, pure=True)
def each(msg, cfg, ctx):
    """A new payload."""
    yield {**msg.payload, "more": 1}


def prepared(kind: str) -> Any:
    """A line of nodes of one kind."""
    ids = ["in", *(f"n{n}" for n in range(NODES)), "out"]
    types = ["BENCH_SOURCE", *[kind] * NODES, "NULL_TERMINAL"]
    document = {
        "workflowId": "w",
        "nodes": [{"nodeId": i, "type": t} for i, t in zip(ids, types, strict=True)],
        "edges": [{"source": a, "target": b} for a, b in pairwise(ids)],
    }
    settings = Settings()
    registry = PluginRegistry.load(settings, extra=[source, plain, awaited, each])
    return prepare(parse_definition(document), registry, settings=settings)


async def messages(count: int, kind: str, limit: int) -> float:
    """Messages per second of processor time, through all nodes."""
    workflow, pool = prepared(kind), BlockingPool(2)
    with folder() as path:
        blobs = FileBlobStore(path / "blobs", pool.call)
        store = FileNodeCheckpointStore(path / "outputs", pool.call, blobs=blobs, claim_bytes=limit)
        await store.start()
        tasks = Tasks(asyncio.get_running_loop(), lambda: None)
        recorder = RunRecorder(store, "run", tasks, lambda: None)
        run = Run(
            workflow,
            payload={"count": count},
            settings=Settings(),
            execution_id="run",
            timeout=None,
            recorder=recorder,
            pool=pool,
        )
        start = time.process_time()
        await run.execute()
        seconds = time.process_time() - start
        recorder.close()
        await tasks.ended()
        await store.close()
        pool.close()
    return count / seconds


def names(kind: str) -> tuple[str, str]:
    """The two forms of a kind: without references, and with them."""
    return f"{kind}, every payload as it is", f"{kind}, large ones as references"


FORMS = tuple(
    Form(name, partial(messages, kind=type_, limit=limit))
    for kind, type_ in KINDS.items()
    for name, limit in zip(names(kind), (0, LIMIT), strict=True)
)


def tables(found: Found) -> list[str]:
    """One row per kind of node."""
    rows = []
    for kind in KINDS:
        off, on = names(kind)
        figures = (found.spread(off).show(0), found.spread(on).show(0))
        rows.append((kind, *figures, found.ratio(on, off).show()))
    return [
        f"Small messages through {NODES} nodes of a run that is recorded in files, per second of "
        "processor time.",
        "",
        *table(("nodes", "off", "on", "times off"), rows),
    ]


def bars(found: Found) -> list[Bar]:
    """What a run pays that has no large payload."""
    return [
        at_least(f"{kind} with references, times without", 0.9, found.ratio(*reversed(names(kind))))
        for kind in KINDS
    ]


REFERENCES = Family("references", "Large payloads as references", (3_000,), FORMS, tables, bars)
