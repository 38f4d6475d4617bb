"""A server and its database: the schema, who leads, and what is told where it cannot be used."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from tests.durability.test_open import OF_SWITCH, SWITCHES, durable
from yukta_rx.config.load import load_settings
from yukta_rx.durability.open import open_stores
from yukta_rx.durability.postgres import migrate
from yukta_rx.durability.postgres.partition import LOCK
from yukta_rx.durability.postgres.steps import newest
from yukta_rx.errors import StoreUnavailableError
from yukta_rx.metrics import Meters

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [pytest.mark.feature("DUR-04", "DUR-05"), pytest.mark.durable]

HOLDERS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = $1::oid"


def opened(url: str, instance: str = "", profile: str = "postgres", **more: str) -> Any:
    environ = {"YUKTA_PROFILE": profile, "YUKTA_POSTGRES_URL": url, **more}
    return open_stores(load_settings("/dev/null", environ), asyncio.to_thread, Meters(), instance)


@asynccontextmanager
async def empty_database(url: str) -> AsyncIterator[str]:
    """Another database of the same server, with nothing in it."""
    name = f"yukta_empty_{os.getpid()}"
    made = await asyncpg.connect(url)
    try:
        await made.execute(f"CREATE DATABASE {name}")
        yield url.rpartition("/")[0] + f"/{name}"
        await made.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await made.close()


async def refusal(context: Any) -> str:
    with pytest.raises(StoreUnavailableError) as refused:
        async with context:
            pass
    assert refused.value.members["store"] == "postgres"
    return refused.value.detail


async def test_all_switches_share_one_database_and_one_lock(postgres, postgres_schema) -> None:
    async with opened(postgres_schema) as stores:
        assert stores.database.epoch == postgres.epoch + 1
        assert await postgres.fetchval(HOLDERS, LOCK) == 1
        assert set(stores.checks) == {"postgres"}
        assert durable(stores) == set().union(*OF_SWITCH.values())
        await stores.checks["postgres"]()


@pytest.mark.parametrize("switch", SWITCHES)
async def test_a_switch_governs_its_stores_and_no_others(
    postgres, postgres_schema, switch: str
) -> None:
    variable = f"YUKTA_{switch.upper().replace('-', '_')}_STORE_TYPE"
    async with opened(postgres_schema, profile="memory", **{variable: "postgres"}) as stores:
        assert durable(stores) == OF_SWITCH[switch]


async def test_one_switch_is_enough_to_have_it(postgres, postgres_schema) -> None:
    more = {"YUKTA_KV_STORE_TYPE": "postgres"}
    async with opened(postgres_schema, profile="memory", **more) as stores:
        assert stores.key_values.durable
        assert not stores.execution_log.durable
        assert await postgres.fetchval(HOLDERS, LOCK) == 1


async def test_a_second_server_is_refused_and_told_who_leads(postgres, postgres_schema) -> None:
    kv = {"YUKTA_KV_STORE_TYPE": "postgres", "profile": "memory"}
    async with opened(postgres_schema, "first", **kv):
        told = await refusal(opened(postgres_schema, "second", **kv))
    async with opened(postgres_schema, "third", **kv):
        pass

    assert told.startswith("yukta.postgres.url: another server leads partition 0")
    assert "first (" in told
    assert f"pid {os.getpid()})" in told
    assert "give this server a database of its own" in told


async def test_the_schema_is_made_at_start_or_its_absence_is_told(postgres_schema) -> None:
    kv = {"YUKTA_KV_STORE_TYPE": "postgres", "profile": "memory"}
    async with empty_database(postgres_schema) as url:
        told = await refusal(opened(url, YUKTA_POSTGRES_MIGRATE_ON_START="false", **kv))
        async with opened(url, **kv) as stores:
            assert stores.database.epoch == 1
        async with opened(url, YUKTA_POSTGRES_MIGRATE_ON_START="false", **kv) as stores:
            assert stores.database.epoch == 2

    assert told.startswith("yukta.postgres.url: ")
    assert "run `yukta db upgrade`" in told


async def test_an_address_for_the_migration_is_told_where_that_is_what_is_wrong(
    postgres_schema,
) -> None:
    kv = {"YUKTA_KV_STORE_TYPE": "postgres", "profile": "memory"}
    nowhere = "postgresql://postgres@127.0.0.1:1/postgres"
    async with empty_database(postgres_schema) as url:
        told = await refusal(opened(url, YUKTA_POSTGRES_MIGRATION_URL=nowhere, **kv))

    assert told.startswith("yukta.postgres.migration-url: ")


async def test_a_database_of_a_newer_version_is_left_alone(postgres, postgres_schema) -> None:
    kv = {"YUKTA_KV_STORE_TYPE": "postgres", "profile": "memory"}
    step = "UPDATE alembic_version SET version_num = $1"
    ours = await asyncio.to_thread(newest)
    await postgres.change(lambda made: made.execute(step, "9999"))
    try:
        told = await refusal(opened(postgres_schema, **kv))
    finally:
        await postgres.change(lambda made: made.execute(step, ours))

    assert "newer than this program" in told


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda url: url.rpartition("/")[0] + "/nobody_made_it", "does not exist"),
        (lambda url: "postgresql://postgres@127.0.0.1:1/postgres", "the database gives no answer"),
        (lambda url: url.replace("//", "//nobody_there:x@", 1).replace("@postgres@", "@"), ""),
    ],
)
async def test_what_is_wrong_with_an_address_is_told_with_its_setting(
    postgres_schema, change, reason
) -> None:
    told = await refusal(opened(change(postgres_schema)))

    assert told.startswith("yukta.postgres.url: ")
    assert reason in told


def test_the_newest_step_is_known_without_alembic() -> None:
    assert newest() == migrate.head()


async def test_a_start_whose_schema_is_up_to_date_loads_no_alembic(postgres_schema) -> None:
    program = (
        "import asyncio, sys\n"
        "from yukta_rx.config.load import load_settings\n"
        "from yukta_rx.durability.open import open_stores\n"
        "from yukta_rx.metrics import Meters\n"
        "async def main():\n"
        "    async with open_stores(load_settings(), asyncio.to_thread, Meters()):\n"
        "        print([name for name in ('alembic', 'sqlalchemy') if name in sys.modules])\n"
        "asyncio.run(main())\n"
    )
    environ = {name: v for name, v in os.environ.items() if not name.startswith("YUKTA_")}
    environ |= {"YUKTA_POSTGRES_URL": postgres_schema, "YUKTA_PROFILE": "postgres"}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program,
        env=environ,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()

    assert (out, err) == (b"[]\n", b"")
