"""pytest fixtures: an engine, a server and a client, for async tests.

Installed with yukta_rx as the pytest plugin `yukta`; `-p no:yukta` leaves it out. Loading it loads
nothing but pytest; a fixture loads what it needs when it is used.

The three live on the event loop of the test, so that test has to be a coroutine. With
pytest-asyncio installed they are its fixtures, in its strict mode as in its auto mode; without it
they are plain async fixtures, which anyio's plugin, or another, runs.

Feature: EXT-01.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from aiohttp import ClientSession
    from pytest import fixture as async_fixture  # noqa: PT013

    from yukta_rx.app import Engine
    from yukta_rx.config.settings import Settings
    from yukta_rx.http.server import HttpServer
else:
    try:
        from pytest_asyncio import fixture as async_fixture
    except ImportError:
        from pytest import fixture as async_fixture  # noqa: PT013


@pytest.fixture
def yukta_settings() -> Settings:
    """Settings of `yukta_engine`: the defaults, in memory. Override it to have others."""
    from yukta_rx.testing.server import default_settings

    return default_settings()


@pytest.fixture
def yukta_plugins() -> Sequence[Any]:
    """Node types of `yukta_engine` beside those that are installed. Override it to have some."""
    return ()


@async_fixture
async def yukta_engine(
    request: pytest.FixtureRequest, yukta_settings: Settings, yukta_plugins: Sequence[Any]
) -> AsyncIterator[Engine]:
    """A started engine, closed after the test."""
    _check_async(request)
    from yukta_rx.app import Engine

    async with Engine(yukta_settings, yukta_plugins) as engine:
        yield engine


@async_fixture
async def yukta_server(yukta_engine: Engine) -> AsyncIterator[HttpServer]:
    """A real server of `yukta_engine` on a free port of 127.0.0.1; `url` says where."""
    from yukta_rx.testing.server import served

    async with served(yukta_engine) as server:
        yield server


@async_fixture
async def yukta_client(yukta_server: HttpServer) -> AsyncIterator[ClientSession]:
    """An aiohttp session bound to `yukta_server`: `await yukta_client.get("/health")`."""
    from yukta_rx.testing.server import connected

    async with connected(yukta_server) as session:
        yield session


def _check_async(request: pytest.FixtureRequest) -> None:
    """Refuse a test that no event loop serves; its requests would never be answered."""
    marked = any(request.node.get_closest_marker(name) for name in ("asyncio", "anyio"))
    if not marked and not inspect.iscoroutinefunction(request.function):
        pytest.fail(
            "yukta_engine, yukta_server and yukta_client live on the test's event loop: make the"
            " test `async def`",
            pytrace=False,
        )
