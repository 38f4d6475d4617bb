"""What it costs that node outputs outlive the process: the file store against simpler layouts."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.harness import Bar, Family, Form, Found, at_least, at_most, table
from yukta_rx.durability.file.checkpoints import FileNodeCheckpointStore
from yukta_rx.durability.stores.checkpoints import ROW_MESSAGES, CheckpointRow, encode_row
from yukta_rx.model.message import trigger_message
from yukta_rx.streams.pool import BlockingPool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

PAYLOAD = {"n": 1, "text": "x" * 40}
THREADS = 8


def row_of(messages: int) -> CheckpointRow:
    """So many messages, and as many finished inputs."""
    made = [trigger_message("bench", "node", n, PAYLOAD) for n in range(messages)]
    return CheckpointRow.of([(None, msg) for msg in made], [(msg.id, 1) for msg in made])


ONE, MANY = row_of(1), row_of(ROW_MESSAGES)


@contextmanager
def folder() -> Iterator[Path]:
    """A folder below the working directory: where there is a disk, which /tmp may not be."""
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=".") as path:
        yield Path(path)


@asynccontextmanager
async def store_in(path: Path) -> AsyncIterator[FileNodeCheckpointStore]:
    """The store of the product, open."""
    pool = BlockingPool(2)
    store = FileNodeCheckpointStore(path, pool.call)
    await store.start()
    try:
        yield store
    finally:
        await store.close()
        pool.close()


# --- node ends -----------------------------------------------------------------------------------


def probe(count: int) -> float:
    """What the disk does: writes of 200 bytes, each forced by itself."""
    with folder() as path, (path / "probe").open("wb", buffering=0) as file:
        data, start = b"x" * 200, time.perf_counter()
        for _ in range(count):
            file.write(data)
            os.fdatasync(file.fileno())
        return count / (time.perf_counter() - start)


def one_sync(count: int) -> float:
    """Every node end is written to one file and forced, by itself."""
    with folder() as path, (path / "log").open("wb", buffering=0) as file:
        start = time.perf_counter()
        for n in range(count):
            file.write(b'{"run":"run","node":"n%d","row":%b}\n' % (n, encode_row(ONE)))
            os.fdatasync(file.fileno())
        return count / (time.perf_counter() - start)


def _node_files(path: Path, n: int) -> None:
    """The messages of a node, its end marker, the folder: three files, each forced."""
    with (path / f"n{n}.jsonl").open("wb", buffering=0) as file:
        file.write(encode_row(ONE))
        os.fsync(file.fileno())
    with (path / f"n{n}.done").open("wb", buffering=0) as file:
        os.fsync(file.fileno())
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def three_syncs(count: int, threads: int = 1) -> float:
    """Files for each node."""
    with folder() as path, ThreadPoolExecutor(threads) as pool:
        start = time.perf_counter()
        for _ in pool.map(partial(_node_files, path), range(count)):
            pass
        return count / (time.perf_counter() - start)


async def node_ends(count: int, at_once: int) -> float:
    """Nodes that end, each waiting for its row and its marker; so many of them at a time."""

    async def worker(run: str, nodes: int) -> None:
        for n in range(nodes):
            marked = store.mark_complete(run, f"n{n}", ONE)
            if marked is not None:
                await marked

    with folder() as path:
        async with store_in(path) as store:
            each = max(1, count // at_once)
            start = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for n in range(at_once):
                    group.create_task(worker(f"run{n}", each))
            return each * at_once / (time.perf_counter() - start)


PROBE = "the disk: write and fdatasync"
SINGLE = "(a) one fdatasync for each node end"
SEEDS = "(b) three fsyncs for each node"
SEEDS_THREADS = f"(b) in {THREADS} threads"
AT_ONCE = {f"the store, {n:,} nodes at a time": n for n in (1, 20, 100, 1000)}
STORE = list(AT_ONCE)[-1]

ENDS_FORMS = (
    Form(PROBE, probe, 0.05),
    Form(SINGLE, one_sync, 0.05),
    Form(SEEDS, three_syncs, 0.02),
    Form(SEEDS_THREADS, partial(three_syncs, threads=THREADS), 0.05),
    *(
        Form(name, partial(node_ends, at_once=n), 0.05 if n == 1 else 1)
        for name, n in AT_ONCE.items()
    ),
)


def ends_tables(found: Found) -> list[str]:
    """One row per layout."""
    rows = [
        (
            form.name,
            found.spread(form.name).show(0),
            found.spread(form.name).range(0),
            found.ratio(form.name, SINGLE).show(),
            found.ratio(form.name, SEEDS).show(),
        )
        for form in ENDS_FORMS
    ]
    return [
        "Node ends per second that are durable, each with a row of one message and its end marker.",
        "",
        *table(("form", "per second", "range", "times (a)", "times (b)"), rows),
    ]


def ends_bars(found: Found) -> list[Bar]:
    """What sharing one log promises."""
    return [
        at_least("durable node ends, times one fdatasync each", 8, found.ratio(STORE, SINGLE)),
        at_least("durable node ends, times three fsyncs each", 20, found.ratio(STORE, SEEDS)),
    ]


ENDS = Family(
    "durable", "Node ends that are durable", (20_000,), ENDS_FORMS, ends_tables, ends_bars
)


# --- messages ------------------------------------------------------------------------------------


async def behind_a_marker(count: int) -> float:
    """One node that emits and ends; only the marker is waited for."""
    with folder() as path:
        async with store_in(path) as store:
            rows = max(1, count // ROW_MESSAGES)
            start = time.perf_counter()
            for _ in range(rows):
                store.append("run", "node", MANY)
                if store.full:
                    await store.room()
            if (marked := store.mark_complete("run", "node")) is not None:
                await marked
            return rows * ROW_MESSAGES / (time.perf_counter() - start)


async def read_back(count: int) -> float:
    """The same, read for a replay."""
    with folder() as path:
        async with store_in(path) as store:
            for _ in range(max(1, count // ROW_MESSAGES)):
                store.append("run", "node", MANY)
                if store.full:
                    await store.room()
            if (marked := store.mark_complete("run", "node")) is not None:
                await marked
            start = time.perf_counter()
            messages = 0
            async for row in store.read("run", "node"):
                messages += len(row)
            return messages / (time.perf_counter() - start)


def encoded(count: int) -> float:
    """What the text alone costs."""
    rows = max(1, count // ROW_MESSAGES)
    start = time.perf_counter()
    for _ in range(rows):
        encode_row(MANY)
    return rows * ROW_MESSAGES / (time.perf_counter() - start)


MESSAGE_FORMS = (
    Form("made into text, and nothing else", encoded),
    Form("durable, behind an end marker", behind_a_marker),
    Form("read back", read_back),
)


def message_tables(found: Found) -> list[str]:
    """One row per way."""
    rows = [
        (form.name, found.spread(form.name).show(0), found.spread(form.name).range(0))
        for form in MESSAGE_FORMS
    ]
    return [
        f"Messages per second, in rows of {ROW_MESSAGES} with their finished inputs.",
        "",
        *table(("form", "per second", "range"), rows),
    ]


MESSAGES = Family(
    "durable-messages", "Messages that are durable", (100_000,), MESSAGE_FORMS, message_tables
)


# --- opening -------------------------------------------------------------------------------------


async def opened(count: int, row: CheckpointRow) -> float:
    """Seconds until a store with so many rows, of 100 runs with 20 nodes each, is open."""
    with folder() as path:
        async with store_in(path) as store:
            for n in range(count):
                store.append(f"run{n % 100}", f"node{n // 100 % 20}", row)
                if store.full:
                    await store.room()
        start = time.perf_counter()
        async with store_in(path) as store:
            taken = time.perf_counter() - start
            kept = [
                state.messages
                for n in range(100)
                for state in (await store.states(f"run{n}")).values()
            ]
            assert sum(kept) == count * len(row)
            return taken


OPENING = "rows of one message"
OPENING_MANY = f"rows of {ROW_MESSAGES} messages (0.1 of the rows)"
OPEN_FORMS = (
    Form(OPENING, partial(opened, row=ONE)),
    Form(OPENING_MANY, partial(opened, row=MANY), 0.1),
)


def open_tables(found: Found) -> list[str]:
    """One row per kind of rows."""
    rows = [
        (form.name, found.spread(form.name).show(), found.spread(form.name).range())
        for form in OPEN_FORMS
    ]
    return [
        f"Seconds until a store with {found.size:,} rows is open: every line is read, its check sum"
        " too, and the index is made.",
        "",
        *table(("rows", "seconds", "range"), rows),
    ]


def open_bars(found: Found) -> list[Bar]:
    """A start is not held up."""
    return [at_most("opening a store of 200,000 rows", 2, found.spread(OPENING), " s")]


OPEN = Family(
    "durable-opening", "Opening durable outputs", (200_000,), OPEN_FORMS, open_tables, open_bars
)
