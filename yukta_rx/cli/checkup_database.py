"""What `yukta doctor` says of the database that stores are in.  Features: DUR-04, OBS-04."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from yukta_rx.cli.checkup import SKEW, Check, fail, ok, warn
from yukta_rx.cli.checkup_folders import SLOW
from yukta_rx.config.checks import store_types
from yukta_rx.config.settings import StoreType
from yukta_rx.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from yukta_rx.config.settings import Settings
    from yukta_rx.durability.postgres.examine import Examined

BESIDE_THE_POOL: Final = 8
"""Connections that a server may have beside its pool: a writer of each store, and the lock."""


def in_database(settings: Settings) -> bool:
    """Whether any store is in a database."""
    return StoreType.POSTGRES in store_types(settings).values()


async def check_database(settings: Settings) -> AsyncIterator[Check]:
    """Look at the database; a check `schema` that is not `ok` means that no store can be opened."""
    from yukta_rx.durability.postgres.examine import examine

    url = settings.postgres.url
    if url is None:
        return
    try:
        found = await examine(url.get_secret_value())
    except StoreUnavailableError as error:
        yield fail("database", f"yukta.postgres.url: {error.detail}")
        return
    for check in (*_server(found), *_room(found, settings), *_schema(found, settings)):
        yield check


def _server(found: Examined) -> Iterator[Check]:
    told = f"PostgreSQL {found.version}"
    facts = {"version": found.version}
    if found.too_old:
        yield fail("database", f"{told} is too old: 15 or newer is needed", **facts)
        return
    if found.replica:
        yield fail("database", f"{told} is a replica, which nobody may write", **facts)
        return
    yield ok(
        "database",
        f"{told}: a commit takes {found.commit * 1000:.2f} ms, {found.worst * 1000:.2f} at worst",
        commitMs=round(found.commit * 1000, 3),
        worstMs=round(found.worst * 1000, 3),
        skewSeconds=round(found.skew, 3),
        **facts,
    )
    if found.commit > SLOW:
        yield warn("database", "commits are slow, and every start waits for one")
    if not found.forced:
        told = "fsync or synchronous_commit is off: a power loss takes what was acknowledged"
        yield warn("database", told)
    if abs(found.skew) > SKEW:
        side = "ahead" if found.skew > 0 else "behind"
        yield warn("clock", f"the clock of the database is {abs(found.skew):.0f} s {side}")


def _room(found: Examined, settings: Settings) -> Iterator[Check]:
    needed = settings.postgres.pool_size + BESIDE_THE_POOL
    told = f"{found.free} of {found.connections} connections are free"
    facts = {"freeConnections": found.free, "connections": found.connections}
    if found.free < needed:
        told += f", and a server may need {needed}: see yukta.postgres.pool-size"
        yield warn("database", told, **facts)
    else:
        yield ok("database", told, **facts)


def _schema(found: Examined, settings: Settings) -> Iterator[Check]:
    facts = {"step": found.step, "wanted": found.wanted}
    if found.too_old or found.replica:
        return
    if found.step == found.wanted:
        yield ok("schema", f"at step {found.step}", **facts)
    elif found.step is not None and found.step > found.wanted:
        yield fail("schema", f"step {found.step} is of a newer version of yukta", **facts)
    else:
        told = f"at step {found.step or 'none'}, this version needs {found.wanted}"
        if settings.postgres.migrate_on_start:
            yield warn("schema", f"{told}: the next start makes it", **facts)
        else:
            yield fail("schema", f"{told}: run `yukta db upgrade`", **facts)
    if found.holder is not None:
        yield fail("leader", f"another server leads: {found.holder}", holder=found.holder)
