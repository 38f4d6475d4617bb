"""What it costs that node outputs are in PostgreSQL: the store against COPY, and the fence.

A server of its own, with the settings that it has when it is installed: a commit is on the disk.
"""

from __future__ import annotations

import atexit
import statistics
import time
from contextlib import ExitStack, asynccontextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from bench.durable import MANY
from bench.harness import Bar, Family, Form, Found, at_least, table
from yukta_rx.durability.postgres import migrate
from yukta_rx.durability.postgres.checkpoints import PostgresNodeCheckpointStore
from yukta_rx.durability.postgres.database import Database
from yukta_rx.durability.postgres.fence import check, fenced, raise_epoch
from yukta_rx.durability.stores.checkpoints import ROW_MESSAGES, encode_row
from yukta_rx.model import codec
from yukta_rx.testing.postgres import postgres_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

BATCH = 1000
SMALL_BATCH = 100


@cache
def server() -> str:
    """Where it answers; ended with the process."""
    stack = ExitStack()
    atexit.register(stack.close)
    url = stack.enter_context(postgres_server(())).url
    migrate.upgrade(url)
    return url


def on_it(measure: Callable[..., Awaitable[float]], count: int, **options: Any) -> Awaitable[float]:
    """Measure when the server is there; it is made outside of any loop."""
    server()
    return measure(count, **options)


@asynccontextmanager
async def led() -> AsyncIterator[Database]:
    """A database with empty tables, which the caller leads."""
    async with Database(server()) as database:
        await database.change(
            lambda made: made.execute(
                "TRUNCATE node_checkpoint, node_checkpoint_state, kv_entry;"
                "DROP TABLE IF EXISTS plain; CREATE TABLE plain "
                "(execution_id text, node_id text, seq bigint, message text,"
                " PRIMARY KEY (execution_id, node_id, seq)); CHECKPOINT"
            )
        )
        database.epoch = await database.change(lambda made: raise_epoch(made, 0, "bench"))
        yield database


# --- messages ------------------------------------------------------------------------------------


def _texts() -> list[str]:
    """Each message of a row, as it stands there."""
    shown = codec.decode(encode_row(MANY))["messages"]
    return [codec.encode(message).decode() for _, message in shown]


async def copied(count: int, *, ready: bool) -> float:
    """A row for each message, COPY and a commit for each 1,000; with or without making the text."""
    shown = codec.decode(encode_row(MANY))["messages"]
    texts = _texts()
    async with led() as database:
        made = await database.connect()
        try:
            start = time.perf_counter()
            for first in range(0, count, BATCH):
                if not ready:
                    texts = [codec.encode(message).decode() for _, message in shown]
                rows = [("run", "node", first + n, texts[n % ROW_MESSAGES]) for n in range(BATCH)]
                await made.copy_records_to_table("plain", records=rows)
            return -(-count // BATCH) * BATCH / (time.perf_counter() - start)
        finally:
            await made.close()


async def behind_a_marker(count: int) -> float:
    """One node that emits and ends; only the marker is waited for."""
    async with led() as database:
        store = PostgresNodeCheckpointStore(database)
        await store.start()
        rows = max(1, count // ROW_MESSAGES)
        start = time.perf_counter()
        await _emit(store, rows)
        taken = time.perf_counter() - start
        await store.close()
        return rows * ROW_MESSAGES / taken


async def _emit(store: PostgresNodeCheckpointStore, rows: int) -> None:
    for _ in range(rows):
        store.append("run", "node", MANY)
        if store.full:
            await store.room()
    if (marked := store.mark_complete("run", "node")) is not None:
        await marked


async def each_acknowledged(count: int) -> float:
    """Each row is waited for before the next one is given."""
    async with led() as database:
        store = PostgresNodeCheckpointStore(database)
        await store.start()
        rows = max(1, count // ROW_MESSAGES)
        start = time.perf_counter()
        for _ in range(rows):
            store.append("run", "node", MANY)
            if (written := store.written("run", "node")) is not None:
                await written
        taken = time.perf_counter() - start
        await store.close()
        return rows * ROW_MESSAGES / taken


async def read_back(count: int) -> float:
    """The same, read for a replay."""
    async with led() as database:
        store = PostgresNodeCheckpointStore(database)
        await store.start()
        await _emit(store, max(1, count // ROW_MESSAGES))
        start, messages = time.perf_counter(), 0
        async for row in store.read("run", "node"):
            messages += len(row)
        taken = time.perf_counter() - start
        await store.close()
        return messages / taken


COPY_READY = f"COPY in batches of {BATCH:,}, the text ready"
COPY = f"COPY in batches of {BATCH:,}, the text made"
STORE = "durable, behind an end marker"
MESSAGE_FORMS = (
    Form(COPY_READY, partial(on_it, copied, ready=True)),
    Form(COPY, partial(on_it, copied, ready=False)),
    Form(STORE, partial(on_it, behind_a_marker)),
    Form("durable, each row waited for", partial(on_it, each_acknowledged), 0.2),
    Form("read back", partial(on_it, read_back)),
)


def message_tables(found: Found) -> list[str]:
    """One row per way."""
    rows = [
        (
            form.name,
            found.spread(form.name).show(0),
            found.spread(form.name).range(0),
            found.ratio(form.name, COPY_READY).show(),
        )
        for form in MESSAGE_FORMS
    ]
    return [
        f"Messages per second on PostgreSQL, the store's in rows of {ROW_MESSAGES} with their"
        " finished inputs.",
        "",
        *table(("form", "per second", "range", "of COPY"), rows),
    ]


def message_bars(found: Found) -> list[Bar]:
    """What batches promise."""
    about = "durable messages on PostgreSQL, of COPY"
    return [at_least(about, 0.6, found.ratio(STORE, COPY_READY))]


MESSAGES = Family(
    "postgres-messages",
    "Messages that are durable in PostgreSQL",
    (100_000,),
    MESSAGE_FORMS,
    message_tables,
    message_bars,
)

# --- the fence -----------------------------------------------------------------------------------

_PUT = "INSERT INTO kv_entry (part, epoch, session_id, key, value) SELECT $1::int, $2::bigint, 's',"
PLAIN = f"{_PUT} given, 'v' FROM unnest($3::text[]) AS given ON CONFLICT DO NOTHING"
FENCED = fenced(f"{_PUT} given, 'v' FROM unnest($3::text[]) AS given, fence ON CONFLICT DO NOTHING")


async def fence_of_plain(count: int, *, batch: int, disk: bool) -> float:
    """What a plain statement takes of the time of a fenced one; each in turn, the medians."""
    fenced_times, plain_times = [], []
    async with led() as database:
        part, epoch = database.part, database.epoch
        made = await database.connect()
        try:
            await made.execute(f"SET synchronous_commit = {'on' if disk else 'off'}")
            for first in range(0, count, batch):
                keys = [f"{first + n:010}" for n in range(batch)]
                start = time.perf_counter()
                check(await made.fetch(FENCED, part, epoch, keys), part, epoch)
                middle = time.perf_counter()
                await made.fetch(PLAIN, part, epoch, [f"+{key}" for key in keys])
                plain_times.append(time.perf_counter() - middle)
                fenced_times.append(middle - start)
        finally:
            await made.close()
    return statistics.median(plain_times) / statistics.median(fenced_times)


ONE_ROW, MANY_ROWS = "one row, committed on the disk", f"{SMALL_BATCH} rows, the same"
FENCE_FORMS = (
    Form(ONE_ROW, partial(on_it, fence_of_plain, batch=1, disk=True), 0.02),
    Form(MANY_ROWS, partial(on_it, fence_of_plain, batch=SMALL_BATCH, disk=True), 0.5),
    *(
        Form(f"{name}, the disk not waited for", partial(on_it, measure, disk=False), share)
        for name, measure, share in (
            ("one row", partial(fence_of_plain, batch=1), 0.05),
            (f"{SMALL_BATCH} rows", partial(fence_of_plain, batch=SMALL_BATCH), 1),
        )
    ),
)


def fence_tables(found: Found) -> list[str]:
    """One row per size."""
    rows = [
        (form.name, found.spread(form.name).show(), found.spread(form.name).range())
        for form in FENCE_FORMS
    ]
    return [
        "Statements that insert rows and commit, with the fence and without, in turn: how many of"
        " the fenced ones are written in the time of a plain one.",
        "",
        *table(("a statement of", "fenced, of plain", "range"), rows),
    ]


def fence_bars(found: Found) -> list[Bar]:
    """What the fence may cost."""
    return [
        at_least("a fenced write, of a plain one", 0.9, found.spread(ONE_ROW)),
        at_least(
            f"a fenced write of {SMALL_BATCH} rows, of a plain one", 0.95, found.spread(MANY_ROWS)
        ),
    ]


FENCE = Family("postgres-fence", "The fence", (100_000,), FENCE_FORMS, fence_tables, fence_bars)
