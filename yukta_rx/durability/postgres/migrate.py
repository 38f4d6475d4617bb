"""Migrations: brings the schema to what this version needs, or says that it is not there.

The steps are in the folder `alembic` of the repository, which a wheel carries as `_alembic`.
Servers that start at the same time wait for each other; a step that fails leaves the step before.
Everything here blocks: a server calls it in a thread.

Feature: DUR-04.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import asyncpg
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from yukta_rx.durability.postgres.steps import scripts
from yukta_rx.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection

T = TypeVar("T")

LOCK: Final = 7_305_191_662_083_001_001
"""Advisory lock of whoever changes the schema."""

CONNECT: Final = 5.0
"""Seconds to connect."""


def head() -> str:
    """The step that this version needs."""
    found = ScriptDirectory.from_config(_config()).get_current_head()
    assert found is not None, "there are steps"
    return found


def history() -> list[tuple[str, str]]:
    """Every step, the first one first: its name, and what it is for."""
    walked = ScriptDirectory.from_config(_config()).walk_revisions()
    return [(one.revision, str(one.doc)) for one in walked][::-1]


def upgrade(url: str, to: str = "head") -> tuple[str | None, str | None]:
    """Bring the schema to a step, forwards; the steps before and after.

    Raises:
        StoreUnavailableError: the database does not answer, a step failed (and nothing of it is
            there), or the database is newer than this program.
    """
    return asyncio.run(_move(url, lambda config: command.upgrade(config, to)))


def downgrade(url: str, to: str) -> tuple[str | None, str | None]:
    """Bring the schema back to a step, or to `base`: what is in newer tables is lost."""
    return asyncio.run(_move(url, lambda config: command.downgrade(config, to)))


def current(url: str) -> str | None:
    """The step that the schema is at; None if it was never made."""
    return asyncio.run(_asked(url, _current))


def check(url: str) -> None:
    """Raise StoreUnavailableError unless the schema is at the step that this version needs."""
    found = current(url)
    if found == head():
        return
    known = {name for name, _ in history()}
    if found is not None and found not in known:
        raise _newer(found)
    raise StoreUnavailableError(
        f"the schema of the database is at step {found or 'none'}, this version needs {head()}: "
        "run `yukta db upgrade`, or set yukta.postgres.migrate-on-start",
        store="postgres",
    )


def differences(url: str) -> list[Any]:
    """What the schema has that the metadata has not, and the other way round; empty if nothing."""
    from alembic.autogenerate import compare_metadata

    from yukta_rx.durability.postgres.tables import metadata

    def compare(connection: Connection) -> list[Any]:
        context = MigrationContext.configure(connection, opts={"compare_server_default": True})
        return list(compare_metadata(context, metadata))

    return asyncio.run(_asked(url, compare))


async def _asked(url: str, ask: Callable[[Connection], T]) -> T:
    async with _connected(url) as connection:
        return await connection.run_sync(ask)


async def _move(url: str, move: Callable[[Config], None]) -> tuple[str | None, str | None]:
    def work(connection: Connection) -> tuple[str | None, str | None]:
        before = _current(connection)
        # Each step is a transaction of its own, which one that is open already would swallow.
        connection.commit()
        config = _config()
        config.attributes["connection"] = connection
        move(config)
        return before, _current(connection)

    async with _connected(url) as connection:
        await connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": LOCK})
        await connection.commit()
        try:
            return await connection.run_sync(work)
        except CommandError as error:
            raise _newer(str(error)) from error
        except SQLAlchemyError as error:
            raise await _failed(connection, error) from error
        finally:
            await connection.rollback()
            await connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": LOCK})
            await connection.commit()


async def _failed(connection: AsyncConnection, error: SQLAlchemyError) -> StoreUnavailableError:
    """What to say of a step that failed; the connection may be lost."""
    await connection.rollback()
    left = await connection.run_sync(_current)
    return StoreUnavailableError(
        f"the schema stays at step {left or 'none'}, the next one failed: {_said(error)}",
        store="postgres",
    )


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[AsyncConnection]:
    engine = create_async_engine(
        "postgresql+asyncpg://", poolclass=NullPool, async_creator=lambda: _connect(url)
    )
    try:
        async with engine.connect() as connection:
            yield connection
    except (SQLAlchemyError, OSError, TimeoutError) as error:
        raise StoreUnavailableError(f"the schema: {_said(error)}", store="postgres") from error
    finally:
        await engine.dispose()


async def _connect(url: str) -> Any:
    # Not by SQLAlchemy's own way, which understands addresses a little differently.
    try:
        return await asyncpg.connect(url, timeout=CONNECT)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
        raise StoreUnavailableError(
            f"the database does not let us in: {_said(error)}", store="postgres"
        ) from error


def _said(error: BaseException) -> str:
    """What the database said, without what layers above it put around that."""
    cause = getattr(error, "orig", None) or error
    return str(cause.__cause__ or cause) or "no answer in time"


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(scripts()).replace("%", "%%"))
    return config


def _current(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _newer(found: str) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"the database is newer than this program, which does not know its schema: {found}",
        store="postgres",
    )
