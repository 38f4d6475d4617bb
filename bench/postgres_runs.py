"""Durable runs on PostgreSQL: how many finish, against the statement that each needs; recovery."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import asyncpg

from bench import recovery
from bench.durable import folder
from bench.harness import Bar, Family, Form, Found, at_least, at_most, table
from bench.postgres import server
from bench.workflows import PLUGINS
from yukta_rx.app import Engine
from yukta_rx.cli.collector import calm_collector
from yukta_rx.config.load import load_settings
from yukta_rx.durability.postgres._writer import Writer
from yukta_rx.durability.postgres.database import Database
from yukta_rx.durability.postgres.execution_log import PostgresExecutionLogStore
from yukta_rx.durability.postgres.fence import check, fenced, raise_epoch
from yukta_rx.durability.postgres.queued_starts import PostgresQueuedStartStore
from yukta_rx.durability.postgres.tables import metadata
from yukta_rx.durability.recovery import recover

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from pathlib import Path

IN_FLIGHT = (1, 10, 100)

STEPS = recovery.line_of(
    "steps",
    ("in", "API_TRIGGER", {}),
    *((f"s{n}", f"ASYNC_{n}", {}) for n in range(3)),
    ("out", "COLLECT_TERMINAL", {}),
)


async def emptied() -> None:
    """Leave nothing in any table."""
    names = ", ".join(made.name for made in metadata.sorted_tables)
    async with Database(server()) as database:
        await database.change(lambda made: made.execute(f"TRUNCATE {names}; CHECKPOINT"))


async def rate(count: int, together: int, one: Callable[[int], Awaitable[object]]) -> float:
    """How many are done in a second, so many at a time."""
    left = iter(range(count))

    async def work() -> None:
        for n in left:
            await one(n)

    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(together):
            group.create_task(work())
    return count / (time.perf_counter() - start)


# --- the statement that a run needs --------------------------------------------------------------

TABLE = (
    "DROP TABLE IF EXISTS bare; CREATE TABLE bare (part int, epoch bigint, execution_id text,"
    " seq int, event text, PRIMARY KEY (part, execution_id, seq))"
)
PUT = fenced(
    "INSERT INTO bare SELECT $1::int, $2::bigint, given.* FROM fence, unnest($3::text[],"
    " $4::int[], $5::text[]) AS given ON CONFLICT DO NOTHING"
)
LINES = ("x" * 400, *("x" * 250 for _ in range(3)), "x" * 150)
"""The start, the steps and the end of a run, as long as they are in the log and the outputs."""

FACTS = ("x" * 400, *("x" * 250 for _ in range(5)), "x" * 150)
"""What is committed before the run goes on: its start, then the end of each node, then its own."""


@asynccontextmanager
async def bare_writer() -> AsyncIterator[Writer[tuple[int, int, Sequence[str]]]]:
    """Writes lines of runs, each given as the run, the place of the first one, and they."""
    await emptied()
    async with Database(server()) as database:
        await database.change(lambda made: made.execute(TABLE))
        epoch = await database.change(lambda made: raise_epoch(made, 0, "bench"))

        async def write(made: Any, batch: Sequence[tuple[int, int, Sequence[str]]]) -> None:
            ids = [f"{run:032x}" for run, _, lines in batch for _ in lines]
            places = [first + n for _, first, lines in batch for n in range(len(lines))]
            texts = [line for _, _, lines in batch for line in lines]
            check(await made.fetch(PUT, 0, epoch, ids, places, texts), 0, epoch)

        async with Writer(database, "bare", write) as writer:
            yield writer


async def bare(count: int, *, together: int) -> float:
    """All that a run has to say in one statement, with whatever else waits."""
    async with bare_writer() as writer:
        return await rate(count, together, lambda run: writer.put((run, 0, LINES)))


async def chained(count: int, *, together: int) -> float:
    """What a run may not go on without, each in a statement, with whatever else waits."""
    async with bare_writer() as writer:

        async def one(run: int) -> None:
            for place, fact in enumerate(FACTS):
                await writer.put((run, place, (fact,)))

        return await rate(count, together, one)


# --- runs ----------------------------------------------------------------------------------------


def engine_on(url: str) -> Engine:
    """An engine that keeps everything there."""
    environ = {"YUKTA_PROFILE": "postgres", "YUKTA_POSTGRES_URL": url}
    return Engine(load_settings("/dev/null", environ), plugins=PLUGINS)


@asynccontextmanager
async def opened() -> AsyncIterator[Engine]:
    """An engine on an empty database."""
    await emptied()
    async with engine_on(server()) as engine:
        await engine.start(recovery.SESSION, STEPS, 1)
        # As while a server runs.
        with calm_collector():
            yield engine


async def finished(count: int, *, together: int) -> float:
    """Started, worked off, and its end written."""
    async with opened() as engine:

        async def one(_n: int) -> None:
            run = await engine.start(recovery.SESSION, "steps", 1)
            assert await run.wait() == "SUCCESS"
            await engine.history.settled()

        return await rate(count, together, one)


def on_it(measure: Callable[..., Awaitable[float]], count: int, **options: Any) -> Awaitable[float]:
    """Measure when the server is there; it is made outside of any loop."""
    server()
    return measure(count, **options)


def bare_of(together: int) -> str:
    """The name of a form."""
    return f"the bare statement, {together} in flight"


def chain_of(together: int) -> str:
    """The name of a form."""
    return f"seven bare statements in a row, {together} in flight"


def runs_of(together: int) -> str:
    """The name of a form."""
    return f"runs, {together} in flight"


_SHARES = {1: 0.1, 10: 0.5, 100: 1}

RUN_FORMS = tuple(
    Form(name(together), partial(on_it, measure, together=together), _SHARES[together])
    for together in IN_FLIGHT
    for name, measure in ((bare_of, bare), (chain_of, chained), (runs_of, finished))
)


def run_tables(found: Found) -> list[str]:
    """One row per number in flight."""
    rows = [
        (
            str(together),
            found.spread(bare_of(together)).show(0),
            found.spread(chain_of(together)).show(0),
            found.spread(runs_of(together)).show(0),
            found.spread(runs_of(together)).range(0),
            found.ratio(runs_of(together), bare_of(together)).show(),
            found.ratio(runs_of(together), chain_of(together)).show(),
        )
        for together in IN_FLIGHT
    ]
    return [
        "Workflows of three trivial steps that are finished per second, each with its start, its"
        " steps and its end committed; against one statement per run that writes as much behind"
        " the fence and shares its commit with whatever else waits, and against seven such"
        " statements one after the other: its start, the end of each of its five nodes, which no"
        " child sees before it is committed, and its own.",
        "",
        *table(
            (
                *("in flight", "bare statement", "seven in a row", "runs", "range"),
                *("of the one", "of the seven"),
            ),
            rows,
        ),
    ]


def run_bars(found: Found) -> list[Bar]:
    """What durability may cost."""
    return [
        at_least(
            f"durable runs on PostgreSQL, {together} in flight, of the bare statement",
            0.35,
            found.ratio(runs_of(together), bare_of(together)),
        )
        for together in IN_FLIGHT
    ]


RUNS = Family(
    "postgres-runs", "Durable runs on PostgreSQL", (1_000,), RUN_FORMS, run_tables, run_bars
)


# --- until the first resumed step ----------------------------------------------------------------


def begun(path: Path, url: str) -> subprocess.Popen[bytes]:
    """A server process on the database."""
    environ = recovery.environment(path) | {
        "YUKTA_PROFILE": "postgres",
        "YUKTA_POSTGRES_URL": url,
    }
    command = [sys.executable, "-m", "yukta_rx", "serve", "--port", "0"]
    return subprocess.Popen(command, cwd=recovery.ROOT, env=environ, stderr=subprocess.PIPE)


def first_step(_count: int) -> float:
    """Seconds from the start of the process to the first step of a run that goes on."""
    server()
    asyncio.run(emptied())
    with folder() as parent:
        path = parent.resolve()
        first = begun(path, server())
        try:
            url = recovery.served(first)
            body = {"workflows": [recovery.STEPS]}
            recovery.ask(f"{url}/api/sessions/{recovery.SESSION}", "PUT", body)
            recovery.ask(f"{url}/api/workflow/{recovery.SESSION}/steps/start", "POST", {})
            recovery.grown(path / "steps.jsonl", 200)
        finally:
            recovery.ended(first, signal.SIGKILL)
        size = (path / "steps.jsonl").stat().st_size
        start = time.perf_counter()
        second = begun(path, server())
        try:
            return recovery.grown(path / "steps.jsonl", size) - start
        finally:
            recovery.ended(second)


# --- a long log ----------------------------------------------------------------------------------


class Timed(asyncpg.Connection):  # type: ignore[misc]
    """A connection that notes how long its statements take, from the asking to the answer."""

    __slots__ = ()

    spent: ClassVar[list[float]] = []

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.add_query_logger(lambda query: self.spent.append(query.elapsed))


class TimedDatabase(Database):
    """A database whose statements are timed."""

    def _options(self, **settings: str) -> dict[str, Any]:
        return {**super()._options(**settings), "connection_class": Timed}


async def recovered(count: int, *, each: int, kept: int) -> float:
    """Milliseconds that a recovery waits for the database."""
    await emptied()
    async with Database(server()) as database:
        database.epoch = await database.change(lambda made: raise_epoch(made, 0, "bench"))
        async with PostgresExecutionLogStore(database, 10**6, 10**9) as log:
            some: list[Any] = []
            for events in recovery.log_of(count, each):
                some += events
                if len(some) >= 1000:
                    await log.append(some)
                    some = []
            await log.append(some)
        await database.change(lambda made: made.execute("ANALYZE; CHECKPOINT"))
        epoch = await database.change(lambda made: raise_epoch(made, 0, "bench"))
    async with TimedDatabase(server()) as database:
        database.epoch = epoch
        async with (
            PostgresExecutionLogStore(database, kept, 10_000) as log,
            PostgresQueuedStartStore(database) as queue,
        ):
            Timed.spent.clear()
            found = await recover(log, queue, datetime.now(UTC))
            spent = sum(Timed.spent)
        assert len(found.aborted) == recovery.OPEN_RUNS
        return spent * 1000


STEP = "first step of a resumed run, s"
LOG = "database time of a recovery, 500 runs of 400 events, ms"
AGAIN_FORMS = (
    Form(STEP, first_step),
    Form(LOG, partial(on_it, recovered, each=400, kept=500), 200_000),
    Form(
        "database time of a recovery, 10,000 runs of 20 events, ms",
        partial(on_it, recovered, each=20, kept=10_000),
        200_000,
    ),
)


def again_tables(found: Found) -> list[str]:
    """One row per figure."""
    rows = [
        (form.name, found.spread(form.name).show(), found.spread(form.name).range())
        for form in AGAIN_FORMS
    ]
    return [
        "What a crash costs on PostgreSQL. The first is from the start of the process, modules"
        " compiled, `auto-resume` set; the others are of a log of 200,000 events with 100 runs"
        " without an end, from the asking to the answer of every statement. By default 500 runs"
        " are kept.",
        "",
        *table(("figure", "median", "range"), rows),
    ]


def again_bars(found: Found) -> list[Bar]:
    """A crash is a short break."""
    return [
        at_most("PostgreSQL: start to the first resumed step", 0.8, found.spread(STEP), " s"),
        at_most("database time of a recovery", 25, found.spread(LOG), " ms"),
    ]


AGAIN = Family(
    "postgres-recovery", "Recovery on PostgreSQL", (1,), AGAIN_FORMS, again_tables, again_bars
)
