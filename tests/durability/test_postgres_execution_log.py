"""The execution log in PostgreSQL: its guarantees, and what connections and takeovers do to it."""

from __future__ import annotations

import asyncio
import itertools
import math
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contract.execution_log import (
    CHILDREN,
    COMPACT_AFTER,
    METERS,
    NOW,
    RETAINED,
    ExecutionLogContract,
    finished,
    key,
    note,
    of,
    started,
)
from tests.durability.lossy import Lossy
from tests.durability.lost_answers import take_over
from yukta_rx.durability.memory.execution_log import MemoryExecutionLogStore
from yukta_rx.durability.postgres.database import Database
from yukta_rx.durability.postgres.execution_log import PostgresExecutionLogStore
from yukta_rx.durability.postgres.fence import raise_epoch
from yukta_rx.errors import StaleLeaderError, StoreUnavailableError, UnserialisablePayloadError
from yukta_rx.metrics import Meters
from yukta_rx.model.execution_log import SCHEDULER, STREAMS, RunAborted, RunResumed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [pytest.mark.feature("DUR-01"), pytest.mark.durable]


class Settled(PostgresExecutionLogStore):
    """Is asked once it has dropped what it no longer keeps."""

    async def read(self, *args: Any, **named: Any) -> Any:
        await self.settled()
        return await super().read(*args, **named)

    async def runs(self) -> Any:
        await self.settled()
        return await super().runs()

    async def idempotency_keys(self, now: Any) -> Any:
        await self.settled()
        return await super().idempotency_keys(now)


@asynccontextmanager
async def log_in(
    database: Database, *, compact_after: int = 10_000, **more: Any
) -> AsyncIterator[PostgresExecutionLogStore]:
    async with PostgresExecutionLogStore(database, RETAINED, compact_after, **more) as store:
        yield store


@pytest.fixture
async def log(postgres: Database) -> Any:
    async with log_in(postgres) as store:
        yield store


@pytest.fixture
async def other(postgres: Database) -> Any:
    """The same leader's connections a second time."""
    async with Database(postgres._url, size=4) as database:
        database.epoch = postgres.epoch
        yield database


class TestContract(ExecutionLogContract):
    @pytest.fixture
    async def store(self, postgres: Database) -> Any:
        kept = {"children": CHILDREN, "meters": METERS}
        async with Settled(postgres, RETAINED, COMPACT_AFTER, **kept) as store:
            yield store


async def all_of(store: Any) -> dict[str, Any]:
    """All that a store says, by what it is asked; places as ranks, since there are gaps."""
    runs = await store.runs()
    names = [*(run.started.execution_id for run in runs), *sorted(STREAMS), *"abcdefgh"]
    return {
        "runs": [(run.started, run.ended, run.resumed) for run in runs],
        "unfinished": await store.unfinished(),
        "keys": sorted(await store.idempotency_keys(NOW), key=lambda one: one.scope),
        **{name: await of(store, name) for name in names},
    }


# --- group commit --------------------------------------------------------------------------------


async def test_a_hundred_starts_at_once_are_one_transaction(postgres, log) -> None:
    await log.append([note(SCHEDULER)])
    await asyncio.gather(
        *(log.append_start(started(f"r{n}"), key(f"r{n}", f"k{n}")) for n in range(100))
    )

    sizes = await postgres.fetch(
        "SELECT count(*) AS rows FROM execution_log WHERE type <> 'CONTROL_APPLIED' GROUP BY "
        "xmin::text"
    )
    assert [row["rows"] for row in sizes] == [200]
    for table in ("run", "idempotency_key"):
        found = f"SELECT count(*) AS rows, count(DISTINCT xmin::text) AS writes FROM {table}"
        assert tuple(await postgres.fetchrow(found)) == (100, 1)


async def test_what_is_appended_at_once_keeps_its_order(log) -> None:
    await asyncio.gather(*(log.append([note("a", f"c{n}"), note("b")]) for n in range(300)))

    assert [event.command for event in await of(log, "a")] == [f"c{n}" for n in range(300)]
    assert len(await of(log, "b")) == 300


# --- keys ----------------------------------------------------------------------------------------


async def test_case_40_of_many_starts_with_one_key_one_is_written_by_two_servers(
    log, other
) -> None:
    async with log_in(other) as second:
        for turn in range(20):
            names = [f"{turn}-{n}" for n in range(20)]
            said = await asyncio.gather(
                *(
                    (log, second)[n % 2].append_start(started(name), key(name, f"k{turn}"))
                    for n, name in enumerate(names)
                )
            )
            runs = [run.execution_id for run in await log.unfinished()]
            [won] = [name for name in runs if name in names]
            assert [name for name, known in zip(names, said, strict=True) if known is None] == [won]
            assert {known.execution_id for known in said if known is not None} == {won}


async def test_a_start_waits_for_a_key_that_is_being_set_free(log) -> None:
    await log.append_start(started("a"), key("a"))
    freed = log.append([finished("a"), key("a", seconds=0), key("x", "k2"), key("y", "k2")])
    _, again = await asyncio.gather(freed, log.append_start(started("b"), key("b")))

    assert again is None
    keys = {found.key: found.execution_id for found in await log.idempotency_keys(NOW)}
    assert keys == {"k": "b", "k2": "y"}


async def test_a_start_that_is_cancelled_while_it_is_written_is_there(log) -> None:
    asked = asyncio.create_task(log.append_start(started("a"), key("a")))
    await asyncio.sleep(0)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked

    assert await log.append_start(started("b"), key("b")) == key("a")


# --- takeovers and lost connections --------------------------------------------------------------


async def test_a_server_that_leads_no_more_writes_nothing(postgres, log) -> None:
    await log.append_start(started("a"), key("a"))
    before = await all_of(log)
    await postgres.change(lambda made: raise_epoch(made, postgres.part, "somebody else"))

    for write in (
        lambda: log.append_start(started("b")),
        lambda: log.append_start(started("b"), key("b", "other")),
        lambda: log.append_start(started("b"), key("b")),
        lambda: log.append([finished("a")]),
        lambda: log.append([key("a", seconds=0), key("b")]),
        lambda: log._retention.drop(NOW + timedelta(days=1)),
    ):
        with pytest.raises(StaleLeaderError):
            await write()
    assert await all_of(log) == before


@pytest.fixture
async def lossy(postgres: Database) -> Any:
    """A log on a way on which answers get lost, and that way."""
    async with Lossy(postgres._url) as way, Database(way.url, size=2) as database:
        database.epoch = postgres.epoch
        async with log_in(database) as store:
            await store.append([note("warm")])
            yield store, way


async def test_a_write_whose_answer_is_lost_is_there_once(log, lossy) -> None:
    store, way = lossy
    resumed = RunResumed(execution_id="a", time=NOW, new_execution_id="b")
    events: list[Any] = [note("a"), resumed, finished("a")]

    way.lose("SELECT 1")
    assert await store.append_start(started("a"), key("a")) is None
    way.lose("SELECT 1")
    await store.append(events)
    # A key that is appended makes it more than one statement.
    way.lose("COMMIT")
    await store.append([key("a", seconds=0)])

    assert way.lost == 3
    assert await of(log, "a") == [started("a"), key("a"), *events, key("a", seconds=0)]
    assert [run.resumed for run in await log.runs()] == [1]
    assert await log.append_start(started("b"), key("b")) is None


async def test_connections_that_are_cut_off_are_made_again(postgres, log) -> None:
    await log.append_start(started("a"), key("a"))
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    for n in range(3):
        await postgres.change(lambda made: made.execute(f"{cut} AND datname = current_database()"))
        await log.append([note("a", f"c{n}")])
        assert len(await log.read("a")) == 3 + n


async def test_a_log_that_cannot_be_reached_is_not_empty(postgres) -> None:
    async with Database(postgres._url) as gone:
        gone.epoch = postgres.epoch
        async with log_in(gone) as store:
            await store.append_start(started("a"), key("a"))
            await gone.__aexit__()
            for ask in (
                lambda: store.read("a"),
                lambda: store.runs(),
                lambda: store.unfinished(),
                lambda: store.idempotency_keys(NOW),
            ):
                with pytest.raises(StoreUnavailableError):
                    await ask()
    for ask in (lambda: store.read("a"), lambda: store.append([note("a")])):
        with pytest.raises(StoreUnavailableError, match="not open"):
            await ask()


async def test_everything_is_there_for_the_next_server(postgres, log) -> None:
    await log.append_start(started("a", {"when": NOW}), key("a"))
    await log.append([note("a"), note(SCHEDULER, "SetLimits"), finished("a")])
    await log.append_start(started("b"), key("b", "other"))
    before = await all_of(log)
    last = (await log.read("b"))[-1].seq
    await log.close()

    postgres.epoch = await postgres.change(lambda made: raise_epoch(made, 0, "the next"))
    async with log_in(postgres) as store:
        assert await all_of(store) == before
        assert await store.append_start(started("c"), key("c")) == key("a")
        await store.append([note("b")])
        assert (await store.read("b"))[-1].seq > last


# --- values --------------------------------------------------------------------------------------


async def test_cases_33_and_35_what_the_database_has_no_word_for_is_there_again(log) -> None:
    payload = {
        "nul": "x\0y",
        "big": [2**63, 2**64, -(2**70), 10**400],
        "floats": [-0.0, 5e-324, 1e22, 1.797e308, 1.0],
        "a": [{"b": math.nan}, math.inf],
        "lines": "\n\u2028 \\u0000 \\",
        "order": {"z": 1, "a": 2},
    }
    others = [note("a", f"c{number}") for number in range(99)]
    await log.append_start(started("a", payload))
    refused = await asyncio.gather(
        *(log.append([other]) for other in others),
        log.append([others[0], note("a", "\ud800")]),
        log.append_start(started("b", {"x": [object()]}), key("b")),
        return_exceptions=True,
    )

    assert [type(error) for error in refused if error] == [UnserialisablePayloadError] * 2
    [first, *rest] = await of(log, "a")
    assert rest == others
    assert repr(first.payload) == repr(payload)
    assert await of(log, "b") == []


NAMES = ("../../x", "a\0b", "a\\0000b", "a\\b", "'; DROP TABLE run; --", "ünï", "x" * 5000, "")


async def test_any_name_finds_its_own_rows(log) -> None:
    for n, name in enumerate(NAMES):
        assert await log.append_start(started(name), key(name, name)) is None
        await log.append([note(name, f"c{n}")])

    for n, name in enumerate(NAMES):
        assert await of(log, name) == [started(name), key(name, name), note(name, f"c{n}")]
        assert await log.append_start(started("new"), key("new", name)) == key(name, name)
    assert [run.execution_id for run in await log.unfinished()] == list(NAMES)
    assert await of(log, "half a pair \ud800") == []


# --- rows that cannot be read --------------------------------------------------------------------


async def test_rows_that_cannot_be_read_are_moved_aside_counted_and_listed(
    postgres, caplog
) -> None:
    meters = Meters()
    async with log_in(postgres, meters=meters) as store:
        for run in "abc":
            await store.append_start(started(run), key(run, f"k-{run}"))
            await store.append([note(run, f"c{n}") for n in range(5)])
            await store.append([finished(run)])
        spoil = "UPDATE {} SET event = $1 WHERE {} RETURNING seq"
        places = [
            await postgres.fetchval(spoil.format(table, which), bad)
            for table, which, bad in (
                ("execution_log", "execution_id = 'a' AND type = 'RUN_STARTED'", "not JSON"),
                ("execution_log", "execution_id = 'b' AND type = 'RUN_FINISHED'", "{}"),
                ("execution_log", "execution_id = 'c' AND event LIKE '%\"c1\"%'", '{"type":"NO"}'),
                ("execution_log", "execution_id = 'c' AND event LIKE '%\"c2\"%'", ""),
                ("idempotency_key", "key = 'k-c'", "[]"),
            )
        ]

        assert [run.started.execution_id for run in await store.runs()] == ["b", "c"]
        assert [run.execution_id for run in await store.unfinished()] == ["b"]
        page = await store.read("c", limit=4)
        assert [entry.event.TYPE for entry in page[:2]] == ["RUN_STARTED", "IDEMPOTENCY_KEY"]
        assert [entry.event.command for entry in page[2:]] == ["c0", "c3"]
        assert [found.key for found in await store.idempotency_keys(NOW)] == ["k-a", "k-b"]
        assert await store.append_start(started("d"), key("d", "k-c")) is None

        assert len(store.quarantined) == 5
        assert str(store.quarantined[0]).startswith(f"execution_log, run a, seq {places[0]}: ")
    kept = await postgres.fetch("SELECT seq, event, reason FROM execution_log_quarantine")
    assert sorted(row["seq"] for row in kept) == sorted(places)
    assert {"not JSON", "{}", "", "[]"} < {row["event"] for row in kept}
    assert all(row["reason"] for row in kept)
    assert meters.counter("yukta.store.quarantined", store="execution-log").value == 5
    assert caplog.text.count("was moved to execution_log_quarantine") == 5


async def test_who_does_not_lead_leaves_out_what_it_cannot_read_and_says_so(
    postgres, log, caplog
) -> None:
    await log.append_start(started("a"))
    await log.append([note("a", f"c{n}") for n in range(3)])
    await log.append_start(started("b"))
    await postgres.fetch("UPDATE execution_log SET event = '' WHERE type = 'RUN_STARTED'")
    await postgres.change(lambda made: raise_epoch(made, postgres.part, "somebody else"))

    assert [event.command for event in await of(log, "a")] == ["c0", "c1", "c2"]
    assert [await log.runs(), await log.unfinished(), await log.unfinished()] == [[], [], []]
    assert len(log.quarantined) == 2
    assert caplog.text.count("is left out") == 2
    assert await postgres.fetchval("SELECT count(*) FROM execution_log_quarantine") == 0
    assert await postgres.fetchval("SELECT count(*) FROM execution_log") == 5


# --- retention -----------------------------------------------------------------------------------


async def test_it_drops_what_memory_drops(postgres) -> None:
    model = MemoryExecutionLogStore(RETAINED, COMPACT_AFTER)
    resumed = RunResumed(execution_id="b", time=NOW, new_execution_id="c")
    steps: list[Any] = [
        *(started(run) for run in "abcdefgh"),
        *(finished(run) for run in "bdgac"),
        *(note(run) for run in "xyzabx"),
        *(note(SCHEDULER, f"c{n}") for n in range(12)),
        *(RunAborted(execution_id=run, time=NOW) for run in "eh"),
        *(started("g"), resumed, note("x"), key("b", "k1"), key("a", "k2", seconds=0)),
        *(note(SCHEDULER, f"d{n}") for n in range(12)),
    ]
    async with Settled(postgres, RETAINED, COMPACT_AFTER) as store:
        for step in steps:
            for each in (model, store):
                await each.append([step])
            await store.settled()
            assert await all_of(store) == await all_of(model)


RUNS = st.sampled_from("abcdefgh")
KEYS = st.sampled_from(["k1", "k2"])
LASTS = st.sampled_from([600, 600, -1, 0])
STEPS = st.one_of(
    st.builds(
        lambda run, name, lasts: (started(run), key(run, name, seconds=lasts)), RUNS, KEYS, LASTS
    ),
    st.builds(lambda run: (started(run), None), RUNS),
    st.builds(lambda run: [finished(run)], RUNS),
    st.builds(lambda run, name, lasts: [key(run, name, seconds=lasts)], RUNS, KEYS, LASTS),
    st.builds(lambda run, number: [note(run)] * number, RUNS, st.integers(0, 12)),
    st.builds(lambda run: [RunAborted(execution_id=run, time=NOW), note(SCHEDULER)], RUNS),
)
PARTS = itertools.count(1)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_it_says_what_memory_says(postgres_schema: str, steps: list[Any]) -> None:
    """Each example has a partition of its own, so they see nothing of each other."""
    model = MemoryExecutionLogStore(RETAINED, COMPACT_AFTER)

    async def main() -> None:
        async with Database(postgres_schema, part=next(PARTS), size=2) as database:
            database.epoch = await database.change(
                lambda made: raise_epoch(made, database.part, "test")
            )
            async with Settled(database, RETAINED, COMPACT_AFTER) as store:
                for step in steps:
                    if isinstance(step, list):
                        await store.append(step)
                        await model.append(step)
                    else:
                        assert await store.append_start(*step) == await model.append_start(*step)
                    await store.settled()
                said = [await all_of(each) for each in (store, model)]
                for each in said:
                    # A run that starts twice has no place among the starts.
                    each["unfinished"].sort(key=lambda one: one.execution_id)
                assert said[0] == said[1]

    asyncio.run(main())


async def test_a_log_is_made_shorter_while_it_is_written(postgres) -> None:
    async with log_in(postgres, compact_after=50) as store:

        async def some(first: int) -> None:
            for n in range(first, first + 60):
                await store.append_start(started(f"r{n}"), key(f"r{n}", f"k{n}", seconds=-1))
                await store.append([note(f"r{n}") for _ in range(5)])
                await store.append([finished(f"r{n}")])

        await asyncio.gather(store.append_start(started("open")), *(some(60 * n) for n in range(4)))
        await store.settled()
        await store._retention.drop(NOW)

        assert [run.execution_id for run in await store.unfinished()] == ["open"]
        runs = await store.runs()
        assert len(runs) == RETAINED + 1
        for run in runs[1:]:
            assert len(await of(store, run.started.execution_id)) == 8
    rows = "SELECT count(*) FROM {}"
    assert await postgres.fetchval(rows.format("execution_log")) == 1 + RETAINED * 8
    assert await postgres.fetchval(rows.format("run")) == 1 + RETAINED
    assert await postgres.fetchval(rows.format("idempotency_key")) == 0


async def test_a_run_that_gets_an_entry_while_it_is_dropped_loses_nothing_of_it(
    postgres, log, other
) -> None:
    """The writer has the row of the run while retention looks for it."""
    for n in range(RETAINED + 2):
        await log.append_start(started(f"r{n}"))
        await log.append([finished(f"r{n}")])
    made = await other.connect()
    try:
        async with made.transaction():
            await made.execute("SELECT 1 FROM run WHERE execution_id = 'r0' FOR UPDATE")
            await log._retention.drop(NOW)
    finally:
        await made.close()

    runs = [run.started.execution_id for run in await log.runs()]
    assert runs == ["r0", *(f"r{n}" for n in range(2, RETAINED + 2))]
    assert await of(log, "r0") == [started("r0"), finished("r0")]


# --- recovery reads by key, whatever is there ----------------------------------------------------


async def many(postgres: Database, runs: int, of_each: int, unfinished: int) -> None:
    """Fill the log: the last runs have no end."""
    head = '{"type":"%s","executionId":"%s","time":"2026-12-01T12:00:00+00:00",'
    start = '"sessionId":"s","workflowId":"w","payload":{"a":1}}'
    number = f"CASE WHEN run <= {runs - unfinished} THEN run * 10000 + {of_each} ELSE 0 END"
    await postgres.change(
        lambda made: made.execute(
            "INSERT INTO execution_log (part, epoch, execution_id, seq, type, event) "
            "OVERRIDING SYSTEM VALUE SELECT 0, 1, run, seq, type, format($1, type, run) || "
            "CASE type WHEN 'RUN_STARTED' THEN $2 WHEN 'RUN_FINISHED' THEN $3 ELSE $4 END "
            "FROM (SELECT 'r' || run AS run, run * 10000 + nr AS seq, CASE WHEN nr = 1 THEN "
            f"'RUN_STARTED' WHEN nr = {of_each} AND run <= {runs - unfinished} "
            "THEN 'RUN_FINISHED' ELSE 'NODE_FINISHED' END AS type "
            f"FROM generate_series(1, {runs}) run, generate_series(1, {of_each}) nr) AS made",
            head,
            start,
            '"status":"SUCCESS"}',
            '"status":"SUCCESS","nodeId":"n"}',
        )
    )
    await postgres.change(
        lambda made: made.execute(
            "INSERT INTO run (part, epoch, execution_id, started_seq, ended_seq, last_seq) "
            f"SELECT 0, 1, 'r' || run, run * 10000 + 1, {number}, run * 10000 + {of_each} "
            f"FROM generate_series(1, {runs}) run"
        )
    )


@pytest.mark.parametrize("analysed", [False, True])
async def test_neither_a_start_nor_retention_searches_the_log(postgres, analysed) -> None:
    await many(postgres, runs=600, of_each=60, unfinished=100)
    if analysed:
        await postgres.change(lambda made: made.execute("ANALYZE"))
    searched = "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'execution_log'"
    before = await postgres.fetchval(searched)

    async with Database(postgres._url, size=1) as alone:
        alone.epoch = postgres.epoch
        async with log_in(alone) as store:
            assert len(await store.runs()) == 600
            assert len(await store.unfinished()) == 100
            assert len(await store.read("r1")) == 60
            await store._retention.drop(NOW)
            assert len(await store.runs()) == 100
        await alone.fetchval("SELECT pg_stat_force_next_flush()")
    assert await postgres.fetchval(searched) == before


async def test_the_open_runs_of_a_long_log_are_found(postgres, log) -> None:
    await many(postgres, runs=300, of_each=20, unfinished=100)

    assert len(await log.unfinished()) == 100
    runs = await log.runs()
    assert len(runs) == 300
    assert sum(run.ended is None for run in runs) == 100
    assert runs[0].started.payload == {"a": 1}
    assert (await log.start_of("r7")).payload == {"a": 1}
    assert len(await log.read("r7")) == 20


async def test_a_key_that_is_set_free_the_moment_its_start_fails_waits_for_nothing(
    postgres: Database,
) -> None:
    async with log_in(postgres) as store:
        await take_over(postgres)
        failing = asyncio.ensure_future(store.append_start(started("a"), key("a")))
        while not store._claims:
            await asyncio.sleep(0)
        [claim] = store._claims.values()
        while not claim.settled:
            await asyncio.sleep(0)
        with pytest.raises(StaleLeaderError):
            await store.append([key("a", seconds=0)])
        with pytest.raises(StaleLeaderError):
            await failing
