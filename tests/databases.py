"""Databases of our own for one test each, on the server that there is."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.errors import ConfigError
from yukta_rx.testing.postgres import postgres_url

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def server_or_skip() -> Iterator[str]:
    """The address of a PostgreSQL; without one the test is skipped, and says why."""
    server = postgres_url()
    try:
        url = server.__enter__()
    except ConfigError as error:
        pytest.skip(str(error))
    try:
        yield url
    finally:
        server.__exit__(None, None, None)


@contextmanager
def empty_database(server: str) -> Iterator[str]:
    """The address of a new database; dropped afterwards, whoever is in it."""
    name = f"yukta_test_{uuid.uuid4().hex[:12]}"
    run(server, f"CREATE DATABASE {name}")
    try:
        yield server.rpartition("/")[0] + f"/{name}"
    finally:
        run(server, f"DROP DATABASE {name} WITH (FORCE)")


def run(url: str, sql: str, *args: Any) -> list[Any]:
    """The rows of a statement, on a connection of its own."""

    async def ask() -> list[Any]:
        import asyncpg

        made = await asyncpg.connect(url)
        try:
            return list(await made.fetch(sql, *args))
        finally:
            await made.close()

    return asyncio.run(ask())
