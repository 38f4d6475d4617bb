"""open_stores: the one place that picks a backend for each store.  Features: DUR-04, DUR-05.

A backend is imported when a setting asks for it: a server that keeps everything in memory loads
nothing of files or databases.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.config.checks import require, store_types
from yukta_rx.config.settings import StoreType
from yukta_rx.errors import ConfigError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from yukta_rx.config.settings import Settings
    from yukta_rx.durability.file._folder import Folder
    from yukta_rx.durability.stores.archive import ExecutionArchiveStore
    from yukta_rx.durability.stores.checkpoints import NodeCheckpointStore
    from yukta_rx.durability.stores.definitions import WorkflowDefinitionStore
    from yukta_rx.durability.stores.execution_log import ExecutionLogStore
    from yukta_rx.durability.stores.input_requests import InputRequestStore
    from yukta_rx.durability.stores.queued_starts import QueuedStartStore
    from yukta_rx.durability.stores.sessions import SessionConfigStore

Offload = Callable[..., Awaitable[Any]]


def check_settings(settings: Settings) -> tuple[str, ...]:
    """Refuse settings that this version cannot honour; the warnings of the others.

    Raises:
        ConfigError: settings contradict each other, or ask for a store that is not there; lists
            all of them.
    """
    warnings = require(settings)
    absent = [
        f"yukta.{store}.store-type = {kind}: this version has no PostgreSQL store yet;"
        " file and memory are there"
        for store, kind in store_types(settings).items()
        if kind is StoreType.POSTGRES
    ]
    if absent:
        raise ConfigError(absent)
    return warnings


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
        folders: the folders of file stores, by the switch that put stores there.
    """

    definitions: WorkflowDefinitionStore
    sessions: SessionConfigStore
    execution_log: ExecutionLogStore
    queued_starts: QueuedStartStore
    input_requests: InputRequestStore
    checkpoints: NodeCheckpointStore
    archive: ExecutionArchiveStore
    folders: Mapping[str, Folder]


@asynccontextmanager
async def open_stores(
    settings: Settings, offload: Offload, instance: str = ""
) -> AsyncIterator[Stores]:
    """Open every store; they are closed in the reverse order.

    Args:
        settings: the settings in force.
        offload: `await offload(fn, *args)` calls `fn` in a thread.
        instance: how this server is named to another one that wants the same folder.

    Raises:
        ConfigError: a store is asked for that is not there.
        StoreUnavailableError: a store cannot be used, or another server has its folder; names the
            setting, the folder, and who has it or why it cannot be used.
    """
    check_settings(settings)
    async with AsyncExitStack() as stack:
        opening = _Opening(settings, offload, instance, stack)
        found: dict[str, Any] = {}
        for switch, kind in store_types(settings).items():
            try:
                found |= await _OPENERS[switch, kind](opening)
            except StoreUnavailableError as error:
                raise _named(switch, error) from error
        yield Stores(**found, folders=opening.folders)


def _named(switch: str, error: StoreUnavailableError) -> StoreUnavailableError:
    """The same error, with the setting that the folder comes from."""
    return StoreUnavailableError(f"yukta.{switch}.dir: {error.detail}", **error.members)


@dataclass(frozen=True, slots=True)
class _Opening:
    """What is needed to open a store, and where it is noted what has to be closed."""

    settings: Settings
    offload: Offload
    instance: str
    stack: AsyncExitStack
    folders: dict[str, Folder] = field(default_factory=dict)

    async def folder(self, switch: str) -> Folder:
        """The folder of a switch, taken for this server alone; once, however many share it."""
        from yukta_rx.durability.file._folder import Folder

        path: Path = getattr(self.settings, switch.replace("-", "_")).dir.absolute()
        for known in self.folders.values():
            if known.path == path:
                self.folders[switch] = known
                return known
        taken = await self.stack.enter_async_context(Folder(path, instance=self.instance))
        self.folders[switch] = taken
        return taken


# --- in memory -----------------------------------------------------------------------------------


async def _nothing(opening: _Opening) -> dict[str, Any]:
    return {}


async def _session_in_memory(opening: _Opening) -> dict[str, Any]:
    from yukta_rx.durability.memory.definitions import MemoryWorkflowDefinitionStore
    from yukta_rx.durability.memory.sessions import MemorySessionConfigStore

    definitions = MemoryWorkflowDefinitionStore(opening.settings.definitions.retained_versions)
    return {"definitions": definitions, "sessions": MemorySessionConfigStore(definitions)}


async def _execution_log_in_memory(opening: _Opening) -> dict[str, Any]:
    from yukta_rx.durability.memory.execution_log import MemoryExecutionLogStore
    from yukta_rx.durability.memory.queued_starts import MemoryQueuedStartStore

    kept = opening.settings.execution_log
    return {
        "execution_log": MemoryExecutionLogStore(kept.retained_runs, kept.compact_after),
        "queued_starts": MemoryQueuedStartStore(),
    }


async def _restart_in_memory(opening: _Opening) -> dict[str, Any]:
    from yukta_rx.durability.memory.archive import MemoryExecutionArchiveStore
    from yukta_rx.durability.memory.checkpoints import MemoryNodeCheckpointStore
    from yukta_rx.durability.memory.input_requests import MemoryInputRequestStore

    return {
        "checkpoints": MemoryNodeCheckpointStore(opening.settings.restart, opening.offload),
        "archive": MemoryExecutionArchiveStore(),
        "input_requests": MemoryInputRequestStore(),
    }


_OPENERS: Final[Mapping[tuple[str, StoreType], Callable[[_Opening], Awaitable[dict[str, Any]]]]] = {
    ("session", StoreType.MEMORY): _session_in_memory,
    ("execution-log", StoreType.MEMORY): _execution_log_in_memory,
    ("restart", StoreType.MEMORY): _restart_in_memory,
    ("kv", StoreType.MEMORY): _nothing,
    ("session-memory", StoreType.MEMORY): _nothing,
}
"""By switch and backend: what opens the stores of that switch, by their names in `Stores`."""
