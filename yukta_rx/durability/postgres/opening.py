"""What a server does with its database before its stores can be used: schema, lock, epoch.

Feature: DUR-04.
"""

from __future__ import annotations

import logging
import os
import socket
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.durability.postgres.database import Database
from yukta_rx.durability.postgres.partition import PartitionLock
from yukta_rx.durability.postgres.steps import newest
from yukta_rx.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AsyncExitStack

    from yukta_rx.config.settings import Settings
    from yukta_rx.durability.stores.leading import Leading
    from yukta_rx.metrics import Meters

OLDEST: Final = 15
"""Version of PostgreSQL that is needed."""

DOUBTFUL: Final = (
    "the connection that says whether this server leads gives no answer; it is tried again"
)

_STEP: Final = "SELECT version_num FROM alembic_version"
_IS_THERE: Final = "SELECT to_regclass('alembic_version') IS NOT NULL"

log = logging.getLogger(__name__)


async def open_database(
    settings: Settings,
    offload: Callable[..., Awaitable[Any]],
    meters: Meters,
    instance: str,
    leading: Leading,
    stack: AsyncExitStack,
) -> Database:
    """Connect, bring the schema up to date or check it, and take the lead; closed by `stack`.

    Args:
        settings: the settings in force.
        offload: `await offload(fn, *args)` calls `fn` in a thread.
        meters: where connections and refused writes are counted.
        instance: how this server is named to another one that wants the same database.
        leading: told whether this server still leads.
        stack: closes what is opened.

    Raises:
        StoreUnavailableError: the database does not answer, is too old, or its schema is not the
            one that this version needs; or another server leads, which is named. Says which
            setting it is about.
    """
    url = _url(settings.postgres.url)
    database = Database(url, size=settings.postgres.pool_size, meters=meters)
    try:
        await stack.enter_async_context(database)
        await _check_version(database)
        at = await step(database)
    except StoreUnavailableError as error:
        raise about("url", error) from error
    try:
        await _bring_up_to_date(at, settings, offload)
    except StoreUnavailableError as error:
        own = _url(settings.postgres.migration_url or settings.postgres.url) != url
        raise about("migration-url" if own else "url", error) from error
    lock = PartitionLock(
        database,
        f"{instance} ({socket.gethostname()}, pid {os.getpid()})",
        lost=lambda: leading.doubt(DOUBTFUL),
        regained=leading.sure,
        stale=lambda: leading.passed(_name_of(lock.leader)),
    )
    try:
        await stack.enter_async_context(lock)
    except StoreUnavailableError as error:
        raise about("url", error) from error
    return database


def about(name: str, error: StoreUnavailableError) -> StoreUnavailableError:
    """The same error, with the setting that it is about."""
    members = {"store": "postgres"} | error.members
    return StoreUnavailableError(f"yukta.postgres.{name}: {error.detail}", **members)


async def step(database: Database) -> str | None:
    """The step that the schema is at; None if it was never made."""
    if not await database.fetchval(_IS_THERE):
        return None
    found: str | None = await database.fetchval(_STEP)
    return found


async def _bring_up_to_date(
    at: str | None, settings: Settings, offload: Callable[..., Awaitable[Any]]
) -> None:
    if at == await offload(newest):
        # Alembic takes longer to load than all the rest of a start.
        return
    group = settings.postgres
    url = _url(group.migration_url or group.url)
    if group.migrate_on_start:
        before, now = await offload(_upgrade, url)
        log.warning("the schema of the database went from step %s to %s", before or "none", now)
    else:
        await offload(_check, url)


def _upgrade(url: str) -> tuple[str | None, str | None]:
    from yukta_rx.durability.postgres import migrate

    return migrate.upgrade(url)


def _check(url: str) -> None:
    from yukta_rx.durability.postgres import migrate

    migrate.check(url)


async def _check_version(database: Database) -> None:
    number = int(await database.fetchval("SHOW server_version_num"))
    if number // 10_000 < OLDEST:
        raise StoreUnavailableError(
            f"PostgreSQL {number // 10_000} is too old: {OLDEST} or newer is needed"
        )


def _url(setting: Any) -> str:
    url: str = setting.get_secret_value()
    return url


def _name_of(holder: str | None) -> str | None:
    """The instance of a server, of what it says of itself."""
    return None if holder is None else holder.rpartition(" (")[0] or holder
