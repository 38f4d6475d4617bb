"""`yukta doctor` where stores are in a database."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from tests.durability.conftest import postgres_schema, postgres_server
from yukta_rx.durability.postgres.steps import newest

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, pytest.mark.durable, pytest.mark.feature("DUR-04", "OBS-04")]

__all__ = ["postgres_schema", "postgres_server"]


def of(ended: Any, name: str) -> list[tuple[str, str]]:
    return [(one["verdict"], one["detail"]) for one in ended.results if one.get("check") == name]


def ask(url: str, sql: str) -> None:
    async def run() -> None:
        made = await asyncpg.connect(url)
        try:
            await made.execute(sql)
        finally:
            await made.close()

    asyncio.run(run())


@pytest.fixture
def database(postgres_schema, monkeypatch) -> Iterator[str]:
    monkeypatch.setenv("YUKTA_HTTP_PORT", "0")
    monkeypatch.setenv("YUKTA_KV_STORE_TYPE", "postgres")
    monkeypatch.setenv("YUKTA_POSTGRES_URL", postgres_schema)
    return postgres_schema


def test_it_tells_the_version_the_step_and_how_long_a_commit_takes(yukta, database) -> None:
    ended = yukta("doctor", "--json")

    lines = [one for one in ended.results if one.get("check") == "database"]
    assert ended.code == 0
    assert lines[0]["detail"].startswith("PostgreSQL 1")
    assert 0 < lines[0]["commitMs"] <= lines[0]["worstMs"]
    assert abs(lines[0]["skewSeconds"]) < 5
    assert lines[-1]["freeConnections"] > 0
    assert of(ended, "schema") == [("ok", f"at step {newest()}")]
    assert of(ended, "stores")[0][0] == "ok"
    assert of(ended, "leader")[-1][0] == "ok"


def test_a_server_that_leads_is_named_and_nothing_is_opened(yukta, serve, database) -> None:
    server = serve()
    ended = yukta("doctor", "--json")

    verdict, told = of(ended, "leader")[-1]
    assert ended.code == 1
    assert verdict == "fail"
    assert f"pid {server.process.pid})" in told
    assert of(ended, "stores") == []


@pytest.mark.parametrize(
    ("migrates", "verdict", "code"), [("true", "warn", 0), ("false", "fail", 1)]
)
def test_a_schema_that_is_behind_is_told(
    yukta, database, monkeypatch, migrates: str, verdict: str, code: int
) -> None:
    name = f"yukta_doctor_{migrates}"
    ask(database, f"CREATE DATABASE {name}")
    monkeypatch.setenv("YUKTA_POSTGRES_URL", database.rpartition("/")[0] + f"/{name}")
    monkeypatch.setenv("YUKTA_POSTGRES_MIGRATE_ON_START", migrates)
    try:
        ended = yukta("doctor", "--json")
    finally:
        ask(database, f"DROP DATABASE {name} WITH (FORCE)")

    assert ended.code == code
    [(found, told)] = of(ended, "schema")
    assert found == verdict
    assert told.startswith(f"at step none, this version needs {newest()}: ")


def test_a_database_that_does_not_answer_is_told_with_its_setting(
    yukta, database, monkeypatch
) -> None:
    monkeypatch.setenv("YUKTA_POSTGRES_URL", "postgresql://y:s3cr3t@127.0.0.1:1/y")
    ended = yukta("doctor", "--json")

    assert ended.code == 1
    [(verdict, told)] = of(ended, "database")
    assert verdict == "fail"
    assert told.startswith("yukta.postgres.url: the database gives no answer")
    assert "s3cr3t" not in ended.out + ended.err
