"""Workflows and sessions in PostgreSQL: two writers, lost answers, damaged rows."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from tests.contract.definitions import number_of, record
from tests.contract.sessions import change, session
from tests.durability.lossy import Lossy
from yukta_rx.durability.postgres._definition_rows import session_row, version_row
from yukta_rx.durability.postgres.database import Database
from yukta_rx.durability.postgres.definitions import PostgresWorkflowDefinitionStore
from yukta_rx.durability.postgres.fence import raise_epoch
from yukta_rx.durability.postgres.sessions import PostgresSessionConfigStore
from yukta_rx.durability.stores.definitions import DAMAGED
from yukta_rx.durability.stores.sessions import SessionChange
from yukta_rx.errors import StaleLeaderError, StoreUnavailableError
from yukta_rx.metrics import Meters

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

pytestmark = [pytest.mark.feature("DUR-05"), pytest.mark.durable]

KEEP = 5
PLACE = "workflow_definition, session s, workflow w"


@asynccontextmanager
async def beside(database: Database, url: str | None = None) -> AsyncIterator[Database]:
    """Other connections of the server that leads."""
    async with Database(url or database._url, size=4) as other:
        other.epoch = database.epoch
        yield other


async def opened(
    database: Database, keep: int = KEEP, meters: Meters | None = None
) -> PostgresWorkflowDefinitionStore:
    store = PostgresWorkflowDefinitionStore(database, keep, meters)
    await store.open()
    return store


async def do(database: Database, sql: str, *args: Any) -> None:
    await database.change(lambda made: made.execute(sql, *args))


# --- several at once -----------------------------------------------------------------------------


@pytest.mark.slow
async def test_two_writers_at_once_never_give_a_number_twice_and_never_keep_too_many(
    postgres,
) -> None:
    async with beside(postgres) as other:
        stores = [await opened(database) for database in (postgres, other)]
        seen: list[int] = []
        given: list[int] = []
        done = asyncio.Event()

        async def watch() -> None:
            while not done.is_set():
                seen.append(len(await stores[0].versions("s", "w")))

        async def write(store: Any, name: str) -> None:
            for number in range(15):
                [made] = await store.write("s", [record("w", f"{name}{number}")])
                given.append(made.version)
                if number == 7:
                    await store.write("s", [], ["w"])

        async with asyncio.TaskGroup() as group:
            group.create_task(watch())
            async with asyncio.TaskGroup() as writers:
                for store, name in zip(stores, "ab", strict=True):
                    writers.create_task(write(store, name))
            done.set()

        assert len(set(given)) == len(given) == 30
        assert max(seen) <= KEEP
        kept = [one.version for one in await stores[1].versions("s", "w")]
        assert kept == sorted(given)[: -KEEP - 1 : -1]


@pytest.mark.slow
async def test_commits_of_the_same_workflows_in_any_order_do_not_stop_each_other(postgres) -> None:
    names = [f"w{number}" for number in range(20)]

    def changes(number: int, order: Sequence[str]) -> list[SessionChange]:
        sessions = ("s", "t") if number % 2 else ("t", "s")
        return [
            SessionChange(
                session_id=name,
                record=session(name, name=str(number)),
                put=tuple(record(workflow, number, name) for workflow in order),
            )
            for name in sessions
        ]

    async with beside(postgres) as other:
        stores = [PostgresSessionConfigStore(await opened(one)) for one in (postgres, other)]
        orders = [names, names[::-1]]
        made = await asyncio.gather(
            *(stores[n % 2].commit(changes(n, orders[n % 2])) for n in range(8))
        )

        assert [len(one) for one in made] == [40] * 8
        definitions = await opened(postgres)
        for session_id in ("s", "t"):
            numbers = {number_of(one) for one in await definitions.list(session_id)}
            # All of one commit is in force, whichever was last.
            assert len(numbers) == 1
            [last] = {one.version for one in await definitions.list(session_id)}
            assert last == 8


async def test_a_commit_of_500_workflows_is_one_transaction(postgres) -> None:
    definitions = await opened(postgres)
    sessions = PostgresSessionConfigStore(definitions)
    put = tuple(record(f"w{number:03}", number) for number in range(500))

    made = await sessions.commit([SessionChange(session_id="s", record=session("s"), put=put)])

    assert [one.version for one in made] == [1] * 500
    assert [number_of(one) for one in await definitions.list("s")] == list(range(500))
    tables = ("workflow_definition", "workflow_definition_revision", "workflow_number")
    rows = " UNION ALL ".join(f"SELECT xmin FROM {one}" for one in (*tables, "session_config"))
    counted = await postgres.fetchrow(
        f"SELECT count(DISTINCT xmin::text), count(*) FROM ({rows}) t"
    )
    assert tuple(counted) == (1, 1501)


# --- what happens to a server --------------------------------------------------------------------


async def test_a_server_that_does_not_lead_any_more_writes_nothing(postgres) -> None:
    definitions = await opened(postgres)
    sessions = PostgresSessionConfigStore(definitions)
    await sessions.commit([change("s", "w")])
    await do(postgres, "DELETE FROM quarantined_row")
    await postgres.change(lambda made: raise_epoch(made, 0, "somebody else"))

    for attempt in (
        lambda: sessions.commit([change("t", "v")]),
        lambda: sessions.commit([SessionChange(session_id="s", gone=True, remove=("w",))]),
        lambda: definitions.write("s", [record("w", 2)]),
        lambda: definitions.write("s", [], ["w"]),
        lambda: definitions.annotate("s", "w", 1, "late"),
    ):
        with pytest.raises(StaleLeaderError):
            await attempt()

    assert [one.session_id for one in await sessions.list()] == ["s"]
    assert [(one.version, one.note) for one in await definitions.versions("s", "w")] == [(1, None)]
    assert list(await definitions.list("t")) == []
    assert await postgres.fetchval("SELECT last_version FROM workflow_number") == 1


async def test_a_commit_whose_answer_is_lost_is_made_once(postgres) -> None:
    async with Lossy(postgres._url) as way, beside(postgres, way.url) as database:
        definitions = await opened(database)
        sessions = PostgresSessionConfigStore(definitions)

        way.lose("COMMIT")
        made = await sessions.commit([change("s", "w", "v")])
        way.lose("COMMIT")
        noted = await definitions.annotate("s", "w", 1, "good")

        assert way.lost == 2
        assert [one.version for one in made] == [1, 1]
        assert noted is not None
        kept = await (await opened(postgres)).versions("s", "w")
        assert [(one.version, one.note) for one in kept] == [(1, "good")]


# --- what comes back -----------------------------------------------------------------------------


async def test_everything_comes_back_as_it_was_after_a_restart(postgres) -> None:
    values: list[Any] = [
        *(1, 1.0, -0.0, 2**64 + 1, -(10**30), 1e300, "a\0b \ud7ff \u2028 名前 😀", "\\u0000"),
        *({"b": 1, "a": None, "": []}, [2, [1, 1.0]], {"$yukta": "bytes", "v": "x"}),
    ]
    odd = replace(
        record("w", values),
        created_at=datetime(
            2026, 1, 1, 1, 2, 3, 4, tzinfo=timezone(timedelta(hours=5, minutes=30))
        ),
        updated_at=datetime(1999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        base_dir=Path("/tmp/größe ü"),
        actor="ада\u2028",
        note="with \\ and \0 and 😀",
    )
    [written] = await (await opened(postgres)).write("s", [odd])

    store = await opened(postgres)
    found = await store.get("s", "w")
    assert found == written
    assert found is not None
    assert repr(number_of(found)) == repr(values)
    assert (found.created_at, found.updated_at) == (odd.created_at, odd.updated_at)
    assert (found.note, found.base_dir, found.actor) == (odd.note, odd.base_dir, odd.actor)
    assert found.definition_version == odd.definition_version
    assert list(await store.versions("s", "w")) == [found]
    # The same again is the same.
    assert list(await store.write("s", [odd])) == [found]


async def test_what_jsonb_takes_for_equal_is_another_version(postgres) -> None:
    store = await opened(postgres)
    for number in (1, 1.0, Decimal(1), {"a": 1, "b": 2}, {"b": 2, "a": 1}):
        await store.write("s", [record("w", number)])

    said = [repr(number_of(one)) for one in await (await opened(postgres)).versions("s", "w")]
    # The order of members has no meaning, so the last two are the same.
    assert said == ["{'a': 1, 'b': 2}", "Decimal('1')", "1.0", "1"]


async def test_versions_that_go_are_those_that_go_in_memory(postgres) -> None:
    """Notes given, taken and put, several versions in one write."""
    from yukta_rx.durability.memory.definitions import MemoryWorkflowDefinitionStore

    stores = [MemoryWorkflowDefinitionStore(3), await opened(postgres, keep=3)]
    said = []
    for store in stores:
        await store.write("s", [record("w", number) for number in range(5)])
        await store.annotate("s", "w", 3, "a")
        await store.write("s", [replace(record("w", 10), note="b"), record("w", 11)])
        await store.write("s", [record("w", number) for number in range(20, 24)])
        first = [(one.version, one.note) for one in await store.versions("s", "w")]
        await store.annotate("s", "w", 3, None)
        await store.annotate("s", "w", 11, "newest")
        await store.write("s", [record("w", 30)])
        said.append((first, [(one.version, one.note) for one in await store.versions("s", "w")]))
    assert said[0] == said[1]
    assert said[0][0] == [(11, None), (10, None), (9, None), (6, "b"), (3, "a")]


async def test_a_text_is_read_once_as_long_as_it_is_the_same(postgres) -> None:
    store = await opened(postgres)
    [written] = await store.write("s", [record("w", 1)])
    for _ in range(3):
        await store.get("s", "w")
        await store.list("s")
        await store.versions("s", "w")
    assert store.rows.read == 1

    text = version_row(replace(record("w", 2), version=written.version))
    await do(postgres, "UPDATE workflow_definition SET record = $1", text)
    assert number_of(await store.get("s", "w")) == 2
    assert store.rows.read == 2


async def test_a_session_is_read_once_as_long_as_its_text_is_the_same(postgres) -> None:
    store = await opened(postgres)
    sessions = PostgresSessionConfigStore(store)
    await sessions.commit([SessionChange(session_id="s", record=session("s"))])
    before = store.rows.read
    found = [await sessions.get("s") for _ in range(3)]
    assert found == [session("s")] * 3
    assert store.rows.read == before + 1

    text = session_row(session("s", name="another"))
    await do(postgres, "UPDATE session_config SET record = $1", text)
    changed = await sessions.get("s")
    assert changed is not None
    assert changed.config.name == "another"


# --- what cannot be read -------------------------------------------------------------------------


async def test_a_damaged_row_stops_no_other_and_is_counted_and_named(postgres) -> None:
    meters = Meters()
    await (await opened(postgres)).write("s", [record(name, 1) for name in ("u", "v", "w")])
    await do(
        postgres,
        "UPDATE workflow_definition SET record = replace(record, $1, $2) WHERE workflow_id = 'w'",
        '"format":1',
        '"format":2',
    )
    store = await opened(postgres, meters=meters)

    assert [str(one) for one in store.quarantined] == [
        f"{PLACE}: /format: is 2; this version of yukta reads 1"
    ]
    for _ in range(2):
        assert [one.workflow_id for one in await store.list("s")] == ["u", "v"]
        with pytest.raises(StoreUnavailableError, match="save it anew") as caught:
            await store.get("s", "w")
        assert caught.value.members[DAMAGED] == PLACE
    assert meters.counter("yukta.store.quarantined", store="session").value == 1
    # The version itself is there.
    assert [number_of(one) for one in await store.versions("s", "w")] == [1]

    [written] = await store.write("s", [record("w", 1)])
    assert written.version == 2
    assert number_of(await store.get("s", "w")) == 1
    [aside] = await postgres.fetch("SELECT place, row, reason FROM quarantined_row")
    assert aside["place"] == PLACE
    assert '"format":2' in aside["row"]
    assert [one.place for one in store.quarantined] == ["quarantined_row 1"]


async def test_a_damaged_version_stops_no_other_and_may_be_noted_by_nobody(postgres) -> None:
    store = await opened(postgres)
    for number in (1, 2, 3):
        await store.write("s", [record("w", number)])
    damage = "UPDATE workflow_definition_revision SET record = '{' WHERE version = 2"
    await do(postgres, damage)

    assert [one.version for one in await store.versions("s", "w")] == [3, 1]
    for ask in (
        lambda: store.version("s", "w", 2),
        lambda: store.annotate("s", "w", 2, "x"),
    ):
        with pytest.raises(StoreUnavailableError, match="workflow w, version 2: line 1"):
            await ask()
    assert len(store.quarantined) == 1
    for number in range(10):
        await store.write("s", [record("w", f"more {number}")])
    assert await store.version("s", "w", 2) is None
    assert await store.annotate("s", "w", 2**63, "x") is None

    await do(postgres, damage.replace("2", "13"))
    assert len(await store.versions("s", "w")) == KEEP - 1
    await store.write("s", [], ["w"])
    assert list(store.quarantined) == []


async def test_a_damaged_session_is_replaced_or_removed_and_its_text_is_kept(postgres) -> None:
    sessions = PostgresSessionConfigStore(await opened(postgres))
    await sessions.commit([change(name, "w", "v") for name in ("s", "t", "u")])
    await do(postgres, "UPDATE session_config SET record = '[]' WHERE session_id <> 'u'")
    await do(
        postgres,
        "UPDATE workflow_definition SET record = 'nothing' "
        "WHERE session_id = 't' AND workflow_id = 'w'",
    )
    definitions = await opened(postgres)
    sessions = PostgresSessionConfigStore(definitions)

    assert [one.session_id for one in await sessions.list()] == ["u"]
    assert len(definitions.quarantined) == 3
    with pytest.raises(StoreUnavailableError, match="session_config, session s"):
        await sessions.get("s")

    # Who removes a session names the workflows that it sees.
    seen = tuple(one.workflow_id for one in await definitions.list("t"))
    gone = SessionChange(session_id="t", gone=True, remove=seen)
    await sessions.commit([change("s", "w"), gone])

    assert await sessions.get("s") == session("s")
    assert await sessions.get("t") is None
    assert list(await definitions.list("t")) == []
    assert (
        await postgres.fetchval(
            "SELECT count(*) FROM workflow_definition_revision WHERE session_id = 't'"
        )
        == 0
    )
    kept = await postgres.fetch("SELECT place, row FROM quarantined_row ORDER BY place")
    assert [tuple(one) for one in kept] == [
        ("session_config, session s", "[]"),
        ("session_config, session t", "[]"),
        ("workflow_definition, session t, workflow w", "nothing"),
    ]
    assert all("set aside" in one.reason for one in definitions.quarantined)
