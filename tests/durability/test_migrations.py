"""The steps of the schema, on a real PostgreSQL: with data, all at once, and when they fail."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.definitions import record
from tests.databases import empty_database, run
from yukta_rx.durability.postgres import migrate
from yukta_rx.durability.postgres._definition_rows import version_row
from yukta_rx.durability.postgres.steps import newest
from yukta_rx.durability.postgres.tables import metadata
from yukta_rx.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.feature("DUR-04"), pytest.mark.durable]

STEPS = [name for name, _ in migrate.history()]
BEFORE_SUMS = "0006"
"""The step before the one that makes tables which say in short what others hold."""

TABLES = (
    "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' "
    "AND table_name <> 'alembic_version' ORDER BY 1"
)
COLUMNS = (
    "SELECT column_name, data_type FROM information_schema.columns "
    "WHERE table_schema = 'public' AND table_name = $1 AND is_identity = 'NO' ORDER BY 1"
)
VALUES = {
    "integer": "n",
    "bigint": "n",
    "boolean": "n % 2 = 0",
    "text": "'größe ' || n",
    "bytea": "'\\x00ff'::bytea",
    "timestamp with time zone": "'2026-01-01T00:00:00.000001Z'::timestamptz + n * interval '1 day'",
}


@pytest.fixture
def database(postgres_server: str) -> Iterator[str]:
    """The address of a database with nothing in it."""
    with empty_database(postgres_server) as url:
        yield url


def tables(url: str) -> list[str]:
    return [row[0] for row in run(url, TABLES)]


def fill(url: str) -> None:
    """Put ten rows into every table that is there."""
    for table in tables(url):
        columns = {row[0]: VALUES[row[1]] for row in run(url, COLUMNS, table)}
        names, values = ", ".join(f'"{name}"' for name in columns), ", ".join(columns.values())
        run(url, f"INSERT INTO {table} ({names}) SELECT {values} FROM generate_series(1, 10) AS n")


def contents(url: str, columns: dict[str, list[str]]) -> dict[str, list[Any]]:
    """What stands in these columns of these tables."""
    return {
        table: sorted(
            map(
                tuple,
                run(url, "SELECT " + ", ".join(f'"{name}"' for name in names) + f" FROM {table}"),
            ),
            key=repr,
        )
        for table, names in columns.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_a_filled_database_of_any_step_goes_to_the_newest_and_back(
    step: str, database: str
) -> None:
    assert migrate.upgrade(database, step) == (None, step)
    fill(database)
    there = {table: [row[0] for row in run(database, COLUMNS, table)] for table in tables(database)}
    before = contents(database, there)
    assert all(len(rows) == 10 for rows in before.values())

    assert migrate.upgrade(database) == (step, STEPS[-1])
    assert migrate.differences(database) == []
    assert contents(database, there) == before

    assert migrate.downgrade(database, step) == (STEPS[-1], step)
    assert tables(database) == sorted(there)
    assert contents(database, there) == before

    assert migrate.downgrade(database, "base") == (step, None)
    assert tables(database) == []
    assert migrate.upgrade(database) == (None, STEPS[-1])
    assert migrate.differences(database) == []


@pytest.mark.slow
async def test_what_an_older_schema_held_is_used_by_the_stores(postgres_server: str) -> None:
    """Numbers go on, keys are counted, runs are known."""
    import asyncio

    from yukta_rx.durability.postgres.database import Database
    from yukta_rx.durability.postgres.definitions import PostgresWorkflowDefinitionStore
    from yukta_rx.durability.postgres.fence import raise_epoch
    from yukta_rx.durability.postgres.key_values import PostgresKeyValueStore
    from yukta_rx.errors import KeyValueFullError

    def older(url: str) -> None:
        from msgspec.structs import replace

        migrate.upgrade(url, BEFORE_SUMS)
        for version in (6, 7):
            given = replace(record("w", version), version=version)
            row = ("s", "w", version, given.definition_version, version_row(given))
            for table in ("workflow_definition_revision", "workflow_definition")[: version - 5]:
                run(
                    url,
                    f"INSERT INTO {table} (part, epoch, session_id, workflow_id, version, "
                    "definition_version, record, updated_at) "
                    "VALUES (0, 3, $1, $2, $3, $4, $5, now())",
                    *row,
                )
        run(url, "INSERT INTO kv_entry SELECT 0, 3, 's', 'k' || n, n FROM generate_series(1, 4) n")
        log = "INSERT INTO execution_log (part, epoch, execution_id, type, event) "
        run(url, log + "VALUES (0, 3, 'a', 'RUN_STARTED', ''), (0, 3, 'scheduler', 'X', '')")
        run(url, log + "VALUES (0, 3, 'b', 'RUN_STARTED', ''), (0, 3, 'a', 'RUN_FINISHED', '')")
        migrate.upgrade(url)

    # A database of its own, made and dropped outside of this loop.
    context = empty_database(postgres_server)
    url = await asyncio.to_thread(context.__enter__)
    try:
        await asyncio.to_thread(older, url)
        async with Database(url, size=2) as database:
            database.epoch = await database.change(lambda made: raise_epoch(made, 0, "test"))
            store = PostgresWorkflowDefinitionStore(database)
            [written] = await store.write("s", [record("w", "new")])
            assert written.version == 8
            assert [one.version for one in await store.versions("s", "w")] == [8, 7, 6]
            async with PostgresKeyValueStore(database) as values:
                assert values.kept == 4
                with pytest.raises(KeyValueFullError):
                    await values.put("s", "k5", 5, cap=4)
            runs = await database.fetch("SELECT execution_id, started_seq, ended_seq FROM run")
            assert sorted(map(tuple, runs)) == [("a", 1, 4), ("b", 3, 0)]
    finally:
        await asyncio.to_thread(context.__exit__, None, None, None)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_five_processes_at_the_same_instant_make_each_step_once(database: str) -> None:
    program = "import sys; from yukta_rx.durability.postgres import migrate; "
    program += "print(migrate.upgrade(sys.argv[1]))"
    waits = (
        "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database "
        "WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted"
    )
    # Nobody begins before all of them are there.
    gate = Gate(database)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, database], stdout=subprocess.PIPE, text=True
        )
        for _ in range(5)
    ]
    try:
        while run(database, waits)[0][0] < 5:
            assert [process.poll() for process in processes] == [None] * 5
        gate.open()
        said = sorted(process.communicate(timeout=120)[0].strip() for process in processes)
    finally:
        gate.open()
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0] * 5
    last = STEPS[-1]
    assert said == [str((last, last))] * 4 + [str((None, last))]
    assert migrate.differences(database) == []


class Gate:
    """Holds the lock of those who change the schema, on a connection in a thread of its own."""

    def __init__(self, url: str) -> None:
        import threading

        self._leave, ready = threading.Event(), threading.Event()

        def hold() -> None:
            import asyncio

            async def held() -> None:
                import asyncpg

                made = await asyncpg.connect(url)
                await made.execute("SELECT pg_advisory_lock($1::bigint)", migrate.LOCK)
                ready.set()
                await asyncio.to_thread(self._leave.wait)
                await made.close()

            asyncio.run(held())

        self._thread = threading.Thread(target=hold)
        self._thread.start()
        assert ready.wait(30)

    def open(self) -> None:
        self._leave.set()
        self._thread.join()


@pytest.mark.slow
def test_a_step_that_fails_leaves_the_step_before_and_can_be_done_again(database: str) -> None:
    migrate.upgrade(database, BEFORE_SUMS)
    there = tables(database)
    # The last table that the next step makes is in its way.
    run(database, "CREATE TABLE workflow_number (mine int)")

    with pytest.raises(StoreUnavailableError, match=f"stays at step {BEFORE_SUMS}.*already exists"):
        migrate.upgrade(database)

    assert migrate.current(database) == BEFORE_SUMS
    assert tables(database) == sorted([*there, "workflow_number"])
    with pytest.raises(StoreUnavailableError, match="run `yukta db upgrade`"):
        migrate.check(database)
    run(database, "DROP TABLE workflow_number")
    assert migrate.upgrade(database) == (BEFORE_SUMS, STEPS[-1])
    migrate.check(database)


@pytest.mark.slow
def test_a_database_that_is_newer_is_refused_and_left_alone(database: str) -> None:
    migrate.upgrade(database)
    run(database, "UPDATE alembic_version SET version_num = '9999'")

    for attempt in (migrate.check, migrate.upgrade):
        with pytest.raises(StoreUnavailableError, match=r"newer than this program.*9999"):
            attempt(database)
    assert migrate.current(database) == "9999"


def test_a_database_that_does_not_let_us_in_is_a_clear_error(postgres_server: str) -> None:
    nowhere = postgres_server.rpartition("/")[0] + "/nothing_of_this_name"
    for url, said in (
        (nowhere, "nothing_of_this_name"),
        ("postgresql://nobody@127.0.0.1:9/x", "127.0.0.1"),
        ("mysql://a:hidden-word@127.0.0.1/x", "mysql"),
    ):
        for ask in (migrate.current, migrate.upgrade, migrate.check, migrate.differences):
            with pytest.raises(
                StoreUnavailableError, match=f"does not let us in.*{said}"
            ) as caught:
                ask(url)
            assert "hidden-word" not in str(caught.value)


@pytest.mark.slow
def test_what_the_metadata_says_and_the_steps_make_is_compared(database: str) -> None:
    assert migrate.upgrade(database) == (None, STEPS[-1])
    assert migrate.differences(database) == []
    assert tables(database) == sorted(table.name for table in metadata.sorted_tables)

    run(database, "DROP INDEX session_history_at_idx")
    run(database, "ALTER TABLE kv_entry ADD COLUMN more text")
    found = [one[0] for one in migrate.differences(database)]
    assert sorted(found) == ["add_index", "remove_column"]


def test_steps_follow_each_other_and_the_newest_is_known_without_loading_them() -> None:
    assert sorted(STEPS) == STEPS
    assert migrate.head() == newest() == STEPS[-1]
    assert all(meaning for _, meaning in migrate.history())


def test_every_table_that_a_leader_writes_says_whose_it_is() -> None:
    for table in metadata.sorted_tables:
        assert {"part", "epoch"} <= set(table.columns.keys()), table.name
        assert "part" in table.primary_key.columns, table.name
