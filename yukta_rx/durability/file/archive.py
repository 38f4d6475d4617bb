"""Recent runs in a file, `archive.jsonl`. Features: CTL-04, DUR-02."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

from yukta_rx.durability.file._journaled import Journaled, at_once
from yukta_rx.durability.memory.archive import MemoryExecutionArchiveStore
from yukta_rx.durability.stores.archive import ArchivedRun
from yukta_rx.durability.stores.rows import from_row, to_row

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from yukta_rx.durability.stores.quarantine import Quarantined
    from yukta_rx.metrics import Meters

NAME: Final = "archive.jsonl"

SLACK: Final = 20
"""Each line holds a whole workflow and a start payload, so few are kept beyond need."""

_ALL: Final = ""
"""All runs are one scope: a put may drop others."""


class FileExecutionArchiveStore:
    """See `ExecutionArchiveStore`; the memory store over a journal of `put` and `remove`.

    Args:
        folder: where the file is.
        meters: where lines are counted that cannot be read.
    """

    durable = True

    def __init__(self, folder: Path, *, meters: Meters | None = None) -> None:
        self._state = _State()
        self._journal = Journaled(folder / NAME, "archive", self._state, meters=meters, slack=SLACK)

    async def start(self) -> None:
        """Read the runs that are kept.

        Raises:
            StoreUnavailableError: the file cannot be read or written.
        """
        await self._journal.start()

    async def close(self) -> None:
        """Write what waits, and close the file."""
        await self._journal.close()

    async def __aenter__(self) -> Self:
        """Start it."""
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close it."""
        await self.close()

    @property
    def quarantined(self) -> Sequence[Quarantined]:
        """Lines that could not be read when the file was opened."""
        return self._journal.quarantined

    async def put(self, run: ArchivedRun, retain: int) -> Sequence[str]:
        """Keep a run among the newest `retain`; the ids of those that had to go."""
        gone: Sequence[str] = await self._journal.change(
            _ALL, {"op": "put", "retain": retain, "run": to_row(run)}
        )
        return gone

    async def get(self, execution_id: str) -> ArchivedRun | None:
        """A run, None if it is not kept."""
        self._journal.check()
        return await self._state.get(execution_id)

    async def ids(self) -> Sequence[str]:
        """The ids of all that are kept, the oldest first."""
        self._journal.check()
        return await self._state.ids()

    async def remove(self, execution_id: str) -> None:
        """Forget a run."""
        self._journal.check()
        if execution_id in self._state or self._journal.waits(_ALL):
            await self._journal.change(_ALL, {"op": "remove", "executionId": execution_id})


class _State(MemoryExecutionArchiveStore):
    """The runs that are kept."""

    def __contains__(self, execution_id: str) -> bool:
        return execution_id in self._runs

    def apply(self, change: Mapping[str, Any]) -> Any:
        """Make a change."""
        match change["op"]:
            case "put":
                return at_once(self.put(from_row(ArchivedRun, change["run"]), change["retain"]))
            case "remove":
                return at_once(self.remove(change["executionId"]))
        raise ValueError(f"there is no op {change['op']!r}")

    def needed(self) -> int:
        """One for each run."""
        return len(self._runs)

    def changes(self) -> Iterable[Mapping[str, Any]]:
        """Each run, put again in the order of the puts; none has to go for another."""
        runs = list(self._runs.values())
        return ({"op": "put", "retain": len(runs), "run": to_row(run)} for run in runs)
