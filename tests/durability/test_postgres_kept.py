"""Results, events, recent runs, effects on PostgreSQL: the contracts, takeovers, lost answers."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.archive import ArchiveContract, run
from tests.contract.effects import EffectContract, effect
from tests.contract.events import NOW, EventContract, event, numbers
from tests.contract.results import METERS, ResultContract, cursors, last, result
from tests.durability.lost_answers import losing_answers, lost_database, take_over
from yukta_rx.durability.postgres.archive import PostgresExecutionArchiveStore
from yukta_rx.durability.postgres.effects import PostgresEffectStore
from yukta_rx.durability.postgres.events import PostgresEventStore
from yukta_rx.durability.postgres.results import PostgresResultStore
from yukta_rx.errors import StaleLeaderError, StoreUnavailableError
from yukta_rx.metrics import Meters

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from yukta_rx.durability.postgres.database import Database

pytestmark = [pytest.mark.feature("DUR-04"), pytest.mark.durable]


async def count(postgres: Database, table: str) -> int:
    return int(await postgres.fetchval(f"SELECT count(*) FROM {table}"))


class TestResults(ResultContract):
    @pytest.fixture(params=[2, 1000])
    async def store(self, request: Any, postgres: Database) -> AsyncIterator[PostgresResultStore]:
        async with PostgresResultStore(postgres, step=request.param, meters=METERS) as store:
            yield store


class TestEvents(EventContract):
    @pytest.fixture
    async def store(self, postgres: Database) -> AsyncIterator[PostgresEventStore]:
        async with PostgresEventStore(postgres) as store:
            yield store


class TestEventsInSteps(TestEvents):
    @pytest.fixture
    async def store(self, postgres: Database) -> AsyncIterator[PostgresEventStore]:
        async with PostgresEventStore(postgres, step=7) as store:
            yield store


class TestArchive(ArchiveContract):
    @pytest.fixture
    async def store(self, postgres: Database) -> AsyncIterator[PostgresExecutionArchiveStore]:
        async with PostgresExecutionArchiveStore(postgres) as store:
            yield store

    def lose(self, store: Any) -> None:
        store._database = lost_database()


class TestEffects(EffectContract):
    @pytest.fixture
    async def store(self, postgres: Database) -> AsyncIterator[PostgresEffectStore]:
        async with PostgresEffectStore(postgres) as store:
            yield store

    def lose(self, store: Any) -> None:
        store._database = store._writer._database = lost_database()
        store._writer._connection.terminate()


# --- who leads -----------------------------------------------------------------------------------


async def test_what_comes_after_a_takeover_is_refused_counted_and_not_written(postgres) -> None:
    archive = PostgresExecutionArchiveStore(postgres)
    async with (
        PostgresResultStore(postgres) as results,
        PostgresEventStore(postgres) as events,
        PostgresEffectStore(postgres) as effects,
    ):
        await results.append("a", [result(1)])
        await results.end("b", [last(1)], NOW)
        await events.begin("x")
        await events.append([event(1)])
        await archive.put(run("a"), 10)
        await effects.record(effect(), b"1")
        await take_over(postgres)
        for late in (
            lambda: results.append("a", [result(2)]),
            lambda: results.end("a", [last(2)], NOW),
            lambda: results.trim(0),
            lambda: results.cut("a", 1),
            lambda: events.append([event(2)]),
            lambda: events.begin("y"),
            lambda: events.trim(1, NOW + timedelta(days=1)),
            lambda: archive.put(run("b"), 1),
            lambda: archive.remove("a"),
            lambda: effects.record(effect("late"), b"2"),
            lambda: effects.forget("line"),
        ):
            with pytest.raises(StaleLeaderError):
                await late()

        assert await cursors(results, "a") == [1]
        assert await cursors(results, "b") == [1]
        assert await numbers(events) == [1]
        assert [one.name for one in (await events.span()).epochs] == ["x"]
        assert list(await archive.ids()) == ["a"]
        assert (await effects.find(effect()), await effects.find(effect("late"))) == (b"1", None)


async def test_no_answer_is_an_error_for_results_and_events(postgres) -> None:
    async with PostgresResultStore(postgres) as results, PostgresEventStore(postgres) as events:
        await results.append("a", [result(1)])
        results._database = events._database = lost_database()
        for ask in (
            lambda: results.read("a"),
            lambda: results.last("a"),
            lambda: results.trim(0),
            lambda: events.read(0),
            events.span,
            lambda: events.trim(1),
            lambda: events.begin("x"),
        ):
            with pytest.raises(StoreUnavailableError):
                await ask()
    for closed in (
        lambda: results.append("a", [result(2)]),
        lambda: events.append([event(1)]),
    ):
        with pytest.raises(StoreUnavailableError, match="not open"):
            await closed()


# --- answers that are lost -----------------------------------------------------------------------


async def test_what_was_committed_without_an_answer_is_there_once(postgres) -> None:
    async with (
        losing_answers(postgres) as (database, way),
        PostgresResultStore(database) as results,
        PostgresEventStore(database) as events,
        PostgresEffectStore(database) as effects,
    ):
        await events.begin("x")
        for n in range(1, 5):
            for change in (
                lambda n=n: results.append("a", [result(n, {"n": n})]),
                lambda n=n: events.append([event(n)]),
                lambda n=n: effects.record(effect(str(n)), b"%d" % n),
            ):
                way.losing = n % 2
                await change()
                assert way.losing == 0
        way.losing = 1
        await results.end("a", [last(5)], NOW)

        part = await results.read("a")
        assert part is not None
        assert ([one.cursor for one in part.items], part.ended) == ([1, 2, 3, 4, 5], True)
        assert await numbers(events) == [1, 2, 3, 4]
        assert [await effects.find(effect(str(n))) for n in range(1, 5)] == [
            *(b"1", b"2", b"3", b"4")
        ]
    assert await count(postgres, "effect") == 4


async def test_a_run_is_kept_once_where_the_answer_to_the_commit_is_lost(postgres) -> None:
    async with losing_answers(postgres) as (database, way):
        archive = PostgresExecutionArchiveStore(database)
        for name in "abcd":
            way.losing = 1
            assert list(await archive.put(run(name), 2)) == (
                [chr(ord(name) - 2)] if name > "b" else []
            )
        assert list(await archive.ids()) == ["c", "d"]


# --- several at the same time --------------------------------------------------------------------


async def test_what_many_runs_write_at_the_same_time_is_a_few_statements(postgres) -> None:
    async with PostgresResultStore(postgres) as store:
        await asyncio.gather(
            *(
                store.append(f"r{n}", [result(cursor), result(cursor + 1)])
                for cursor in (1, 2, 4)
                for n in range(100)
            ),
            *(store.end(f"r{n}", [last(6)], NOW) for n in range(0, 100, 2)),
            *(store.append(f"r{n}", [result(7)]) for n in range(100)),
        )
        for n in range(100):
            part = await store.read(f"r{n}")
            assert part is not None
            more = 7 if n % 2 else 6
            assert [one.cursor for one in part.items] == [1, 2, 3, 4, 5, more]
            assert part.ended == (n % 2 == 0)
        commits = await postgres.fetch("SELECT DISTINCT xmin::text FROM execution_result")
        assert len(commits) < 10


async def test_of_runs_that_are_kept_at_the_same_time_no_more_than_asked_stay(postgres) -> None:
    stores = [PostgresExecutionArchiveStore(postgres) for _ in "ab"]
    gone = await asyncio.gather(*(stores[n % 2].put(run(f"r{n:02}"), 3) for n in range(20)))

    left = await stores[0].ids()
    assert len(left) == 3
    assert sorted([*left, *(one for several in gone for one in several)]) == [
        f"r{n:02}" for n in range(20)
    ]


async def test_two_that_write_the_same_at_the_same_time_write_it_once(postgres) -> None:
    async with (
        PostgresEffectStore(postgres) as effects,
        PostgresEffectStore(postgres) as other_effects,
        PostgresResultStore(postgres) as results,
        PostgresResultStore(postgres) as other_results,
        PostgresEventStore(postgres) as events,
        PostgresEventStore(postgres) as other_events,
    ):
        await events.begin("x")
        for n in range(1, 30):
            said = await asyncio.gather(
                effects.record(effect(str(n)), b"one"), other_effects.record(effect(str(n)), b"two")
            )
            assert said[0] == said[1] == await effects.find(effect(str(n)))
            await asyncio.gather(
                *(one.append("a", [result(n)]) for one in (results, other_results)),
                *(one.append([event(n)]) for one in (events, other_events)),
            )
        await asyncio.gather(*(one.end("a", [last(30)], NOW) for one in (results, other_results)))
        assert await cursors(results, "a") == list(range(1, 31))
        assert await numbers(events) == list(range(1, 30))


# --- removing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 3, 1000])
async def test_results_are_removed_in_steps_and_not_shown_from_the_first_on(postgres, step) -> None:
    async with PostgresResultStore(postgres, step=step) as store:
        for name in ("a", "b"):
            await store.end(name, [result(n) for n in range(1, 8)], NOW)
        await store.append("live", [result(1)])
        assert sorted(await store.trim(0)) == ["a", "b"]
        assert await store.read("a") is None
        assert await store.last("a") is None
        assert list(await store.trim(0)) == []
    assert await count(postgres, "execution_result") == 1
    assert await count(postgres, "execution_results") == 1


async def test_what_a_crash_left_of_a_removal_goes_with_the_next(postgres) -> None:
    async with PostgresResultStore(postgres) as store:
        await store.end("a", [result(1), result(2)], NOW)
        await postgres.change(
            lambda made: made.execute("UPDATE execution_results SET ended_at = '-infinity'")
        )
        assert await store.read("a") is None
        assert list(await store.trim(10)) == []
    assert await count(postgres, "execution_result") == 0
    assert await count(postgres, "execution_results") == 0


async def test_of_runs_that_are_put_at_once_the_last_stay_and_each_other_is_named_once(
    postgres,
) -> None:
    archive = PostgresExecutionArchiveStore(postgres)
    for name in ("x", "a"):
        await archive.put(run(name), 2)

    # The first of them is under way while the others come, which are one statement then.
    gone = await asyncio.gather(*(archive.put(run(name), 2) for name in ("b", "c", "a", "d", "e")))

    assert list(await archive.ids()) == ["d", "e"]
    assert sorted(name for some in gone for name in some) == ["a", "b", "c", "x"]
    await archive.close()


# --- values --------------------------------------------------------------------------------------


async def test_any_name_is_found_again_and_no_other(postgres) -> None:
    names = ["a/b", "x\0y", "\ud800", "\\0000", "é\u2028", "'; --"]
    archive = PostgresExecutionArchiveStore(postgres)
    async with PostgresResultStore(postgres) as results, PostgresEventStore(postgres) as events:
        for n, name in enumerate(names, 1):
            await results.end(name, [result(n, {"name": "a\0b", "x": [float("nan"), 1e22]})], NOW)
            await events.begin(name)
        for n, name in enumerate(names, 1):
            assert await cursors(results, name) == [n]
        assert [one.name for one in (await events.span()).epochs] == names
        assert sorted(await results.trim(0)) == sorted(names)
    names.remove("\ud800")
    for name in names:
        await archive.put(run(name, {"name": name}), 10)
    for name in names:
        assert await archive.get(name) == run(name, {"name": name})
    assert list(await archive.ids()) == names


async def test_a_run_that_cannot_be_read_is_counted_and_shown(postgres) -> None:
    meters = Meters()
    archive = PostgresExecutionArchiveStore(postgres, meters=meters)
    for name in ("a", "b", "c"):
        await archive.put(run(name), 10)
    damage = (
        "UPDATE execution_archive SET run = CASE execution_id WHEN 'a' THEN '{' ELSE "
        """'{"executionId":7}' END WHERE execution_id <> 'c'"""
    )
    await postgres.change(lambda made: made.execute(damage))
    for _ in range(2):
        assert [await archive.get(name) for name in "abc"] == [None, None, run("c")]
    assert [one.place for one in archive.quarantined] == [
        *("execution_archive, run a", "execution_archive, run b")
    ]
    assert meters.counter("yukta.store.quarantined", store="archive").value == 2


async def test_a_damaged_event_is_passed_over_and_counted_and_a_damaged_result_is_an_error(
    postgres,
) -> None:
    meters = Meters()
    async with (
        PostgresEventStore(postgres, meters=meters) as events,
        PostgresResultStore(postgres) as results,
    ):
        await events.begin("x")
        await events.append([event(n) for n in range(1, 9)])
        await results.append("a", [result(n) for n in range(1, 4)])
        await postgres.change(
            lambda made: made.execute(
                "UPDATE event SET event = '{' WHERE seq IN (2, 3, 8);"
                "UPDATE execution_result SET result = '{' WHERE cursor = 2"
            )
        )
        for _ in range(2):
            assert await numbers(events, 0, 2) == [1, 4]
            assert await numbers(events) == [1, 4, 5, 6, 7]
        assert len(events.quarantined) == 3
        assert meters.counter("yukta.store.quarantined", store="events").value == 3
        with pytest.raises(StoreUnavailableError, match="run a behind 0"):
            await results.read("a")
        assert await cursors(results, "a", after=2) == [3]


async def test_effects_of_other_stores_are_not_theirs(postgres) -> None:
    other = (
        "INSERT INTO effect (part, epoch, store, lineage, node_id, message_id, name, result) "
        "VALUES (0, 1, 'key_values', 'line', 'n', 'm', 'charge', '7')"
    )
    await postgres.change(lambda made: made.execute(other))
    async with PostgresEffectStore(postgres) as store:
        assert (store.kept, await store.find(effect())) == (0, None)
        assert await store.record(effect(), b"1") == b"1"
        await store.forget("line")
        assert store.kept == 0
    assert await count(postgres, "effect") == 1
