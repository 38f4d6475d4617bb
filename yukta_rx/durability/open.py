"""open_stores: the one place that picks a backend for each store.  Features: DUR-04, DUR-05.

A backend is imported when a setting asks for it: a server that keeps everything in memory loads
nothing of files or databases.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, fields
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from yukta_rx.config.checks import require, store_types
from yukta_rx.config.settings import StoreType
from yukta_rx.durability.matrix import durability_matrix
from yukta_rx.durability.stores.leading import Leading
from yukta_rx.errors import ConfigError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from yukta_rx.config.settings import Settings
    from yukta_rx.durability.file._folder import Folder
    from yukta_rx.durability.file.blobs import FileBlobStore
    from yukta_rx.durability.postgres.blobs import PostgresBlobStore
    from yukta_rx.durability.postgres.database import Database
    from yukta_rx.durability.stores.archive import ExecutionArchiveStore
    from yukta_rx.durability.stores.checkpoints import NodeCheckpointStore
    from yukta_rx.durability.stores.definitions import WorkflowDefinitionStore
    from yukta_rx.durability.stores.effects import EffectStore
    from yukta_rx.durability.stores.events import EventStore
    from yukta_rx.durability.stores.execution_log import ExecutionLogStore
    from yukta_rx.durability.stores.histories import HistoryStore
    from yukta_rx.durability.stores.input_requests import InputRequestStore
    from yukta_rx.durability.stores.key_values import KeyValueStore
    from yukta_rx.durability.stores.quarantine import Quarantined
    from yukta_rx.durability.stores.queued_starts import QueuedStartStore
    from yukta_rx.durability.stores.results import ResultStore
    from yukta_rx.durability.stores.sessions import SessionConfigStore
    from yukta_rx.metrics import Meters

log = logging.getLogger(__name__)

LINGER: Final = 0.02
"""Of PostgreSQL: each commit forces a disk, and keeps those back that somebody waits for."""

_DRIVERS: Final = ("asyncpg", "sqlalchemy", "alembic")
"""What the extra `postgres` installs."""

Offload = Callable[..., Awaitable[Any]]


class _Started(Protocol):
    """A store with a beginning and an end."""

    async def start(self) -> None:
        """Read what is there."""

    async def close(self) -> None:
        """Write what waits."""


S = TypeVar("S", bound=_Started)


def check_settings(settings: Settings) -> tuple[str, ...]:
    """Refuse settings that cannot be honoured here; the warnings of the others.

    Raises:
        ConfigError: settings contradict each other, or ask for what is not installed; lists all
            of them.
    """
    warnings = require(settings)
    if absent := refused_stores(settings):
        raise ConfigError(absent)
    return warnings


def refused_stores(settings: Settings) -> list[str]:
    """The settings that ask for a store whose packages are not installed, a sentence each."""
    missing = [name for name in _DRIVERS if find_spec(name) is None]
    return [
        f"yukta.{store}.store-type = {kind} needs {', '.join(missing)}:"
        " pip install 'yukta_rx[postgres]'"
        for store, kind in store_types(settings).items()
        if kind is StoreType.POSTGRES and missing
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """Every store of one server, open.

    Attributes:
        definitions: workflow definitions with their versions.
        sessions: session configurations; commits to `definitions` as well.
        execution_log: starts, ends, commands, idempotency keys.
        queued_starts: starts that wait for a slot.
        input_requests: what waits for somebody's answer, and the answers.
        checkpoints: what nodes emitted. Started and closed by the archive that records in it.
        archive: runs that can be run again.
        results: what reached the terminals of runs.
        events: what happened, for those who follow it.
        effects: what was done once and must not be done again.
        key_values: the entries of KV_STORE.
        histories: the conversations of SESSION_MEMORY.
        folders: the folders of file stores, by the switch that put stores there.
        leading: whether the stores are this server's own, or another one leads by now.
        database: where those of PostgreSQL are, None if there are none.
        linger: seconds for which events, results and ends of nodes wait for others to share their
            commit.
    """

    definitions: WorkflowDefinitionStore
    sessions: SessionConfigStore
    execution_log: ExecutionLogStore
    queued_starts: QueuedStartStore
    input_requests: InputRequestStore
    checkpoints: NodeCheckpointStore
    archive: ExecutionArchiveStore
    results: ResultStore
    events: EventStore
    effects: EffectStore
    key_values: KeyValueStore
    histories: HistoryStore
    folders: Mapping[str, Folder]
    leading: Leading = field(default_factory=Leading)
    database: Database | None = None
    linger: float = 0

    @property
    def checks(self) -> Mapping[str, Callable[[], Awaitable[object]]]:
        """What finds out whether stores answer, by what is shown of them; it raises if not."""
        found: dict[str, Callable[[], Awaitable[object]]]
        found = {switch: folder.check for switch, folder in self.folders.items()}
        return found | ({} if self.database is None else {"postgres": self.database.check})

    @property
    def quarantined(self) -> Sequence[Quarantined]:
        """What stores found that they cannot read, and set aside."""
        found = (getattr(getattr(self, field.name), "quarantined", ()) for field in fields(self))
        return [one for several in found for one in several]


@asynccontextmanager
async def open_stores(
    settings: Settings, offload: Offload, meters: Meters, instance: str = ""
) -> AsyncIterator[Stores]:
    """Open every store; they are closed in the reverse order.

    Args:
        settings: the settings in force.
        offload: `await offload(fn, *args)` calls `fn` in a thread.
        meters: where stores count what they could not read.
        instance: how this server is named to another one that wants the same folder.

    Raises:
        ConfigError: a store is asked for that is not there.
        StoreUnavailableError: a store cannot be used, or another server has its folder or leads
            in its database; names the setting, and who that is or why it cannot be used.
    """
    check_settings(settings)
    async with AsyncExitStack() as stack:
        opening = Opening(settings, offload, meters, instance, stack)
        found: dict[str, Any] = {}
        for switch, kind in store_types(settings).items():
            try:
                found |= await _opener(switch, kind)(opening)
            except StoreUnavailableError as error:
                raise _named(switch, kind, error) from error
        for row in durability_matrix(settings):
            log.info("durability: %s", row)
        yield Stores(
            **found,
            folders=opening.folders,
            leading=opening.leading,
            database=opening.databases[0] if opening.databases else None,
            linger=LINGER if settings.execution_log.store_type is StoreType.POSTGRES else 0,
        )


def _named(switch: str, kind: StoreType, error: StoreUnavailableError) -> StoreUnavailableError:
    """The same error, with the setting that the folder or the database comes from."""
    if kind is StoreType.POSTGRES:
        told = error.detail.startswith("yukta.")
        detail = error.detail if told else f"yukta.postgres.url: {error.detail}"
        return StoreUnavailableError(detail, **error.members)
    return StoreUnavailableError(f"yukta.{switch}.dir: {error.detail}", **error.members)


@dataclass(frozen=True, slots=True)
class Opening:
    """What is needed to open a store, and where it is noted what has to be closed."""

    settings: Settings
    offload: Offload
    meters: Meters
    instance: str
    stack: AsyncExitStack
    folders: dict[str, Folder] = field(default_factory=dict)
    blobs: dict[Path, FileBlobStore] = field(default_factory=dict)
    databases: list[Database] = field(default_factory=list)
    database_blobs: list[PostgresBlobStore] = field(default_factory=list)
    leading: Leading = field(default_factory=Leading)

    async def database(self) -> Database:
        """The database, led by this server; once, however many switches use it."""
        from yukta_rx.durability.postgres.opening import open_database

        if not self.databases:
            about = self.settings, self.offload, self.meters, self.instance
            self.databases.append(await open_database(*about, self.leading, self.stack))
        return self.databases[0]

    async def folder(self, switch: str) -> Folder:
        """The folder of a switch, taken for this server alone; once, however many share it."""
        from yukta_rx.durability.file._folder import Folder

        given: Path = getattr(self.settings, switch.replace("-", "_")).dir
        path = await self.offload(given.resolve)
        for known in self.folders.values():
            if known.path == path:
                self.folders[switch] = known
                return known
        taken = await self.stack.enter_async_context(Folder(path, instance=self.instance))
        self.folders[switch] = taken
        return taken

    def claims(self, folder: Folder) -> dict[str, Any]:
        """What the stores of a folder need to keep large payloads apart; they share it."""
        from yukta_rx.durability.file.blobs import FileBlobStore

        if folder.path not in self.blobs:
            self.blobs[folder.path] = FileBlobStore(folder.path / "blobs", self.offload)
        limit = self.settings.payload.claim_check_bytes
        return {"blobs": self.blobs[folder.path], "claim_bytes": limit}

    def claims_in(self, database: Database) -> dict[str, Any]:
        """The same for the stores of a database, which share its blobs."""
        from yukta_rx.durability.postgres.blobs import PostgresBlobStore

        if not self.database_blobs:
            self.database_blobs.append(PostgresBlobStore(database, self.offload))
        limit = self.settings.payload.claim_check_bytes
        return {"blobs": self.database_blobs[0], "claim_bytes": limit}

    async def started(self, store: S) -> S:
        """A store that is started now, and closed with the others."""
        self.stack.push_async_callback(store.close)
        await store.start()
        return store


# --- in memory -----------------------------------------------------------------------------------


async def _session_in_memory(opening: Opening) -> dict[str, Any]:
    from yukta_rx.durability.memory.definitions import MemoryWorkflowDefinitionStore
    from yukta_rx.durability.memory.sessions import MemorySessionConfigStore

    definitions = MemoryWorkflowDefinitionStore(opening.settings.definitions.retained_versions)
    return {"definitions": definitions, "sessions": MemorySessionConfigStore(definitions)}


async def _execution_log_in_memory(opening: Opening) -> dict[str, Any]:
    from yukta_rx.durability.memory.events import MemoryEventStore
    from yukta_rx.durability.memory.execution_log import MemoryExecutionLogStore
    from yukta_rx.durability.memory.queued_starts import MemoryQueuedStartStore

    kept = opening.settings.execution_log
    return {
        "execution_log": MemoryExecutionLogStore(
            kept.retained_runs, kept.compact_after, kept.retained_children, opening.meters
        ),
        "queued_starts": MemoryQueuedStartStore(),
        "events": MemoryEventStore(),
    }


async def _restart_in_memory(opening: Opening) -> dict[str, Any]:
    from yukta_rx.durability.memory.archive import MemoryExecutionArchiveStore
    from yukta_rx.durability.memory.checkpoints import MemoryNodeCheckpointStore
    from yukta_rx.durability.memory.effects import MemoryEffectStore
    from yukta_rx.durability.memory.input_requests import MemoryInputRequestStore
    from yukta_rx.durability.memory.results import MemoryResultStore

    return {
        "checkpoints": MemoryNodeCheckpointStore(opening.settings.restart, opening.offload),
        "archive": MemoryExecutionArchiveStore(),
        "input_requests": MemoryInputRequestStore(),
        "results": MemoryResultStore(opening.meters),
        "effects": MemoryEffectStore(),
    }


async def _kv_in_memory(opening: Opening) -> dict[str, Any]:
    from yukta_rx.durability.memory.key_values import MemoryKeyValueStore

    return {"key_values": MemoryKeyValueStore()}


async def _session_memory_in_memory(opening: Opening) -> dict[str, Any]:
    from yukta_rx.durability.memory.histories import MemoryHistoryStore

    return {"histories": MemoryHistoryStore()}


# --- in files ------------------------------------------------------------------------------------


async def _session_in_files(opening: Opening) -> dict[str, Any]:
    from yukta_rx.durability.file.definitions import FileWorkflowDefinitionStore
    from yukta_rx.durability.file.sessions import FileSessionConfigStore

    folder = await opening.folder("session")
    keep = opening.settings.definitions.retained_versions
    definitions = FileWorkflowDefinitionStore(folder, keep, opening.meters)
    opening.stack.push_async_callback(definitions.close)
    await definitions.open()
    return {"definitions": definitions, "sessions": FileSessionConfigStore(definitions)}


async def _execution_log_in_files(opening: Opening) -> dict[str, Any]:
    from yukta_rx.durability.file.events import FileEventStore
    from yukta_rx.durability.file.execution_log import FileExecutionLogStore
    from yukta_rx.durability.file.queued_starts import FileQueuedStartStore

    folder, kept = await opening.folder("execution-log"), opening.settings.execution_log
    claims = opening.claims(folder)
    events = FileExecutionLogStore(
        folder.path,
        kept.retained_runs,
        kept.compact_after,
        fsync=kept.fsync,
        meters=opening.meters,
        children=kept.retained_children,
        **claims,
    )
    feed = FileEventStore(folder.path / "events", opening.offload, meters=opening.meters)
    return {
        "execution_log": await opening.started(events),
        "queued_starts": await opening.started(
            FileQueuedStartStore(folder.path, meters=opening.meters, **claims)
        ),
        "events": await opening.stack.enter_async_context(feed),
    }


async def _restart_in_files(opening: Opening) -> dict[str, Any]:
    from yukta_rx.durability.file.archive import FileExecutionArchiveStore
    from yukta_rx.durability.file.checkpoints import FileNodeCheckpointStore
    from yukta_rx.durability.file.effects import FileEffectStore
    from yukta_rx.durability.file.input_requests import FileInputRequestStore
    from yukta_rx.durability.file.results import FileResultStore

    folder, offload, meters = await opening.folder("restart"), opening.offload, opening.meters
    claims = opening.claims(folder)
    outputs = FileNodeCheckpointStore(folder.path / "outputs", offload, meters=meters, **claims)
    enter = opening.stack.enter_async_context
    return {
        "checkpoints": outputs,
        "archive": await opening.started(
            FileExecutionArchiveStore(folder.path, meters=meters, **claims)
        ),
        "input_requests": await opening.stack.enter_async_context(
            FileInputRequestStore(folder.path, meters=meters)
        ),
        "results": await enter(
            FileResultStore(folder.path / "results", offload, meters=meters, **claims)
        ),
        "effects": await enter(FileEffectStore(folder.path)),
    }


async def _kv_in_files(opening: Opening) -> dict[str, Any]:
    from yukta_rx.durability.file.key_values import FileKeyValueStore

    store = FileKeyValueStore((await opening.folder("kv")).path)
    return {"key_values": await opening.stack.enter_async_context(store)}


async def _session_memory_in_files(opening: Opening) -> dict[str, Any]:
    from yukta_rx.durability.file.histories import FileHistoryStore

    store = FileHistoryStore((await opening.folder("session-memory")).path)
    return {"histories": await opening.stack.enter_async_context(store)}


def _opener(switch: str, kind: StoreType) -> Callable[[Opening], Awaitable[dict[str, Any]]]:
    """What opens the stores of a switch, by their names in `Stores`."""
    if kind is StoreType.POSTGRES:
        from yukta_rx.durability.postgres.stores import OPENERS

        return OPENERS[switch]
    return _OPENERS[switch, kind]


_OPENERS: Final[Mapping[tuple[str, StoreType], Callable[[Opening], Awaitable[dict[str, Any]]]]] = {
    ("session", StoreType.MEMORY): _session_in_memory,
    ("session", StoreType.FILE): _session_in_files,
    ("execution-log", StoreType.MEMORY): _execution_log_in_memory,
    ("execution-log", StoreType.FILE): _execution_log_in_files,
    ("restart", StoreType.MEMORY): _restart_in_memory,
    ("restart", StoreType.FILE): _restart_in_files,
    ("kv", StoreType.MEMORY): _kv_in_memory,
    ("kv", StoreType.FILE): _kv_in_files,
    ("session-memory", StoreType.MEMORY): _session_memory_in_memory,
    ("session-memory", StoreType.FILE): _session_memory_in_files,
}
"""By switch and backend: what opens the stores of that switch, by their names in `Stores`."""
